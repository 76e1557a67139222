"""Runs the application: opens the port, prints what is served, and shuts down after the running requests."""

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import click
import uvicorn
from fastapi import FastAPI

from retriever.card.wording import plural
from retriever.errors import Misuse, RetrieverError
from retriever.progress import Progress, silent
from retriever.serve.app import create_app
from retriever.serve.collections import ServedCollections
from retriever.serve.limits import LimitedHttpProtocol
from retriever.serve.settings import Settings
from retriever.terminal import one_line

SECONDS_TO_FINISH = 30
SECONDS_IDLE = 30


class Server(uvicorn.Server):
    """Runs the application until a signal ends it. Such an end is no error."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=LimitedHttpProtocol,
                proxy_headers=False,  # otherwise any client on this machine could claim another address
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
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; not the main thread
                loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._drain()
        super().handle_exit(sig, frame)


def serve(folders: Sequence[Path], settings: Settings, *, progress: Progress = silent) -> None:
    """Serve collections until a signal arrives; prints the address once everything is loaded."""
    if not settings.loopback and not settings.token:
        raise Misuse(
            f"other machines can reach {settings.host} and could read every document: set `token`, or serve on "
            "127.0.0.1."
        )
    collections = ServedCollections(folders, encoder=settings.encoder, device=settings.device, progress=progress)
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
    with listening:
        server.run(sockets=[listening])
    if failure:
        raise failure


def _greet(url: str, collections: ServedCollections, settings: Settings) -> None:
    """Print what is served, where, and who can reach it."""
    for folder in collections:
        facts = folder.served.facts
        held = f"{plural(facts.documents, 'document')} in {plural(facts.passages, 'passage')}"
        click.echo(f"{one_line(folder.name)}  {held}, {one_line(facts.encoder)}, {one_line(facts.transform)}")
    if settings.writable:
        click.echo("Clients may add and delete documents.")
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
    """Open a socket that listens on this address; port 0 means any free port."""
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
            raise RetrieverError(f"port {port} of {host} is in use; choose another `port`.") from None
        if error.errno == errno.EACCES:
            raise RetrieverError(f"you may not use port {port}; choose a `port` above 1023.") from None
        raise RetrieverError(f"cannot listen on {host}: {error.strerror or error}.") from None


def url_of(listening: socket.socket) -> str:
    """Return the URL for a browser on this machine."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
