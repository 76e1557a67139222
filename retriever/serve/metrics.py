"""Figures for Prometheus: what was asked, how it ended and how long it took, how queries were batched, what is held."""

import time
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retriever.serve.served import Facts

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
QUERIES = (1, 2, 4, 8, 16, 32)
NONE = "none"
"""Route and method of what is served nowhere, whatever a client calls it."""
GONE = 499
"""The status of a request whose client left before the answer."""


class Metrics:
    """The figures of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "retriever_requests", "Requests answered.", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "retriever_request_seconds", "From request to answer.", ["route"], buckets=SECONDS, registry=self.registry
        )
        self._under_way = Gauge("retriever_requests_under_way", "Requests being answered.", registry=self.registry)
        self._batch = Histogram(
            "retriever_batch_queries", "Queries searched together.", buckets=QUERIES, registry=self.registry
        )
        self._documents = Gauge(
            "retriever_documents", "Documents of a collection.", ["collection"], registry=self.registry
        )
        self._passages = Gauge(
            "retriever_passages", "Passages of a collection.", ["collection"], registry=self.registry
        )
        self._generation = Gauge(
            "retriever_generation", "Number of the published generation.", ["collection"], registry=self.registry
        )

    def batch_seen(self, queries: int) -> None:
        self._batch.observe(queries)

    def begun(self) -> None:
        self._under_way.inc()

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """A request has ended; it goes by its route's template, for paths are as many as documents."""
        self._under_way.dec()
        found = scope.get("route")
        route = getattr(found, "path_format", NONE)
        method = scope["method"] if scope["method"] in (getattr(found, "methods", None) or ()) else NONE
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, collections: Mapping[str, Facts]) -> bytes:
        """All figures as Prometheus reads them, with what is known of each collection."""
        for name, facts in collections.items():
            self._documents.labels(name).set(facts.documents)
            self._passages.labels(name).set(facts.passages)
            self._generation.labels(name).set(facts.generation or 0)
        return generate_latest(self.registry)


class Counting:
    """Counts and times every request."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, began = GONE, time.perf_counter()

        async def send_seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._metrics.begun()
        try:
            await self._app(scope, receive, send_seen)
        finally:
            self._metrics.answered(scope, status, time.perf_counter() - began)
