"""The routes that search: one query, many, and the like of a stored document."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from pydantic_core import to_json

from retriever.hits import Answer, Hit
from retriever.serve import models
from retriever.serve.batching import MOST_TOGETHER, Found, Searchers, Way
from retriever.serve.places import chosen
from retriever.serve.problems import documented
from retriever.serve.served import Served

NDJSON = "application/x-ndjson"
# So many parts of a batch are searched at once: another thread goes on while one part is sent, and there is room for
# the queries of others.
AHEAD = 2
PROBLEMS = documented(400, 401, 403, 404, 408, 413, 415, 422, 429, 431, 500, 503)


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["search"])

    @routes.post("/search", response_model=models.SearchAnswer, responses=PROBLEMS)
    async def search(request: Request, body: models.SearchRequest) -> Response:
        """The documents that answer a query best, best first."""
        began = time.perf_counter()
        served, searchers = await _asked(request, body.collection)
        found = await searchers.search(served, [body.query], _way(body))
        return json_response(_answer(served, body, body.query, found.answers[0], found.generation, began))

    @routes.post(
        "/search/batch",
        response_class=StreamingResponse,
        responses={
            **PROBLEMS,
            200: {
                "description": "One answer a line, in the order of the queries, sent as they are done.",
                "content": {NDJSON: {"schema": {"type": "string"}}},
            },
        },
    )
    async def search_batch(request: Request, body: models.BatchRequest) -> Response:
        """The same for many queries."""
        served, searchers = await _asked(request, body.collection)
        await searchers.call(served, lambda: served.retriever.check_filters(body.where))  # while it can be refused

        async def lines() -> AsyncIterator[bytes]:
            parts = [body.queries[at : at + MOST_TOGETHER] for at in range(0, len(body.queries), MOST_TOGETHER)]
            under_way: list[asyncio.Task[Found]] = []
            try:
                for number, queries in enumerate(parts):
                    began = time.perf_counter()
                    for part in parts[number + len(under_way) : number + AHEAD]:
                        under_way.append(asyncio.create_task(searchers.search(served, part, _way(body))))
                    found = await under_way.pop(0)
                    for query, answer in zip(queries, found.answers, strict=True):
                        yield to_json(_answer(served, body, query, answer, found.generation, began)) + b"\n"
            finally:
                for task in under_way:
                    task.cancel()

        return StreamingResponse(lines(), media_type=NDJSON)

    @routes.post("/similar", response_model=models.SimilarAnswer, responses=PROBLEMS)
    async def similar(request: Request, body: models.SimilarRequest) -> Response:
        """The documents nearest to a stored one, itself left out."""
        began = time.perf_counter()
        served, searchers = await _asked(request, body.collection)

        def look() -> tuple[list[Hit], int | None]:
            return served.retriever.similar(body.id, body.k, where=body.where), served.generation

        hits, generation = await searchers.call(served, look)
        return json_response(
            {
                "collection": served.name,
                "id": body.id,
                "hits": [hit_json(hit) for hit in hits],
                "generation": generation,
                "took_ms": _milliseconds(began),
            }
        )

    return routes


def json_response(content: dict[str, Any]) -> Response:
    """Written as it stands: it was made here, and checking it again would take as long as making it."""
    return Response(to_json(content), media_type="application/json")


def hit_json(hit: Hit) -> dict[str, Any]:
    """A hit as it goes over the wire."""
    return {
        "rank": hit.rank,
        "score": hit.score,
        "id": hit.id,
        "title": hit.title,
        "passage": hit.passage,
        "start": hit.start,
        "end": hit.end,
        "metadata": hit.metadata,
        "highlight": hit.highlight,
    }


async def _asked(request: Request, collection: str | None) -> tuple[Served, Searchers]:
    return await chosen(request, collection), request.app.state.searchers


def _way(body: models.SearchOptions) -> Way:
    return Way(body.k, body.mode, tuple(body.where), body.space, body.highlight, body.min_score)


def _answer(
    served: Served, body: models.SearchOptions, query: str, answer: Answer, generation: int | None, began: float
) -> dict[str, Any]:
    return {
        "collection": served.name,
        "query": query,
        "mode": body.mode,
        "space": body.space,
        "hits": [hit_json(hit) for hit in answer.hits],
        "novelty": answer.novelty,
        "limit": answer.limit,
        "strange": answer.strange,
        "generation": generation,
        "took_ms": _milliseconds(began),
    }


def _milliseconds(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)
