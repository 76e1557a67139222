"""Errors as clients get them: problem details (RFC 9457) that say what is wrong and where, and never a stack trace."""

import logging
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from retriever.errors import BadFilter, Locked, Misuse, NoSuchDocument, RetrieverError, first_line
from retriever.serving.settings import RETRY_AFTER_SECONDS

MEDIA_TYPE = "application/problem+json"

log = logging.getLogger("retriever.serving")


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


class Problem(Exception):
    """An error to be told to the client as it stands."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors
        self.headers = dict(headers or {})
        if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            self.headers.setdefault("Retry-After", str(RETRY_AFTER_SECONDS))

    def response(self) -> JSONResponse:
        return JSONResponse(self.to_json(), self.status, self.headers, MEDIA_TYPE)

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "errors": [{"field": field, "reason": reason} for field, reason in self.errors],
        }


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
        return Problem(422, "a filter cannot be used.", [("where", str(error))])
    if isinstance(error, Misuse) and type(error) is Misuse:
        return Problem(422, str(error))
    if isinstance(error, Locked):
        return Problem(503, f"another process is writing to the collection {collection!r}; try again when it is done.")
    log.error("the collection %s: %s", collection, error)
    if isinstance(error, RetrieverError | sqlite3.Error):
        return Problem(
            503,
            f"the collection {collection!r} cannot be used: {_without_paths(error)} Where it lies, look with: "
            "retriever verify --index DIR",
        )
    return unexpected(error)


def _without_paths(error: Exception) -> str:
    """Who asks learns that something is wrong, and not where it lies; the log has all of it."""
    return f"it failed with {type(error).__name__}."


def unexpected(error: BaseException) -> Problem:
    """An error nobody foresaw: the log gets all of it, the client a reference to find it there."""
    reference = secrets.token_hex(4)
    log.error("unexpected, reference %s: %s", reference, first_line(error), exc_info=error)
    return Problem(500, f"something went wrong here, and not with the request; the server's log has it as {reference}.")


def add_handlers(app: FastAPI) -> None:
    """Have every error of the application answered as problem details."""

    async def of_problem(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Problem)
        return error.response()

    async def of_validation(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        errors = [_field_problem(one) for one in error.errors()]
        return Problem(422, "the request is not as it must be; errors says where.", errors).response()

    async def of_status(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        detail = {404: f"there is nothing at {request.url.path}.", 405: f"{request.method} is not for this path."}
        return Problem(error.status_code, detail.get(error.status_code, error.detail), (), error.headers).response()

    app.add_exception_handler(Problem, of_problem)
    app.add_exception_handler(RequestValidationError, of_validation)
    app.add_exception_handler(HTTPException, of_status)


def _field_problem(error: Mapping[str, Any]) -> tuple[str, str]:
    place, *inside = error["loc"]
    field = ".".join(str(part) for part in inside) or str(place)
    if error["type"] == "json_invalid":
        return "body", f"is no JSON: {error['ctx']['error']}"
    return field, str(error["msg"])
