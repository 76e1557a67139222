"""Routes that search: one query, many queries, and documents similar to a stored one."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from pydantic_core import to_json

from retriever.hits import Answer, Options
from retriever.serve import models
from retriever.serve.batching import LARGEST_BATCH, SearchResult, SearchThreads
from retriever.serve.collections import requested_collection
from retriever.serve.problems import BODY_PROBLEMS

NDJSON = "application/x-ndjson"
AHEAD = 2
"""Parts of a batch request that are searched at once: one is searched while another is sent."""


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["search"])

    @routes.post("/search", response_model=models.SearchAnswer, responses=BODY_PROBLEMS)
    async def search(request: Request, body: models.SearchRequest) -> Response:
        """Find the documents that answer a query best, best first."""
        began = time.perf_counter()
        served = await requested_collection(request, body.collection)
        threads: SearchThreads = request.app.state.threads
        found = await threads.search(served, [body.query], body.k, _options(body))
        return json_response(_answer(served.name, body, body.query, found.answers[0], found.generation, began))

    @routes.post(
        "/search/batch",
        response_class=StreamingResponse,
        responses={
            **BODY_PROBLEMS,
            200: {
                "description": "One answer per line, in the order of the queries, sent as soon as it is ready.",
                "content": {NDJSON: {"schema": {"type": "string"}}},
            },
        },
    )
    async def search_batch(request: Request, body: models.BatchRequest) -> Response:
        """Search for many queries."""
        served = await requested_collection(request, body.collection)
        threads: SearchThreads = request.app.state.threads
        # Once the response has begun, an invalid filter could not be reported.
        await threads.call(served, lambda: served.retriever.check_filters(body.where))

        async def lines() -> AsyncIterator[bytes]:
            parts = [body.queries[at : at + LARGEST_BATCH] for at in range(0, len(body.queries), LARGEST_BATCH)]
            tasks: list[asyncio.Task[SearchResult]] = []
            try:
                for number, queries in enumerate(parts):
                    began = time.perf_counter()
                    for part in parts[number + len(tasks) : number + AHEAD]:
                        tasks.append(asyncio.create_task(threads.search(served, part, body.k, _options(body))))
                    found = await tasks.pop(0)
                    for query, answer in zip(queries, found.answers, strict=True):
                        yield to_json(_answer(served.name, body, query, answer, found.generation, began)) + b"\n"
            finally:
                for task in tasks:
                    task.cancel()

        return StreamingResponse(lines(), media_type=NDJSON)

    @routes.post("/similar", response_model=models.SimilarAnswer, responses=BODY_PROBLEMS)
    async def similar(request: Request, body: models.SimilarRequest) -> Response:
        """Find the documents nearest to a stored one, without that one."""
        began = time.perf_counter()
        served = await requested_collection(request, body.collection)

        def find() -> dict[str, Any]:
            hits = served.retriever.similar(body.id, body.k, where=body.where)
            return {"collection": served.name, "id": body.id, "hits": hits, "generation": served.generation}

        found = await request.app.state.threads.call(served, find)
        return json_response({**found, "took_ms": _milliseconds(began)})

    return routes


def json_response(content: Mapping[str, Any], status: int = 200) -> Response:
    """Encode content without validating it: that would take as long as making it."""
    return Response(to_json(content), status, media_type="application/json")


def _options(body: models.SearchOptions) -> Options:
    return Options(
        mode=body.mode, where=body.where, space=body.space, highlight=body.highlight, min_score=body.min_score
    )


def _answer(
    collection: str, body: models.SearchOptions, query: str, answer: Answer, generation: int | None, began: float
) -> dict[str, Any]:
    return {
        "collection": collection,
        "query": query,
        "mode": body.mode,
        "space": body.space,
        "hits": answer.hits,
        "novelty": answer.novelty,
        "limit": answer.limit,
        "strange": answer.strange,
        "generation": generation,
        "took_ms": _milliseconds(began),
    }


def _milliseconds(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)
