"""Who may ask, and what a browser may do with the answers.

A private collection on loopback is within reach of every web page that is open in a browser of the same machine. Pages
of others cannot read answers, for there is no CORS; but a name that is made to point here (DNS rebinding) would make
a page one of our own, so names other than this machine's are refused; and a page can send what it cannot read the
answer of, so a request to the API must not come from another site's page (a link that is followed may), and a body must
be JSON.
"""

import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retriever.serve.problems import Problem
from retriever.serve.settings import Settings, is_loopback

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
JSON = "application/json"


class SecurityHeaders:
    """Puts the headers on every answer, whoever gives it; one that is there already stays."""

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


class Gate:
    """Refuses a foreign name, a foreign page, a change where none may be made, a body that is no JSON, and who has no
    token."""

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
        if self._settings.loopback and not is_own_name(host):
            raise Problem(400, f"{host!r} is not a name of this machine; ask for localhost or 127.0.0.1.")
        if self._token is not None and needs_token(path) and method != "OPTIONS":
            given = headers.get("authorization", "")
            scheme, _, token = given.partition(" ")
            sent = token.strip().encode("latin-1")  # the bytes as they came
            if scheme.casefold() != "bearer" or not hmac.compare_digest(sent, self._token):
                what = "the token is wrong." if given else "a token is needed: Authorization: Bearer TOKEN."
                raise Problem(401, what, headers={"WWW-Authenticate": "Bearer"})
        followed = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if path.startswith("/v1/") and method != "OPTIONS" and not followed and not self._from_own_page(headers, host):
            raise Problem(403, "pages of other sites may not ask; whoever runs the server can allow one with --cors.")
        if not self._settings.writable and changes(method, path):  # before the body is read, which may be large
            raise Problem(
                403, "documents cannot be changed here; whoever runs the server can allow it with --writable."
            )
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if has_body and headers.get("content-type", "").partition(";")[0].strip().casefold() != JSON:
            raise Problem(415, f"the body must be {JSON}.")

    def _from_own_page(self, headers: Headers, host: str) -> bool:
        """Whether no page of another site has sent this: browsers say where a request comes from."""
        origin = headers.get("origin")
        if origin is not None:
            return origin in self._settings.origins or origin.partition("://")[2].casefold() == host.casefold()
        return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def is_own_name(host: str) -> bool:
    """Whether a Host header names this machine by loopback, at any port."""
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)


def changes(method: str, path: str) -> bool:
    """Whether a request would change a collection."""
    return (method == "POST" and path == "/v1/documents") or (method == "DELETE" and path.startswith("/v1/documents/"))


def needs_token(path: str) -> bool:
    """The page, health and readiness are open; everything that tells of a collection is not."""
    return path.startswith("/v1/") or path in ("/v1", "/metrics")
