"""Large bodies: documents to add, and texts to embed. They are checked, parsed and validated in a thread."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import ValidationError

from retriever.corpus.readers.lines import MOST_PARTS, too_many_parts
from retriever.serve import settings as limits
from retriever.serve.collections import HELD
from retriever.serve.problems import Problem, invalid


class LargeBodiesRoute(APIRoute):
    """A route that reads its requests as `LargeBodyRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        assert self.body_field
        model = self.body_field.field_info.annotation

        async def answer_large(request: Request) -> Response:
            return await answer(LargeBodyRequest(request, model))

        return answer_large


class LargeBodyRequest(Request):
    """A request whose body may be large. The body counts towards the limit for large bodies until the request ends."""

    def __init__(self, request: Request, model: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._model = model

    async def json(self) -> Any:
        """Return the value of a small body, or the model of a large one. FastAPI accepts both."""
        body = await self.body()
        if len(body) <= limits.SMALL_BODY:
            return _parsed(body)
        # Each path has its own semaphore, so that texts to embed do not wait while documents are stored.
        places = self.app.state.large_bodies.setdefault(self.scope["path"], asyncio.Semaphore(limits.MOST_LARGE_BODIES))
        await places.acquire()
        self.scope[HELD].callback(places.release)
        return await asyncio.to_thread(self._validated, body)

    def _validated(self, body: bytes) -> Any:
        try:
            return self._model.model_validate(_parsed(body), from_attributes=True)  # as FastAPI does
        except ValidationError as error:
            raise invalid([{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]) from None


def _parsed(body: bytes) -> Any:
    """Parse a body, with the limits of a line of a JSONL file."""
    if too_many_parts(body):
        raise Problem(
            413,
            f"the body has more than {MOST_PARTS:,} strings, commas and brackets; send fewer at a time.",
        )
    try:
        return json.loads(body.decode())  # the parts of another encoding than UTF-8 were not counted rightly
    except RecursionError:
        raise Problem(422, "the body is nested too deeply.") from None
