"""Routes of the API for searching, collections, documents, changes, and the card. The map has its own module."""

import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from pydantic_core import to_json
from starlette.convertors import PathConvertor, register_url_convertor

from retriever.card.contents import Card
from retriever.card.rendering import article, page
from retriever.corpus import Skipped
from retriever.errors import NoDocuments
from retriever.hits import Answer, Options
from retriever.ingest.pipeline import SKIPPED_KEPT, IngestReport
from retriever.serve import models
from retriever.serve.batching import LARGEST_BATCH, SearchResult, SearchThreads
from retriever.serve.collections import Served, ServedCollection, requested_collection
from retriever.serve.models import IdParameter
from retriever.serve.problems import BODY_PROBLEMS, READ_PROBLEMS, no_document

NDJSON = "application/x-ndjson"
AHEAD = 2
"""Number of parts of a batch request that are processed at once: one is searched while the previous one is sent."""
CARD_POLICY = "default-src 'none'; style-src {style}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Anything(PathConvertor):
    """A URL convertor that matches the rest of a path, including line breaks, because an id may contain them."""

    regex = "(?s:.*)"


register_url_convertor("anything", Anything())
router = APIRouter(prefix="/v1")


def json_response(content: Mapping[str, Any], status: int = 200) -> Response:
    """Return content as a JSON response. It is not validated, because validation takes as long as a search."""
    return Response(to_json(content), status, media_type="application/json")


# ---- searching ---------------------------------------------------------------------------------------------


@router.post("/search", response_model=models.SearchAnswer, responses=BODY_PROBLEMS, tags=["search"])
async def search(request: Request, body: models.SearchRequest) -> Response:
    """Find the documents that answer a query best, best first."""
    began = time.perf_counter()
    served = await requested_collection(request, body.collection)
    threads: SearchThreads = request.app.state.threads
    found = await threads.search(served, [body.query], body.k, _options(body))
    return json_response(_answer(served.name, body, body.query, found.answers[0], found.generation, began))


@router.post(
    "/search/batch",
    response_class=StreamingResponse,
    responses={
        **BODY_PROBLEMS,
        200: {
            "description": "One answer per line, in the order of the queries, sent as soon as it is ready.",
            "content": {NDJSON: {"schema": {"type": "string"}}},
        },
    },
    tags=["search"],
)
async def search_batch(request: Request, body: models.BatchRequest) -> Response:
    """Search for many queries."""
    served = await requested_collection(request, body.collection)
    threads: SearchThreads = request.app.state.threads
    # Filters are checked first, because an invalid one cannot be reported once the response has begun.
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


@router.post("/similar", response_model=models.SimilarAnswer, responses=BODY_PROBLEMS, tags=["search"])
async def similar(request: Request, body: models.SimilarRequest) -> Response:
    """Find the documents that are most similar to a stored document. The stored document itself is left out."""
    began = time.perf_counter()
    served = await requested_collection(request, body.collection)

    def find() -> dict[str, Any]:
        hits = served.retriever.similar(body.id, body.k, where=body.where)
        return {"collection": served.name, "id": body.id, "hits": hits, "generation": served.generation}

    found = await request.app.state.threads.call(served, find)
    return json_response({**found, "took_ms": _milliseconds(began)})


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


# ---- collections and documents -----------------------------------------------------------------------------


@router.get("/collections", response_model=models.Collections, responses=READ_PROBLEMS, tags=["documents"])
async def collections(request: Request) -> Response:
    """List the collections of the server. The default is the first."""
    state, described = request.app.state, []
    for one in state.collections:
        summary, problem = await one.summary()
        more = {"writable": state.settings.writable, "default": one is state.collections.default, "problem": problem}
        described.append({"name": one.name, **asdict(summary), **more})
    return json_response({"collections": described})


@router.get("/fields", response_model=models.Fields, responses=READ_PROBLEMS, tags=["documents"])
async def fields(served: Served) -> Response:
    """List the metadata fields, most frequent first, with their most frequent values."""
    return json_response({"fields": await served.current_facets()})


@router.get("/documents/{id:anything}", response_model=models.Document, responses=READ_PROBLEMS, tags=["documents"])
async def document(request: Request, id_: IdParameter, served: Served) -> Response:
    """Read a stored document."""
    found = await request.app.state.threads.call(served, lambda: served.retriever.document(id_))
    stored = {key: getattr(found, key) for key in ("id", "title", "text", "metadata")}
    return json_response({"collection": served.name, **stored})


@router.post("/documents", response_model=models.Added, responses=BODY_PROBLEMS, tags=["documents"])
async def add(request: Request, body: models.AddRequest) -> Response:
    """Add documents. A document replaces the stored one with the same id. Searches find added documents at once."""
    served = await requested_collection(request, body.collection)
    documents = [one.model_dump() for one in body.documents]

    def change() -> dict[str, Any]:
        try:
            report = served.retriever.add(documents)
        except NoDocuments as error:
            skipped = [Skipped(*reason) for reason in error.reasons]
            report = IngestReport(skipped=len(skipped), skipped_list=skipped[:SKIPPED_KEPT])
        counts = {key: getattr(report, key) for key in ("new", "changed", "unchanged", "duplicate_ids")}
        generation = served.generation
        return {"collection": served.name, **counts, "skipped": report.skipped_list, "generation": generation}

    return json_response(await served.run("write", change))


@router.delete("/documents/{id:anything}", response_model=models.Deleted, responses=BODY_PROBLEMS, tags=["documents"])
async def delete(id_: IdParameter, served: Served) -> Response:
    """Delete a document."""
    deleted = await served.run("write", lambda: served.retriever.delete([id_]))
    if not deleted:
        raise no_document(id_, served.name)
    return json_response({"collection": served.name, "deleted": deleted})


# ---- card --------------------------------------------------------------------------------------------------


@router.get("/card", response_model=Card, responses=READ_PROBLEMS, tags=["card"])
async def card_json(served: Served) -> Response:
    """Describe a collection: its contents, how it was made, and what was measured."""
    return json_response((await _card(served)).to_json())


@router.get("/card.html", response_class=HTMLResponse, responses=READ_PROBLEMS, tags=["card"])
async def card_html(
    served: Served,
    part: Annotated[bool, Query(description="Only the article; /card.css has its style.")] = False,
) -> HTMLResponse:
    """Show the card of a collection as a web page."""
    card = await _card(served)
    if part:
        return HTMLResponse(article(card))
    text = page(card)
    # With this hash, a browser applies only the page's own style.
    style = text.partition("<style>")[2].partition("</style>")[0]
    hashed = f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"
    return HTMLResponse(text, headers={"Content-Security-Policy": CARD_POLICY.format(style=hashed)})


async def _card(served: ServedCollection) -> Card:
    return await served.run("slow read", served.retriever.card, cache_key="card")
