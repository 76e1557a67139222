"""The server process: it opens the port, limits connections, and finishes running requests before it shuts down."""

import asyncio
import contextlib
import errno
import json
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from retriever.errors import Misuse, RetrieverError
from retriever.progress import Progress, silent
from retriever.serve import logs
from retriever.serve import settings as limits
from retriever.serve.app import SHUTTING_DOWN, create_app
from retriever.serve.collections import ServedCollections
from retriever.serve.problems import MEDIA_TYPE, Problem
from retriever.serve.settings import Settings
from retriever.terminal import one_line, plural

SECONDS_IDLE = 30


class LimitedHttpProtocol(HttpToolsProtocol):
    """The HTTP protocol with limits. A connection is closed if a request head is too large or arrives too slowly.

    A trailer after a body has the same limit on its size. The parser buffers a header until it is complete, and copies
    the buffer with every part that arrives. Without a limit, an endless header would use all of the server's time
    before the token is checked.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._pending = 0
        """Bytes received since the last complete head, part of a body, or end of a request."""
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            part = data[: limits.LARGEST_HEAD - self._pending]
            data = data[len(part) :]
            self._pending += len(part)
            super().data_received(part)
            if self._pending >= limits.LARGEST_HEAD:
                self._refuse(Problem(431, f"the head of a request may have at most {limits.LARGEST_HEAD:,} bytes."))

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
        self._head_timer = self.loop.call_later(limits.SECONDS_FOR_HEAD, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_timeout(self) -> None:
        if self._answering:  # while a request is answered, reading may be paused
            self._start_timer()
        elif self.headers is None:  # nothing was sent: browsers open connections before they need them
            self.transport.close()
        else:
            seconds = limits.SECONDS_FOR_HEAD
            self._refuse(Problem(408, f"the head of a request must arrive within {seconds:g} seconds."))

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        if not self._answering:  # otherwise the application sends the response
            content = problem.to_json()
            body = json.dumps(content).encode()
            head = f"HTTP/1.1 {content['status']} {content['title']}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()


class Server(uvicorn.Server):
    """A server that runs the application until SIGINT or SIGTERM. It then ends without an error.

    The running requests have `SECONDS_TO_FINISH`. At the latest `SECONDS_TO_CLOSE` after that, or at a second signal,
    the process ends, whatever its threads do. What was acknowledged is stored, because a collection survives that.
    """

    def __init__(self, app: FastAPI) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=LimitedHttpProtocol,
                proxy_headers=False,  # any client on this machine could pretend to have another address
                log_level="error",
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="on",
                timeout_keep_alive=SECONDS_IDLE,
                timeout_graceful_shutdown=limits.SECONDS_TO_FINISH,
            )
        )
        self._state = app.state

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; not the main thread
                loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            _end("A second signal arrived", 128 + sig)
        self._state.unready = SHUTTING_DOWN
        seconds = limits.SECONDS_TO_FINISH + limits.SECONDS_TO_CLOSE
        last = threading.Timer(seconds, _end, [f"After {seconds:g} seconds, some work is still running", 0])
        last.daemon = True
        last.start()
        super().handle_exit(sig, frame)


def _end(reason: str, code: int) -> None:
    """End the process without waiting for its threads."""
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [2], [], 0)[1]:  # a pipe that nobody reads would block
            os.write(2, f"{reason}: ending now. What was stored is kept.\n".encode())
    os._exit(code)


def serve(
    folders: Sequence[Path], settings: Settings, *, parents: Sequence[Path] = (), progress: Progress = silent
) -> None:
    """Serve collections until a signal arrives. Print the address when all collections are loaded.

    Collections that are put into the folders `parents` later are served too.
    """
    if not settings.loopback and not settings.token:
        raise Misuse(
            f"other machines can reach {settings.host} and could read every document: set `token`, or serve on "
            "127.0.0.1."
        )
    collections = ServedCollections(
        folders, parents, encoder=settings.encoder, device=settings.device, progress=progress
    )
    try:
        listening = listening_socket(settings.host, settings.port)
    except BaseException:
        collections.close()
        raise
    failure: Exception | None = None

    def on_loaded(error: Exception | None) -> None:
        nonlocal failure
        failure = error
        if error:
            server.should_exit = True
        else:
            _greet(url_of(listening), collections, settings)

    server = Server(create_app(collections, settings, on_loaded))
    with logs.written(settings.log_level), listening:
        server.run(sockets=[listening])
    if failure:
        raise failure


def _greet(url: str, collections: ServedCollections, settings: Settings) -> None:
    """Print the collections, the address, and a warning if other machines can reach the server."""
    for parent in collections.parents if not list(collections) else ():
        where = one_line(str(parent))
        click.echo(f"There is no collection in {where} yet. Make one with: retriever index SOURCE -i {where}/NAME")
    for folder in collections:
        facts = folder.served.summary
        held = f"{plural(facts.documents, 'document')} in {plural(facts.passages, 'passage')}"
        click.echo(f"{one_line(folder.name)}  {held}, {one_line(facts.encoder)}, {one_line(facts.transform)}")
    if settings.writable:
        click.echo("Clients may add and delete documents (--writable).")
    if not settings.loopback:
        click.secho(
            f"Warning: other machines can reach {one_line(settings.host)}. Anyone with the token can read every "
            f"document{' and change it' if settings.writable else ''}. The connection is not encrypted, so others can "
            "intercept the token: put a proxy with TLS in front.",
            fg="yellow",
            err=True,
        )
    for origin in settings.origins:
        click.echo(f"Pages of {one_line(origin)} may use the API.")
    click.secho(f"Serving at {url} (stop with Ctrl-C)", bold=True)


def listening_socket(host: str, port: int) -> socket.socket:
    """Open a socket that listens on this address. With port 0, the system chooses a free port."""
    bare = host.strip("[]")
    try:
        family = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server((bare, port), family=family, backlog=2048, dualstack_ipv6=both)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise RetrieverError(f"port {port} of {host} is in use; choose another `port`.") from None
        if error.errno == errno.EACCES:
            raise RetrieverError(f"you may not use port {port}; choose a `port` above 1023.") from None
        raise RetrieverError(f"cannot listen on {host}: {error.strerror or error}.") from None


def url_of(listening: socket.socket) -> str:
    """Return the URL for a browser on this machine."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
