"""Errors that clients receive, as problem details (RFC 9457): what is wrong and where, without stack traces."""

import logging
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from retriever.errors import (
    BadFilter,
    Locked,
    Misuse,
    NoSuchDocument,
    NoTextEncoder,
    RetrieverError,
    TextTooLong,
    first_line,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1
OPENAI_PATH = "/v1/embeddings"
"""The route whose problems also have a member `error`, as OpenAI's clients read it."""
INVALID = "the request is invalid; `errors` lists the fields."

MOST_LISTED = 100
"""Maximum number of invalid fields that one problem lists."""

log = logging.getLogger("retriever.serve")


class Problem(HTTPException):
    """An error whose text is sent to the client unchanged."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        busy = status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
        retry = {"Retry-After": str(RETRY_AFTER_SECONDS)} if busy else {}
        super().__init__(status, detail, {**retry, **(headers or {})})
        self.errors = errors

    def response(self, path: str) -> JSONResponse:
        content = self.to_json()
        if path == OPENAI_PATH:
            content["error"] = self._openai_error()
        return JSONResponse(content, self.status_code, self.headers, MEDIA_TYPE)

    def _openai_error(self) -> dict[str, Any]:
        """Return the error as OpenAI's clients show it."""
        message = "; ".join(f"{field}: {reason}" for field, reason in self.errors) or self.detail
        kind = "server_error" if self.status_code >= 500 else "invalid_request_error"
        param = self.errors[0][0] if self.errors else None
        return {"message": _encodable(message), "type": kind, "param": param, "code": None}

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status_code).phrase,
            "status": self.status_code,
            "detail": _encodable(self.detail),
            "errors": [{"field": _encodable(field), "reason": _encodable(reason)} for field, reason in self.errors],
        }


def _encodable(text: str) -> str:
    """Replace lone surrogates. A message may quote them from a JSON request, but UTF-8 cannot encode them."""
    return text.encode("utf-8", "replace").decode()


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe for OpenAPI the problems that a route may return."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


READ_PROBLEMS = documented(400, 401, 403, 404, 422, 429, 431, 500, 503)
BODY_PROBLEMS = {**READ_PROBLEMS, **documented(408, 413, 415)}


def problem_of(error: Exception, collection: str) -> Problem:
    """Convert an error of a collection into a problem that contains only what the client may know."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, NoSuchDocument):
        return no_document(error.id, collection)
    if isinstance(error, BadFilter):
        field = "where" if error.place is None else f"where.{error.place}"
        return Problem(422, "a filter is invalid.", [(field, str(error))])
    if type(error) in (Misuse, TextTooLong):
        return Problem(422, str(error))
    if isinstance(error, NoTextEncoder):
        return Problem(422, f"the collection {collection!r} has no encoder for text; search it by words: mode lexical.")
    if isinstance(error, Locked):
        return Problem(503, f"another process is writing to the collection {collection!r}; try again when it is done.")
    log.error("the collection %s: %s", collection, error)
    if isinstance(error, RetrieverError | sqlite3.Error):  # only log the text, which may contain paths
        return Problem(
            503,
            f"the collection {collection!r} cannot be used ({type(error).__name__}); the server's log says why. Check "
            "it on the server with: retriever verify --index DIR",
        )
    return unexpected(error)


def no_document(id_: str, collection: str) -> Problem:
    return Problem(404, f"there is no document {id_!r} in the collection {collection!r}.")


def unexpected(error: BaseException) -> Problem:
    """Log an unexpected error with its stack trace. Return a problem with a reference to the log entry."""
    reference = secrets.token_hex(4)
    log.error("unexpected error, reference %s: %s", reference, first_line(error), exc_info=error)
    return Problem(500, f"the server failed; the request is not at fault. Reference in the server's log: {reference}.")


def invalid(errors: Sequence[Any]) -> Problem:
    """Return the problem of a request that does not fit its model. `errors` are those of pydantic."""
    more = f" They are the first {MOST_LISTED} of {len(errors):,}." if len(errors) > MOST_LISTED else ""
    return Problem(422, INVALID + more, [_field_problem(one) for one in errors[:MOST_LISTED]])


def add_handlers(app: FastAPI) -> None:
    """Make the application answer every error of its routes with problem details."""

    async def on_validation_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return invalid(error.errors()).response(request.url.path)

    async def on_http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, StarletteHTTPException)
        if isinstance(error, Problem):
            return error.response(request.url.path)
        detail = {
            400: "the body is not valid JSON in UTF-8.",
            404: f"there is nothing at {request.url.path}.",
            405: f"{request.url.path} does not support {request.method}.",
        }.get(error.status_code, error.detail)
        headers = dict(error.headers or {})
        if error.status_code == 405:  # the router lists only the methods of the first route of a path
            methods = app.openapi()["paths"].get(getattr(request.scope.get("route"), "path_format", None), ())
            headers |= {"Allow": ", ".join(method.upper() for method in methods)} if methods else {}
        return Problem(error.status_code, detail, (), headers).response(request.url.path)

    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(StarletteHTTPException, on_http_error)


def _field_problem(error: Mapping[str, Any]) -> tuple[str, str]:
    place, *inside = error["loc"]
    field = ".".join(str(part) for part in inside) or str(place)
    if error["type"] == "json_invalid":
        return "body", f"is not JSON: {error['ctx']['error']}"
    return field, str(error["msg"]).removeprefix("Value error, ")
