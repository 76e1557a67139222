"""Routes of the API for searching, collections, documents, changes, and the card. The map has its own module."""

import asyncio
import base64
import dataclasses
import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from pydantic_core import to_json
from starlette.convertors import PathConvertor, register_url_convertor

from retriever.card.contents import Card
from retriever.card.rendering import article, page
from retriever.corpus import Skipped
from retriever.corpus.structure import place_of
from retriever.errors import NoDocuments
from retriever.hits import Answer, Options
from retriever.ingest.pipeline import SKIPPED_KEPT, IngestReport
from retriever.search.examples import examples
from retriever.search.facets import matching_values, value_counts
from retriever.serve import models
from retriever.serve import settings as limits
from retriever.serve.batching import LONGEST_SHORT, SearchThreads
from retriever.serve.bodies import LargeBodiesRoute
from retriever.serve.collections import Served, ServedCollection, requested_collection
from retriever.serve.jobs import SearchResult, search_parts
from retriever.serve.logs import QUERIES
from retriever.serve.models import IdParameter
from retriever.serve.problems import BODY_PROBLEMS, READ_PROBLEMS, Problem, no_document

NDJSON = "application/x-ndjson"
AHEAD = 2
"""Number of parts of a batch request that are processed at once: one is searched while the previous one is sent."""
CARD_POLICY = "default-src 'none'; style-src {style}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Anything(PathConvertor):
    """A URL convertor that matches the rest of a path, including line breaks, because an id may contain them."""

    regex = "(?s:.*)"


register_url_convertor("anything", Anything())
router = APIRouter(prefix="/v1")
documents_router = APIRouter(prefix="/v1", route_class=LargeBodiesRoute)


def json_response(content: Mapping[str, Any], status: int = 200) -> Response:
    """Return content as a JSON response. It is not validated, because validation takes as long as a search."""
    return Response(to_json(content), status, media_type="application/json")


# ---- searching ---------------------------------------------------------------------------------------------


@router.post("/search", response_model=models.SearchAnswer, responses=BODY_PROBLEMS, tags=["search"])
async def search(request: Request, body: models.SearchRequest) -> Response:
    """Find the documents that answer a query best, best first."""
    return await _search(request, body, body.query)


@router.get("/search", response_model=models.SearchAnswer, responses=READ_PROBLEMS, tags=["search"])
async def search_by_url(request: Request, asked: Annotated[models.SearchParameters, Query()]) -> Response:
    """Search with parameters in the URL: `/v1/search?q=nocturnal+hunter&k=3`. `where` may be repeated."""
    return await _search(request, asked, asked.q)


async def _search(request: Request, asked: models.SearchOptions, query: str) -> Response:
    began = time.perf_counter()
    request.scope[QUERIES] = [query]
    _check_work(asked, 1)
    served = await requested_collection(request, asked.collection)
    threads: SearchThreads = request.app.state.threads
    found = await threads.search(served, [query], asked.k, _options(asked))
    return json_response(_answer(served.name, asked, query, found.answers[0], found.generation, began))


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
    """Search for many queries. The number of queries times `k` is limited to 20,000, or 1,000 with `highlight`."""
    request.scope[QUERIES] = body.queries
    _check_work(body, len(body.queries))
    served = await requested_collection(request, body.collection)
    threads: SearchThreads = request.app.state.threads
    # Filters are checked first, because an invalid one cannot be reported once the response has begun.
    await threads.call(served, lambda: served.retriever.check_filters(body.where), long=True)

    async def lines() -> AsyncIterator[bytes]:
        options = _options(body)
        groups = list(search_parts(body.queries, body.k, options))
        tasks: list[asyncio.Task[SearchResult]] = []
        try:
            for number, queries in enumerate(groups):
                began = time.perf_counter()
                for part in groups[number + len(tasks) : number + AHEAD]:
                    search = threads.search(served, part, body.k, options, long=True)
                    tasks.append(asyncio.create_task(search))
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

    found = await request.app.state.threads.call(served, find, long=body.k > LONGEST_SHORT)
    return json_response({**found, "took_ms": _milliseconds(began)})


