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
import hmac
from collections import Counter
from collections.abc import Sequence
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def observed_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            headers = Headers(scope=scope)
            check_access(self._settings, scope["method"], scope["path"], headers)
            with ExitStack() as scope[HELD]:
                if scope["path"].startswith("/v1/"):
                    receive = self._admit(scope, headers, receive, scope[HELD])
                await self._app(scope, receive, observed_send)
        except Exception as error:
            problem = error if isinstance(error, Problem) else unexpected(error)
            if started:
                raise  # the response has begun: the server closes the connection, so that the client notices
            await problem.response()(scope, receive, send)

    def _admit(self, scope: Scope, headers: Headers, receive: Receive, until: ExitStack) -> Receive:
        """Count an API request until the stack `until` is closed. Return a `receive` that limits the body."""
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
        adding = scope["path"] == "/v1/documents"
        largest = limits.LARGEST_DOCUMENTS_BODY if adding else limits.LARGEST_BODY
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > largest:
            raise _too_large(largest)
        self._per_client[client] += 1
        until.callback(self._forget, client)
        return _limited(receive, largest)

    def _forget(self, client: str) -> None:
        self._per_client[client] -= 1
        if not self._per_client[client]:
            del self._per_client[client]


def _too_large(largest: int) -> Problem:
    return Problem(413, f"the body is larger than {largest:,} bytes.")


def _limited(receive: Receive, largest: int) -> Receive:
    """Wrap `receive` so that it raises a problem if the body is too large or arrives too slowly."""
    received, complete = 0, False
    began = asyncio.get_running_loop().time()

    async def limited_receive() -> Message:
        nonlocal received, complete
        if complete:  # the body is complete: the next message reports that the client disconnected
            return await receive()
        # A received byte extends the deadline only a little, so a client cannot hold a connection with single bytes.
        deadline = began + limits.SECONDS_FOR_BODY + received / limits.SLOWEST_BODY
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
