"""Access control, and the headers that limit what browsers do with responses.

Every web page open in a browser on this machine can send requests to a server on loopback. Without CORS, pages of other
sites cannot read the responses. Three checks close the remaining gaps:
- DNS rebinding could make a foreign page same-origin, so a loopback server refuses Host headers that name another host.
- A page can send requests whose responses it cannot read, so API requests from pages of other sites are refused.
  Following a link is allowed.
- A body must be JSON, because a form of another site could send any other type without a preflight request.
"""

import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retriever.serve.problems import Problem
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
RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
JSON = "application/json"


class SecurityHeaders:
    """Middleware that adds HEADERS to every response, except those that the response already has."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name for name, _ in given}
                message["headers"] = given + [pair for pair in RAW_HEADERS if pair[0] not in names]
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class AccessControl:
    """Middleware that checks host name, token, origin, permission to write, and content type."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._token = settings.token.encode() if settings.token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._check(scope["method"], scope["path"], Headers(scope=scope))
        await self._app(scope, receive, send)

    def _check(self, method: str, path: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if self._settings.loopback and not _names_this_machine(host):
            raise Problem(400, f"{host!r} does not name this machine; use localhost or 127.0.0.1.")
        if self._token is not None and _needs_token(path) and method != "OPTIONS":
            given = headers.get("authorization", "")
            scheme, _, token = given.partition(" ")
            sent = token.strip().encode("latin-1")  # the bytes as they were sent
            if scheme.casefold() != "bearer" or not hmac.compare_digest(sent, self._token):
                detail = "the token is wrong." if given else "a token is required: Authorization: Bearer TOKEN."
                raise Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})
        followed_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        api = path.startswith("/v1/") and method != "OPTIONS"
        if api and not followed_link and not self._from_own_page(headers, host):
            raise Problem(403, "pages of other sites may not use the API; the operator of the server can allow a site.")
        # Checked before the body is read, which may be large.
        changes = (method, path) == ("POST", "/v1/documents") or (
            method == "DELETE" and path.startswith("/v1/documents/")
        )
        if changes and not self._settings.writable:
            raise Problem(403, "this server is read-only; its operator can allow changes.")
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if has_body and headers.get("content-type", "").partition(";")[0].strip().casefold() != JSON:
            raise Problem(415, f"the body must be {JSON}.")

    def _from_own_page(self, headers: Headers, host: str) -> bool:
        """Tell whether a request comes from the own page, an allowed site, or a client that is not a browser."""
        origin = headers.get("origin")
        if origin is not None:
            return origin in self._settings.origins or origin.partition("://")[2].casefold() == host.casefold()
        return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _names_this_machine(host: str) -> bool:
    """Tell whether a Host header names this machine by loopback, at any port."""
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)


def _needs_token(path: str) -> bool:
    """The page, /health and /ready are public; everything that reveals a collection needs the token."""
    return path.startswith("/v1/") or path in ("/v1", "/metrics")
