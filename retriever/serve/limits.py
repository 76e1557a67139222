"""Limits that keep the server responsive: size and speed of request heads and bodies, number of concurrent requests."""

import asyncio
import json
from collections import Counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from retriever.serve import settings
from retriever.serve.problems import MEDIA_TYPE, Problem


class Readiness:
    """Whether requests are answered: not while collections are loading, nor during shutdown."""

    def __init__(self) -> None:
        self.not_ready_because: str | None = "the collections are being loaded"
        self.draining = False

    def begin(self) -> None:
        self.not_ready_because = None

    def drain(self) -> None:
        self.draining = True
        self.not_ready_because = "the server is shutting down"


class RequestLimits:
    """Middleware for the API. The page, health and metrics have no limits.

    Answers 503 while the server is not ready or has too many requests, 429 to a client with too many, 413 to a body
    that is too large, however it is sent, and 408 to a body that arrives too slowly.
    """

    def __init__(self, app: ASGIApp, readiness: Readiness) -> None:
        self._app = app
        self._readiness = readiness
        self._per_client: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        client = scope["client"][0] if scope.get("client") else ""
        adding = scope["path"] == "/v1/documents"
        largest = settings.LARGEST_DOCUMENTS_BODY if adding else settings.LARGEST_BODY
        self._check(scope, client, largest)
        self._per_client[client] += 1
        try:
            await self._app(scope, _limited(receive, largest), send)
        finally:
            self._per_client[client] -= 1
            if not self._per_client[client]:
                del self._per_client[client]

    def _check(self, scope: Scope, client: str, largest: int) -> None:
        if self._readiness.not_ready_because:
            raise Problem(503, f"{self._readiness.not_ready_because}; try again in a moment.")
        if self._per_client.total() >= settings.MOST_REQUESTS:
            raise Problem(503, f"the server answers {settings.MOST_REQUESTS} requests at once; try again in a moment.")
        if self._per_client[client] >= settings.MOST_REQUESTS_PER_CLIENT:
            raise Problem(
                429, f"a client may have {settings.MOST_REQUESTS_PER_CLIENT} requests at once; wait for one to finish."
            )
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > largest:
            raise _too_large(largest)


def _too_large(largest: int) -> Problem:
    return Problem(413, f"the body is larger than {largest:,} bytes.")


def _limited(receive: Receive, largest: int) -> Receive:
    """Wrap `receive` so that it raises a problem if the body is too large or arrives too slowly."""
    received, complete = 0, False
    began = asyncio.get_running_loop().time()

    async def limited_receive() -> Message:
        nonlocal received, complete
        if complete:  # the next message says that the client has disconnected
            return await receive()
        # The deadline moves by the bytes received, so sending a byte from time to time does not extend it.
        deadline = began + settings.SECONDS_FOR_BODY + received / settings.SLOWEST_BODY
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise Problem(408, "the body did not arrive in time.", headers={"Connection": "close"}) from None
        received += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        if received > largest:
            raise _too_large(largest)
        return message

    return limited_receive


class LimitedHttpProtocol(HttpToolsProtocol):
    """Closes a connection whose request head, or trailer after a body, is too large, or whose head comes too slowly.

    The parser buffers a header until it is complete and copies it with every part that arrives. An endless header
    would therefore use all of the server's time, before any token is checked.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._pending = 0
        """Bytes since the last complete head, part of a body or end of a request."""
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            part = data[: settings.LARGEST_HEAD - self._pending]
            data = data[len(part) :]
            self._pending += len(part)
            super().data_received(part)
            if self._pending >= settings.LARGEST_HEAD:
                self._refuse(Problem(431, f"the head of a request may have {settings.LARGEST_HEAD:,} bytes."))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start_timer()

    def on_headers_complete(self) -> None:
        self._pending = 0
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._pending = 0
        super().on_message_complete()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_timer(self) -> None:
        self._stop_timer()
        self._head_timer = self.loop.call_later(settings.SECONDS_FOR_HEAD, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_timeout(self) -> None:
        if self._answering:  # the previous request is being answered, and reading may be paused meanwhile
            self._start_timer()
        elif self.headers is None:  # nothing was sent: browsers open connections before they need them
            self.transport.close()
        else:
            seconds = settings.SECONDS_FOR_HEAD
            self._refuse(Problem(408, f"the head of a request must arrive within {seconds:g} seconds."))

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        if not self._answering:  # otherwise a response has begun or will be sent by the application
            content = problem.to_json()
            body = json.dumps(content).encode()
            head = f"HTTP/1.1 {content['status']} {content['title']}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()
