"""Routes of collections and documents: what there is, the card, and, if the server is writable, changes."""

import base64
import hashlib
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response
from starlette.convertors import PathConvertor, register_url_convertor

from retriever.card.contents import Card
from retriever.card.rendering import article, page
from retriever.corpus import Skipped
from retriever.errors import NoDocuments
from retriever.ingest.pipeline import SKIPPED_KEPT, IngestReport
from retriever.serve import models
from retriever.serve.collections import ServedCollection, requested_collection
from retriever.serve.models import CollectionParameter, IdParameter
from retriever.serve.problems import BODY_PROBLEMS, READ_PROBLEMS, no_document
from retriever.serve.routes_search import json_response

CARD_POLICY = "default-src 'none'; style-src {style}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Anything(PathConvertor):
    """Matches the rest of a path including line breaks, which an id may contain."""

    regex = "(?s:.*)"


def router() -> APIRouter:
    register_url_convertor("anything", Anything())
    routes = APIRouter(prefix="/v1", tags=["documents"])

    @routes.get("/collections", response_model=models.Collections, responses=READ_PROBLEMS)
    async def collections(request: Request) -> Response:
        """List the collections of the server, the default first."""
        there, writable = request.app.state.collections, request.app.state.settings.writable
        described = [
            {
                **(await one.facts()).model_dump(),
                "name": one.name,
                "writable": writable,
                "default": one is there.default,
            }
            for one in there
        ]
        return json_response({"collections": described})

    @routes.get("/fields", response_model=models.Fields, responses=READ_PROBLEMS)
    async def fields(request: Request, name: CollectionParameter = None) -> Response:
        """List the metadata fields, most frequent first, with their most frequent values."""
        facets = await (await requested_collection(request, name)).current_facets()
        described = [
            {**asdict(facet), "values": [{"value": value, "count": count} for value, count in facet.values]}
            for facet in facets
        ]
        return json_response({"fields": described})

    @routes.get("/documents/{id:anything}", response_model=models.Document, responses=READ_PROBLEMS)
    async def document(request: Request, id_: IdParameter, name: CollectionParameter = None) -> Response:
        """Read a stored document."""
        served = await requested_collection(request, name)
        found = await request.app.state.threads.call(served, lambda: served.retriever.document(id_))
        stored = {key: getattr(found, key) for key in ("id", "title", "text", "metadata")}
        return json_response({"collection": served.name, **stored})

    @routes.post("/documents", response_model=models.Added, responses=BODY_PROBLEMS)
    async def add(request: Request, body: models.AddRequest) -> Response:
        """Add documents, or replace those with the same id. Searches find them at once."""
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

        return json_response(await served.write(change))

    @routes.delete("/documents/{id:anything}", response_model=models.Deleted, responses=BODY_PROBLEMS)
    async def delete(request: Request, id_: IdParameter, name: CollectionParameter = None) -> Response:
        """Delete a document."""
        served = await requested_collection(request, name)
        deleted = await served.write(lambda: served.retriever.delete([id_]))
        if not deleted:
            raise no_document(id_, served.name)
        return json_response({"collection": served.name, "deleted": deleted})

    @routes.get("/card", response_model=Card, responses=READ_PROBLEMS, tags=["card"])
    async def card_json(request: Request, name: CollectionParameter = None) -> Response:
        """Describe a collection: its contents, how it was made, and what was measured."""
        return json_response((await _card(await requested_collection(request, name))).to_json())

    @routes.get("/card.html", response_class=HTMLResponse, responses=READ_PROBLEMS, tags=["card"])
    async def card_html(
        request: Request,
        name: CollectionParameter = None,
        part: Annotated[bool, Query(description="Only the article, to be styled by /card.css.")] = False,
    ) -> HTMLResponse:
        """Show the same as a web page."""
        card = await _card(await requested_collection(request, name))
        if part:
            return HTMLResponse(article(card))
        text = page(card)
        return HTMLResponse(text, headers={"Content-Security-Policy": CARD_POLICY.format(style=_style_hash(text))})

    return routes


async def _card(served: ServedCollection) -> Card:
    return await served.read(served.retriever.card, cache_key="card")


def _style_hash(page: str) -> str:
    """Return the hash that lets a browser apply the page's own style and no other."""
    style = page.partition("<style>")[2].partition("</style>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"
