"""The application: routes, what stands before them, and what starts and ends with it."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware

from retriever.serve import card_routes, document_routes, map_routes, search_routes, state_routes
from retriever.serve.batching import Searchers
from retriever.serve.limits import Limits, Readiness
from retriever.serve.metrics import Counting, Metrics
from retriever.serve.page_files import add_page
from retriever.serve.places import Holding, ServedCollections
from retriever.serve.problems import ProblemDetails, Telling, add_handlers
from retriever.serve.security import Gate, SecurityHeaders
from retriever.serve.settings import Settings


def create_app(
    collections: ServedCollections,
    settings: Settings,
    loaded: Callable[[Exception | None], None] = lambda error: None,
) -> FastAPI:
    """The application over open collections, which it loads while it runs and closes at its end.

    `loaded` is told when all is ready, or why it cannot be.
    """
    readiness, metrics = Readiness(), Metrics()
    searchers = Searchers(metrics.batch_seen)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        searchers.start()

        def ended(error: Exception | None) -> None:
            if error is None and not readiness.draining:
                readiness.begin()
            loaded(error)

        def load() -> None:
            try:
                collections.load()
                error = None
            except Exception as failure:
                error = failure
            with contextlib.suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(ended, error)

        # A daemon: an encoder may take minutes to be made ready, and whoever ends the server does not wait for that.
        loading = threading.Thread(target=load, name="loading", daemon=True)
        loading.start()
        yield
        await asyncio.to_thread(searchers.close)
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
    app.state.searchers = searchers
    app.state.settings = settings
    app.state.readiness = readiness
    app.state.metrics = metrics
    add_handlers(app)
    for routes in (search_routes, document_routes, state_routes, map_routes, card_routes):
        app.include_router(routes.router())
    add_page(app)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    # The last one added is the first that a request comes to.
    app.add_middleware(Holding)
    app.add_middleware(Limits, readiness=readiness)
    app.add_middleware(Gate, settings=settings)
    app.add_middleware(Telling)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(SecurityHeaders)
    app.add_middleware(Counting, metrics=metrics)
    return app


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
