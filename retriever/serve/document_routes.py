"""The routes of collections and documents: what is served, what it holds, and, where allowed, changing it."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from starlette.convertors import PathConvertor, register_url_convertor

from retriever.corpus import Skipped
from retriever.errors import NoDocuments
from retriever.ingest.pipeline import SKIPPED_KEPT, IngestReport
from retriever.serve import models
from retriever.serve.places import Place, ServedCollections, chosen
from retriever.serve.problems import Problem, documented
from retriever.serve.search_routes import json_response
from retriever.serve.settings import LONGEST_ID, LONGEST_NAME

NamedCollection = Annotated[
    str | None,
    Query(alias="collection", max_length=LONGEST_NAME, description="The default one where none is named."),
]
DocumentId = Annotated[
    str, Path(alias="id", min_length=1, max_length=LONGEST_ID, description="May hold slashes and anything else.")
]
READING = documented(400, 401, 403, 404, 422, 429, 431, 500, 503)
WRITING = documented(400, 401, 403, 404, 408, 413, 415, 422, 429, 431, 500, 503)


class Anything(PathConvertor):
    """The rest of a path, line breaks included, which an id may hold too."""

    regex = "(?s:.*)"


def router() -> APIRouter:
    register_url_convertor("anything", Anything())
    routes = APIRouter(prefix="/v1", tags=["documents"])

    @routes.get("/collections", response_model=models.Collections, responses=READING)
    async def collections(request: Request) -> Response:
        """The collections that are served; the first is the default."""
        served: ServedCollections = request.app.state.collections
        return json_response({"collections": [await _described(request, one) for one in served]})

    @routes.get("/fields", response_model=models.Fields, responses=READING)
    async def fields(request: Request, name: NamedCollection = None) -> Response:
        """The metadata fields, the most common first, with their commonest values."""
        facets = await (await chosen(request, name)).current_facets()
        return json_response(
            {
                "fields": [
                    {
                        "name": facet.name,
                        "documents": facet.documents,
                        "values": [{"value": value, "count": count} for value, count in facet.values],
                        "more": facet.more,
                    }
                    for facet in facets
                ]
            }
        )

    @routes.get("/documents/{id:anything}", response_model=models.Document, responses=READING)
    async def document(request: Request, id_: DocumentId, name: NamedCollection = None) -> Response:
        """A stored document, whole."""
        served = await chosen(request, name)
        found = await request.app.state.searchers.call(served, lambda: served.retriever.document(id_))
        return json_response(
            {
                "collection": served.name,
                "id": found.id,
                "title": found.title,
                "text": found.text,
                "metadata": found.metadata,
            }
        )

    @routes.post("/documents", response_model=models.Added, responses=WRITING)
    async def add(request: Request, body: models.AddRequest) -> Response:
        """Add documents, or replace those with the same id; a search finds them at once."""
        served = await chosen(request, body.collection)
        documents = [one.model_dump() for one in body.documents]

        def change() -> dict[str, Any]:
            try:
                report = served.retriever.add(documents)
            except NoDocuments as error:
                skipped = [Skipped(*reason) for reason in error.reasons]
                report = IngestReport(skipped=len(skipped), skipped_list=skipped[:SKIPPED_KEPT])
            return {
                "collection": served.name,
                "new": report.new,
                "changed": report.changed,
                "unchanged": report.unchanged,
                "duplicate_ids": report.duplicate_ids,
                "skipped": [{"where": one.where, "reason": one.reason} for one in report.skipped_list],
                "generation": served.generation,
            }

        return json_response(await served.write(change))

    @routes.delete("/documents/{id:anything}", response_model=models.Deleted, responses=WRITING)
    async def delete(request: Request, id_: DocumentId, name: NamedCollection = None) -> Response:
        """Delete a document."""
        served = await chosen(request, name)
        deleted = await served.write(lambda: served.retriever.delete([id_]))
        if not deleted:
            raise Problem(404, f"there is no document {id_!r} in the collection {served.name!r}.")
        return json_response({"collection": served.name, "deleted": deleted})

    return routes


async def _described(request: Request, served: Place) -> dict[str, Any]:
    facts = await served.facts()
    return {
        "name": served.name,
        "documents": facts.documents,
        "passages": facts.passages,
        "encoder": facts.encoder,
        "transform": facts.transform,
        "generation": facts.generation,
        "writable": request.app.state.settings.writable,
        "default": served is request.app.state.collections.default,
        "problem": facts.problem,
    }
