"""The FastAPI application: routes, middleware, the page's files, startup and shutdown."""

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from starlette.middleware.cors import CORSMiddleware

from retriever.serve import monitoring
from retriever.serve.batching import SearchThreads
from retriever.serve.collections import SECONDS_BETWEEN_LOOKS, ServedCollections
from retriever.serve.logs import RequestLog
from retriever.serve.middleware import Gate, SecurityHeaders
from retriever.serve.models import ProblemDetails
from retriever.serve.monitoring import Metrics, RequestMetrics
from retriever.serve.problems import add_handlers, unexpected
from retriever.serve.routes import api, embeddings, reference
from retriever.serve.routes import map as map_routes
from retriever.serve.settings import Settings

LOADING = "the collections are being loaded"
SHUTTING_DOWN = "the server is shutting down"
PAGE = Path(__file__).parent / "page"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


def create_app(
    collections: ServedCollections,
    settings: Settings,
    on_loaded: Callable[[Exception | None], None] = lambda error: None,
) -> FastAPI:
    """Create the application. It loads the collections at startup and closes them at shutdown.

    The application calls `on_loaded(None)` when all collections are loaded. If loading fails, it calls `on_loaded` with
    the error.
    """
    metrics = Metrics()
    threads = SearchThreads(metrics.batch.observe)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        following: asyncio.Task[None] | None = None

        def loaded(error: Exception | None) -> None:
            nonlocal following
            if error is None and app.state.unready == LOADING:  # it may already be shutting down
                app.state.unready = None
                following = asyncio.create_task(_follow(app))
            on_loaded(error)

        def load() -> None:
            try:
                collections.load()
                error = None
            except Exception as failure:
                error = failure
            with contextlib.suppress(RuntimeError):  # the event loop may already be closed
                loop.call_soon_threadsafe(loaded, error)

        # Loading an encoder may take minutes. The thread is a daemon, so that shutdown does not wait for it.
        loading = threading.Thread(target=load, name="loading", daemon=True)
        loading.start()
        yield
        if following:
            following.cancel()
        for maps in app.state.maps.values():
            maps.close()
        await asyncio.to_thread(threads.close)
        if not loading.is_alive():
            await asyncio.to_thread(collections.close)

    app = FastAPI(
        title="retriever",
        summary="Search collections of documents by meaning.",
        version=version("flow-retriever"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.collections = collections
    app.state.threads = threads
    app.state.settings = settings
    app.state.unready = LOADING  # why the server answers no requests; None if it does
    app.state.metrics = metrics
    app.state.maps = {}
    app.state.large_bodies = {}  # a semaphore for each path with large bodies
    add_handlers(app)
    for module in (api, embeddings, map_routes, monitoring, reference):
        app.include_router(module.router)
    app.include_router(api.documents_router)
    for path in sorted(PAGE.iterdir()):
        if path.suffix in MEDIA_TYPES:
            _add_file(app, path)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    # The middleware that is added last sees a request first.
    app.add_middleware(Gate, settings=settings)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(SecurityHeaders)
    app.add_middleware(RequestMetrics, metrics=metrics)
    app.add_middleware(RequestLog, queries=settings.log_queries)
    return app


async def _follow(app: FastAPI) -> None:
    """Follow the changes of the served folders while the server runs."""
    collections: ServedCollections = app.state.collections
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
        try:
            await collections.look()
        except Exception as error:
            unexpected(error)
        for name in set(app.state.maps) - {one.name for one in collections}:
            app.state.maps.pop(name).close()


def _add_file(app: FastAPI, path: Path) -> None:
    """Serve a file of the page as it is at startup. Its ETag lets browsers download the file only once."""
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}

    def file(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=MEDIA_TYPES[path.suffix])

    for address in (f"/{path.name}", "/") if path.name == "index.html" else (f"/{path.name}",):
        app.add_api_route(address, file, methods=["GET", "HEAD"], include_in_schema=False)


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        schemas = app.openapi_schema["components"]["schemas"]
        schema = ProblemDetails.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs"))
        schemas["ProblemDetails"] = schema
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
    return app.openapi_schema
