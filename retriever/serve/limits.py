"""Keeps the server answering: how large a body may be and how slow, how many requests may be under way, and when none
may begin."""

import asyncio
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retriever.serve import settings
from retriever.serve.problems import Problem


class Readiness:
    """Whether the server answers, and if not why."""

    def __init__(self) -> None:
        self.waiting_for: str | None = "the collections are being loaded"
        self.draining = False

    def begin(self) -> None:
        self.waiting_for = None

    def drain(self) -> None:
        self.draining = True
        self.waiting_for = "the server is shutting down"


class Limits:
    """Answers 503 while nothing is ready or too much is under way, 429 to one client with too much, 413 to too large
    a body, however it is sent, 408 to one that does not come. The page and what tells how the server is are always
    answered."""

    def __init__(self, app: ASGIApp, readiness: Readiness) -> None:
        self._app = app
        self._readiness = readiness
        self._under_way = 0
        self._of_clients: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        client = scope["client"][0] if scope.get("client") else ""
        self._check(scope, client)
        self._under_way += 1
        self._of_clients[client] += 1
        try:
            await self._app(scope, _limited(receive, _largest_body(scope)), send)
        finally:
            self._under_way -= 1
            self._of_clients[client] -= 1
            if not self._of_clients[client]:
                del self._of_clients[client]

    def _check(self, scope: Scope, client: str) -> None:
        if self._readiness.waiting_for:
            raise Problem(503, f"{self._readiness.waiting_for}; try again in a moment.")
        if self._under_way >= settings.MOST_UNDER_WAY:
            raise Problem(503, f"{self._under_way} requests are under way, which is the most; try again in a moment.")
        if self._of_clients[client] >= settings.MOST_OF_ONE_CLIENT:
            raise Problem(429, f"{settings.MOST_OF_ONE_CLIENT} requests of this client are under way; wait for one.")
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > _largest_body(scope):
            raise _too_large(_largest_body(scope))


def _largest_body(scope: Scope) -> int:
    adding = scope["path"] == "/v1/documents"
    return settings.LARGEST_DOCUMENTS_BODY if adding else settings.LARGEST_BODY


def _too_large(most: int) -> Problem:
    return Problem(413, f"the body may have {most:,} bytes and has more.")


def _limited(receive: Receive, most: int) -> Receive:
    """The same body, refused when more of it has come than may, or less than should."""
    received, whole = 0, False
    began = asyncio.get_running_loop().time()

    async def receive_some() -> Message:
        nonlocal received, whole
        if whole:  # what comes now is that the client has gone
            return await receive()
        # A part from time to time gains no more time than its bytes take to come.
        until = began + settings.SECONDS_FOR_BODY + received / settings.SLOWEST_BODY
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            raise Problem(408, "the body did not come in time.", headers={"Connection": "close"}) from None
        received += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if received > most:
            raise _too_large(most)
        return message

    return receive_some