def _check_work(body: models.SearchOptions, queries: int) -> None:
    """Refuse a search that would take too long, before it begins."""
    which = "with `highlight`, " if body.highlight else ""
    if body.highlight and body.k > limits.MOST_HIGHLIGHTED:
        reason = f"{which}it may be at most {limits.MOST_HIGHLIGHTED:,}, because every sentence of a hit is encoded."
        raise Problem(422, "the request asks for too much work.", [("k", reason)])
    most = limits.MOST_HIGHLIGHTED_OF_BATCH if body.highlight else limits.MOST_HITS_OF_BATCH
    if queries * body.k > most:
        reason = f"{which}the number of queries times k may be at most {most:,}, not {queries * body.k:,}."
        raise Problem(422, "the request asks for too much work; divide it.", [("queries", reason)])


def _options(body: models.SearchOptions) -> Options:
    return Options(
        mode=body.mode,
        where=body.where,
        space=body.space,
        highlight=body.highlight,
        explain=body.explain,
        min_score=body.min_score,
    )


def _answer(
    collection: str, body: models.SearchOptions, query: str, answer: Answer, generation: int | None, began: float
) -> dict[str, Any]:
    asked = {"collection": collection, "query": query, "mode": body.mode, "space": body.space}
    found = {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)}
    return {**asked, **found, "generation": generation, "took_ms": _milliseconds(began)}


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
        described.append({"name": one.name, **dataclasses.asdict(summary), **more})
    return json_response({"collections": described})


@router.get("/examples", response_model=models.Examples, responses=READ_PROBLEMS, tags=["documents"])
async def example_queries(served: Served) -> Response:
    """Return queries to begin with: questions, titles or phrases of the collection's documents."""
    found = await served.run("slow read", lambda: examples(served.retriever.collection.store), cache_key="examples")
    return json_response({"examples": found})


@router.get("/fields", response_model=models.Fields, responses=READ_PROBLEMS, tags=["documents"])
async def fields(served: Served) -> Response:
    """List the metadata fields, most frequent first, with their most frequent values."""
    return json_response({"fields": await served.current_facets()})


@router.get("/fields/values", response_model=models.FieldValues, responses=READ_PROBLEMS, tags=["documents"])
async def values(
    served: Served,
    field: Annotated[str, Query(min_length=1, max_length=limits.LONGEST_FILTER, description="A metadata field.")],
    contains: Annotated[str, Query(max_length=limits.LONGEST_FILTER, description="A part of the value.")] = "",
) -> Response:
    """List the most frequent values of a metadata field that contain a text."""
    store = served.retriever.local.store
    counted = await served.run("slow read", lambda: value_counts(store, field), cache_key=("values", field))
    if not counted:
        raise Problem(404, f"no document of the collection {served.name!r} has a metadata field {field!r}.")
    found, more = matching_values(counted, contains)
    return json_response({"values": found, "more": more})


@router.get("/documents/{id:anything}", response_model=models.Document, responses=READ_PROBLEMS, tags=["documents"])
async def document(
    request: Request,
    id_: IdParameter,
    served: Served,
    start: Annotated[int, Query(ge=0, le=2**53, description="An offset in the text; `place` says where it is.")] = 0,
) -> Response:
    """Read a stored document."""

    def read() -> dict[str, Any]:
        found = served.retriever.document(id_)
        stored = {key: getattr(found, key) for key in ("id", "title", "text", "metadata")}
        return {**stored, "place": place_of({**stored, "source": found.source}, start)}

    return json_response({"collection": served.name, **await request.app.state.threads.read(served, read)})


@documents_router.post("/documents", response_model=models.Added, responses=BODY_PROBLEMS, tags=["documents"])
async def add(request: Request, body: models.AddRequest) -> Response:
    """Add documents. A document replaces the stored one with the same id. Searches find added documents at once."""
    served = await requested_collection(request, body.collection)

    def change() -> dict[str, Any]:
        documents = [{key: getattr(one, key) for key in models.NewDocument.model_fields} for one in body.documents]
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
