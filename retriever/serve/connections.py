"""What a client may send before it has asked for anything: a head of some size, within some time.

The parser keeps what it has of a header until it is whole and copies it with every part that comes, so an endless one
would take the whole server's time, and no token is asked for until it ends.
"""

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from retriever.serve import settings
from retriever.serve.problems import MEDIA_TYPE, Problem


class LimitedHeads(HttpToolsProtocol):
    """A connection that is closed when a head, or the lines after a body, are too large, or a head comes too slowly."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._without_progress = 0
        """Bytes since the last head, part of a body or end of a request."""
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            part = data[: settings.LARGEST_HEAD - self._without_progress]
            data = data[len(part) :]
            self._without_progress += len(part)
            super().data_received(part)
            if self._without_progress >= settings.LARGEST_HEAD:
                self._refuse(Problem(431, f"the head of a request may have {settings.LARGEST_HEAD:,} bytes."))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._without_progress = 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._without_progress = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._without_progress = 0
        super().on_message_complete()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        self._late = self.loop.call_later(settings.SECONDS_FOR_HEAD, self._head_is_late)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _head_is_late(self) -> None:
        if self._answering:  # the request before it is under way, and what comes after may not be read meanwhile
            self._wait_for_head()
        elif self.headers is None:  # nothing was asked: browsers connect before they need to
            self.transport.close()
        else:
            self._refuse(Problem(408, f"the head of a request must come within {settings.SECONDS_FOR_HEAD:g} seconds."))

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        if not self._answering:  # else the answer has begun, or is for another to give
            content = problem.to_json()
            body = json.dumps(content).encode()
            head = f"HTTP/1.1 {content['status']} {content['title']}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()
