"""Health, readiness, and metrics for Prometheus."""

import time
from collections.abc import Mapping

import prometheus_client as prometheus
from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retriever.info import Summary
from retriever.serve import models
from retriever.serve.problems import Problem, documented

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
QUERIES = (1, 2, 4, 8, 16, 32)
NONE = "none"
"""The label for requests that match no route. It keeps clients from creating any number of labels."""
CLIENT_CLOSED_REQUEST = 499

router = APIRouter(tags=["state"])


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = own = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=own)
        labels = ["method", "route", "status"]
        self.requests = prometheus.Counter("retriever_requests", "Requests answered.", labels, registry=own)
        self.seconds = prometheus.Histogram(
            "retriever_request_seconds", "Time from request to response.", ["route"], buckets=SECONDS, registry=own
        )
        self.under_way = prometheus.Gauge("retriever_requests_under_way", "Requests being answered.", registry=own)
        self.batch = prometheus.Histogram(
            "retriever_batch_queries", "Queries per batch.", buckets=QUERIES, registry=own
        )
        self._facts = {
            name: prometheus.Gauge(f"retriever_{name}", description, ["collection"], registry=own)
            for name, description in {
                "documents": "Documents of a collection.",
                "passages": "Passages of a collection.",
                "generation": "Number of the published generation.",
            }.items()
        }

    def text(self, collections: Mapping[str, Summary]) -> bytes:
        """Return all metrics in Prometheus's text format."""
        for gauge in self._facts.values():
            gauge.clear()  # a collection may have been removed
        for collection, facts in collections.items():
            for name, gauge in self._facts.items():
                gauge.labels(collection).set(getattr(facts, name) or 0)
        return prometheus.generate_latest(self._registry)


class RequestMetrics:
    """Middleware that counts and times requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, began = CLIENT_CLOSED_REQUEST, time.perf_counter()

        async def observed_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            with self._metrics.under_way.track_inprogress():
                await self._app(scope, receive, observed_send)
        finally:
            found = scope.get("route")
            route = getattr(found, "path_format", NONE)  # the template: there are as many paths as documents
            method = scope["method"] if scope["method"] in (getattr(found, "methods", None) or ()) else NONE
            self._metrics.requests.labels(method, route, status).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - began)


@router.get("/health", responses=documented(400, 431))
async def health() -> models.State:
    """Return `ok` if the process is running."""
    return models.State(state="ok")


@router.get("/ready", responses=documented(400, 431, 503))
async def ready(request: Request) -> models.State:
    """Return `ok` if the server answers requests. It does not while it loads collections or shuts down."""
    if unready := request.app.state.unready:
        raise Problem(503, f"{unready}.")
    return models.State(state="ok")


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        **documented(400, 401, 431),
        200: {"description": "Metrics for Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}},
    },
)
async def metrics(request: Request) -> Response:
    """Return the metrics of the server and its collections."""
    facts = {one.name: (await one.summary())[0] for one in request.app.state.collections}
    return Response(request.app.state.metrics.text(facts), media_type=prometheus.CONTENT_TYPE_LATEST)
