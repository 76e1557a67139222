"""Middleware that checks requests before their route runs, and adds headers to responses.

Any web page that is open in a browser on this machine can send requests to a server on loopback. Without CORS, pages of
other sites cannot read the responses. Three checks close the remaining gaps:
- With DNS rebinding, a page of another site could count as same-origin. A loopback server therefore refuses Host
  headers that name another host.
- A page can send requests even if it cannot read the responses. API requests from pages of other sites are therefore
  refused. Following a link is allowed.
- A form on another site can send some content types without a preflight request. A body must therefore be JSON.
"""

import asyncio
import contextlib
import hmac
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextlib import ExitStack
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retriever.serve import settings as limits
from retriever.serve.collections import HELD
from retriever.serve.problems import Problem, unexpected
from retriever.serve.settings import Settings, is_loopback

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
JSON = "application/json"
LARGEST_BODIES = {"/v1/documents": limits.LARGEST_DOCUMENTS_BODY, "/v1/embeddings": limits.LARGEST_EMBEDDINGS_BODY}
"""The maximum sizes of bodies that may be larger than others."""


class SecurityHeaders:
    """Middleware that adds HEADERS to every response, except those that the response already has."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class Gate:
    """Middleware that checks and counts requests. It also sends the problems that routes raise to the client.

    Only the API has limits. The page, health and metrics have none. The statuses are:
    - 503 if the server is not ready, or has too many requests,
    - 429 if the client has too many requests,
    - 413 if the body is too large, with or without a Content-Length header,
    - 408 if the body arrives too slowly.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._per_client: Counter[str] = Counter()
        self._held = HeldBytes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False
        counted = ExitStack()

        async def observed_send(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                counted.close()  # before the client can send its next request
            await send(message)

        try:
            headers = Headers(scope=scope)
            check_access(self._settings, scope["method"], scope["path"], headers)
            with ExitStack() as scope[HELD]:
                if scope["path"].startswith("/v1/"):
                    scope[HELD].callback(counted.close)
                    incoming = self._admit(scope, headers, receive, counted, scope[HELD])
                    await _until_gone(self._app(scope, incoming.receive, observed_send), incoming)
                else:
                    await self._app(scope, receive, observed_send)
        except asyncio.CancelledError:  # the server stops, and does not wait any longer
            if not started:
                await Problem(503, "the server is shutting down.").response(scope["path"])(scope, receive, send)
        except Exception as error:
            problem = error if isinstance(error, Problem) else unexpected(error)
            if started:
                raise  # the response has begun: the server closes the connection, so that the client notices
            await problem.response(scope["path"])(scope, receive, send)

    def _admit(
        self, scope: Scope, headers: Headers, receive: Receive, counted: ExitStack, until: ExitStack
    ) -> "Incoming":
        """Count an API request until the stack `counted` is closed, and its body until the stack `until` is closed.

        Return its messages, with limits on the body.
        """
        client = scope["client"][0] if scope.get("client") else ""
        if unready := scope["app"].state.unready:
            raise Problem(503, f"{unready}; try again in a moment.")
        if self._per_client.total() >= limits.MOST_REQUESTS:
            raise Problem(
                503, f"the server is busy with {limits.MOST_REQUESTS} requests, its maximum; try again in a moment."
            )
        if self._per_client[client] >= limits.MOST_REQUESTS_PER_CLIENT:
            raise Problem(
                429,
                f"the client already has {limits.MOST_REQUESTS_PER_CLIENT} requests; wait for one to finish.",
            )
        largest = LARGEST_BODIES.get(scope["path"], limits.LARGEST_BODY)
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > largest:
            raise _too_large(largest)
        self._per_client[client] += 1
        counted.callback(self._forget, client)
        incoming = Incoming(receive, largest, self._held)
        until.callback(incoming.release)
        return incoming

    def _forget(self, client: str) -> None:
        self._per_client[client] -= 1
        if not self._per_client[client]:
            del self._per_client[client]


def _too_large(largest: int) -> Problem:
    return Problem(413, f"the body is larger than {largest:,} bytes.")


class HeldBytes:
    """The number of bytes of all bodies that the server holds."""

    total = 0


class Incoming:
    """The messages that a client sends: the body of a request, and then that the client has gone."""

    def __init__(self, receive: Receive, largest: int, held: HeldBytes) -> None:
        self._receive = receive
        self._largest = largest
        self._held = held
        self._received = 0
        self._began = asyncio.get_running_loop().time()
        self._complete = asyncio.Event()
        self._gone = asyncio.Event()

    async def receive(self) -> Message:
        """Return the next message. Raise a problem if the body is too large or arrives too slowly."""
        if self._complete.is_set():
            await self._gone.wait()
            return {"type": "http.disconnect"}
        # A received byte extends the deadline only a little, so a client cannot hold a connection with single bytes.
        deadline = self._began + limits.SECONDS_FOR_BODY + self._received / limits.SLOWEST_BODY
        try:
            async with asyncio.timeout_at(deadline):
                message = await self._receive()
        except TimeoutError:
            raise Problem(408, "the body did not arrive in time.", headers={"Connection": "close"}) from None
        self._received += len(message.get("body", b""))
        self._held.total += len(message.get("body", b""))
        if not message.get("more_body", False):
            self._complete.set()
        if self._received > self._largest:
            raise _too_large(self._largest)
        if self._held.total > limits.MOST_BODY_BYTES:
            raise Problem(
                503, "the server is busy with large bodies; try again in a moment.", headers={"Connection": "close"}
            )
        return message

    def release(self) -> None:
        """Stop counting the bytes of this body. Its request has ended."""
        self._held.total -= self._received

    async def gone(self) -> None:
        """Wait until the client has closed the connection after its body."""
        await self._complete.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set()


async def _until_gone(answering: Awaitable[None], incoming: Incoming) -> None:
    """Answer a request. Cancel the work if the client closes the connection, because nobody waits for the answer."""
    work, gone = asyncio.ensure_future(answering), asyncio.create_task(incoming.gone())
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


def check_access(settings: Settings, method: str, path: str, headers: Headers) -> None:
    """Check host name, token, origin, permission to write, and content type. Raise a problem if a check fails."""
    host = headers.get("host", "")
    if settings.loopback and not _names_this_machine(host):
        raise Problem(400, f"{host!r} does not name this machine; use localhost or 127.0.0.1.")
    # The page, /health and /ready are public. Everything that shows data of a collection needs the token.
    public = not path.startswith("/v1/") and path not in ("/v1", "/metrics")
    if settings.token and not public and method != "OPTIONS":
        given = headers.get("authorization", "")
        scheme, _, token = given.partition(" ")
        sent = token.strip().encode("latin-1")  # the bytes as they were sent
        if scheme.casefold() != "bearer" or not hmac.compare_digest(sent, settings.token.encode()):
            detail = "the token is wrong." if given else "a token is required: Authorization: Bearer TOKEN."
            raise Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})
    followed_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    api = path.startswith("/v1/") and method != "OPTIONS"
    if api and not followed_link and not _from_own_page(headers, host, settings.origins):
        raise Problem(403, "pages of other sites may not use the API; `serve --cors` can allow a site.")
    # This is checked before the body is read, because the body may be large.
    changes = (method, path) == ("POST", "/v1/documents") or (method == "DELETE" and path.startswith("/v1/documents/"))
    if changes and not settings.writable:
        raise Problem(403, "this server is read-only; `serve --writable` allows changes.")
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if has_body and headers.get("content-type", "").partition(";")[0].strip().casefold() != JSON:
        raise Problem(415, f"the body must be {JSON}.")


def _from_own_page(headers: Headers, host: str, allowed: Sequence[str]) -> bool:
    """Return whether a request comes from the server's own page, an allowed site, or a client other than a browser."""
    origin = headers.get("origin")
    if origin is not None:
        return origin in allowed or origin.partition("://")[2].casefold() == host.casefold()
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _names_this_machine(host: str) -> bool:
    """Return whether a Host header has a loopback name or address, with any port."""
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)
