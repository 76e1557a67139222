"""The server's log on standard error: one JSON object per line, for every request too if the level is `info`.

The text of a query is logged only if the user asked for it. A thread writes the lines, because a pipe that nobody reads
would block the server.
"""

import contextlib
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retriever.serve.monitoring import CLIENT_CLOSED_REQUEST

COLLECTION = "logged_collection"
QUERIES = "logged_queries"
"""The names under which a route tells the collection and the queries of its request."""
FREQUENT = ("/health", "/ready", "/metrics")
"""Paths that monitoring asks all the time. Their requests have the level `debug`."""

MOST_WAITING = 10_000
"""Maximum number of lines that wait to be written."""
SECONDS_TO_WRITE = 1.0
"""Time for writing the last lines when the server ends."""

log = logging.getLogger("retriever.serve")
requests = logging.getLogger("retriever.serve.requests")


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        now = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts = {"time": now, "level": record.levelname.lower(), "message": record.getMessage()}
        facts |= getattr(record, "facts", {})
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return json.dumps(facts, ensure_ascii=False)


class Lines(logging.Handler):
    """Gives the lines to a thread that writes them to standard error. Lines that find the queue full are counted.

    The thread uses no stream of Python's, because these have locks that block the end of the process too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self._lines: queue.Queue[str] = queue.Queue(MOST_WAITING)
        self._lost = 0
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._lost += 1
        except Exception:
            self.handleError(record)

    def _write(self) -> None:
        while True:
            _write_line(self._lines.get())
            if lost := self._lost:
                self._lost -= lost
                told = f"{lost:,} lines of the log were lost, because nobody read them"
                _write_line(self.format(log.makeRecord(log.name, logging.WARNING, "", 0, told, (), None)))
            self._lines.task_done()

    def flush_for(self, seconds: float) -> None:
        """Wait until all lines are written, but not longer than this."""
        end = time.monotonic() + seconds
        while self._lines.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.01)


def _write_line(line: str) -> None:
    rest = f"{line}\n".encode(errors="backslashreplace")
    with contextlib.suppress(OSError):  # the reader of the pipe has ended
        while rest:
            rest = rest[os.write(2, rest) :]


@contextlib.contextmanager
def written(level: str) -> Iterator[None]:
    """Write the records of this package from this level on to standard error."""
    handler = Lines()
    package = logging.getLogger("retriever")
    package.handlers, package.propagate = [handler], False
    package.setLevel(level.upper())
    try:
        yield
    finally:
        handler.flush_for(SECONDS_TO_WRITE)


class RequestLog:
    """Middleware that logs every request when it has ended."""

    def __init__(self, app: ASGIApp, queries: bool) -> None:
        self._app = app
        self._queries = queries

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        level = logging.DEBUG if scope.get("path") in FREQUENT else logging.INFO
        if scope["type"] != "http" or not requests.isEnabledFor(level):
            await self._app(scope, receive, send)
            return
        status, sent, began = CLIENT_CLOSED_REQUEST, 0, time.perf_counter()

        async def observed_send(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, observed_send)
        finally:
            facts = {
                "client": scope["client"][0] if scope.get("client") else None,
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "bytes": sent,
                "ms": round((time.perf_counter() - began) * 1000, 3),
            }
            if COLLECTION in scope:
                facts["collection"] = scope[COLLECTION]
            if self._queries and QUERIES in scope:
                facts["queries"] = scope[QUERIES]
            requests.log(level, "request", extra={"facts": facts})
