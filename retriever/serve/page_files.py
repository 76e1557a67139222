"""The page: the files of the folder page/, each at its own path, with an ETag so that none is sent twice."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import Response

FOLDER = Path(__file__).parent / "page"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def add_page(app: FastAPI) -> None:
    """Serve the files as they are when the server starts."""
    for path in sorted(FOLDER.glob("*")):
        if path.suffix in MEDIA_TYPES:
            serve = _file_route(path)
            app.add_api_route(f"/{path.name}", serve, methods=["GET", "HEAD"], include_in_schema=False)
            if path.name == "index.html":
                app.add_api_route("/", serve, methods=["GET", "HEAD"], include_in_schema=False)


def _file_route(path: Path) -> Callable[[Request], Response]:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}

    def serve(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=MEDIA_TYPES[path.suffix])

    return serve
