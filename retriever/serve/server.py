"""Runs the application: takes the port, tells what is served, and ends when it is asked to, after what is under way."""

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from retriever.errors import Misuse, RetrieverError
from retriever.progress import Progress, silent
from retriever.serve.app import create_app
from retriever.serve.connections import LimitedHeads
from retriever.serve.places import ServedCollections
from retriever.serve.settings import Settings

SECONDS_TO_FINISH = 30
SECONDS_IDLE = 30


class Server(uvicorn.Server):
    """Runs the application until a signal asks it to end, and then ends as one that was asked to."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=LimitedHeads,
                proxy_headers=False,  # or any client on this machine could say that it is another
                log_level="error",
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="on",
                timeout_keep_alive=SECONDS_IDLE,
                timeout_graceful_shutdown=SECONDS_TO_FINISH,
            )
        )
        self._drain = app.state.readiness.drain

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; not the main thread
                loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._drain()
        super().handle_exit(sig, frame)


def serve(
    folders: Sequence[Path],
    settings: Settings,
    *,
    ready: Callable[[str, ServedCollections], None] = lambda url, collections: None,
    progress: Progress = silent,
) -> None:
    """Serve collections until a signal comes. `ready` is told the address once everything is loaded."""
    if not settings.loopback and not settings.token:
        raise Misuse(
            f"{settings.host} can be reached by other machines, which could then read every document: give --token "
            "or set RETRIEVER_TOKEN, or serve on 127.0.0.1."
        )
    collections = ServedCollections.open(folders, encoder=settings.encoder, device=settings.device, progress=progress)
    try:
        listening = listening_socket(settings.host, settings.port)
    except BaseException:
        collections.close()
        raise
    failure: Exception | None = None

    def loaded(error: Exception | None) -> None:
        nonlocal failure
        failure = error
        if error:
            server.should_exit = True
        else:
            ready(url_of(listening), collections)

    server = Server(create_app(collections, settings, loaded))
    with listening:
        server.run(sockets=[listening])
    if failure:
        raise failure


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes one that is free."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(2048)
        except BaseException:
            listening.close()
            raise
        return listening
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise RetrieverError(f"port {port} of {host} is taken; give another --port.") from None
        if error.errno == errno.EACCES:
            raise RetrieverError(f"port {port} is not for this account; take one above 1023 with --port.") from None
        raise RetrieverError(f"cannot listen on {host}: {error.strerror or error}.") from None


def url_of(listening: socket.socket) -> str:
    """Where a browser on this machine finds it."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
