"""Errors as clients get them: problem details (RFC 9457) that say what is wrong and where, and never a stack trace."""

import logging
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retriever.errors import BadFilter, Locked, Misuse, NoSuchDocument, RetrieverError, first_line
from retriever.serve.settings import RETRY_AFTER_SECONDS

MEDIA_TYPE = "application/problem+json"

log = logging.getLogger("retriever.serve")


class FieldProblem(BaseModel):
    """What is wrong with one field of a request."""

    model_config = ConfigDict(extra="forbid")

    field: str
    reason: str


class ProblemDetails(BaseModel):
    """An error: its status, what is wrong, and which fields of the request are at fault."""

    model_config = ConfigDict(extra="forbid")

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem]


class Problem(HTTPException):
    """An error to be told to the client as it stands."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        busy = status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
        later = {"Retry-After": str(RETRY_AFTER_SECONDS)} if busy else {}
        super().__init__(status, detail, {**later, **(headers or {})})
        self.errors = errors

    def response(self) -> JSONResponse:
        return JSONResponse(self.to_json(), self.status_code, self.headers, MEDIA_TYPE)

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status_code).phrase,
            "status": self.status_code,
            "detail": _text(self.detail),
            "errors": [{"field": _text(field), "reason": _text(reason)} for field, reason in self.errors],
        }


def _text(given: str) -> str:
    """What a message quotes may be no text: JSON can spell half of a character."""
    return given.encode("utf-8", "replace").decode()


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route's OpenAPI says of the problems it may answer with."""
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
        for status in statuses
    }


def problem_of(error: Exception, collection: str) -> Problem:
    """What an error of a collection is to the client who asked for it."""
    if isinstance(error, NoSuchDocument):
        return Problem(404, f"there is no document {error.id!r} in the collection {collection!r}.")
    if isinstance(error, BadFilter):
        field = "where" if error.place is None else f"where.{error.place}"
        return Problem(422, "a filter cannot be used.", [(field, str(error))])
    if type(error) is Misuse:
        return Problem(422, str(error))
    if isinstance(error, Locked):
        return Problem(503, f"another process is writing to the collection {collection!r}; try again when it is done.")
    log.error("the collection %s: %s", collection, error)
    if isinstance(error, RetrieverError | sqlite3.Error):  # the log has all of it, paths of this machine included
        return Problem(
            503,
            f"the collection {collection!r} cannot be used ({type(error).__name__}); the server's log says why. Where "
            "it lies, look with: retriever verify --index DIR",
        )
    return unexpected(error)


def unexpected(error: BaseException) -> Problem:
    """An error nobody foresaw: the log gets all of it, the client a reference to find it there."""
    reference = secrets.token_hex(4)
    log.error("unexpected, reference %s: %s", reference, first_line(error), exc_info=error)
    return Problem(500, f"something went wrong here, and not with the request; the server's log has it as {reference}.")


class Telling:
    """Answers with the problems that are raised behind it, and with a reference for what nobody foresaw."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def send_seen(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_seen)
        except Exception as error:
            problem = error if isinstance(error, Problem) else unexpected(error)
            if begun or scope["type"] != "http":
                raise  # too late for another answer: the connection is cut, and the client sees that it is
            await problem.response()(scope, receive, send)


def add_handlers(app: FastAPI) -> None:
    """Have every error of the application's routes answered as problem details."""

    async def of_validation(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        errors = [_field_problem(one) for one in error.errors()]
        return Problem(422, "the request is not as it must be; errors says where.", errors).response()

    async def of_status(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, StarletteHTTPException)
        if isinstance(error, Problem):
            return error.response()
        detail = {
            400: "the body cannot be read as JSON in UTF-8.",
            404: f"there is nothing at {request.url.path}.",
            405: f"{request.method} is not for {request.url.path}.",
        }.get(error.status_code, error.detail)
        headers = dict(error.headers or {})
        if error.status_code == 405:  # the router knows only the first route of a path
            methods = app.openapi()["paths"].get(getattr(request.scope.get("route"), "path_format", None), ())
            headers |= {"Allow": ", ".join(method.upper() for method in methods)} if methods else {}
        return Problem(error.status_code, detail, (), headers).response()

    app.add_exception_handler(RequestValidationError, of_validation)
    app.add_exception_handler(StarletteHTTPException, of_status)


def _field_problem(error: Mapping[str, Any]) -> tuple[str, str]:
    place, *inside = error["loc"]
    field = ".".join(str(part) for part in inside) or str(place)
    if error["type"] == "json_invalid":
        return "body", f"is no JSON: {error['ctx']['error']}"
    return field, str(error["msg"])
