"""Routes of the map: its state, its points, their colours, and their documents."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response

from retriever.maps.map import Map
from retriever.serve import models
from retriever.serve.collections import Served, ServedCollection, requested_collection
from retriever.serve.maps import CollectionMaps, MapProgress, colour_fields, colours
from retriever.serve.models import Key
from retriever.serve.problems import BODY_PROBLEMS, READ_PROBLEMS, Problem
from retriever.serve.routes.api import json_response
from retriever.serve.settings import LONGEST_FILTER

PASSAGE_SHOWN = 400
OCTETS = "application/octet-stream"

router = APIRouter(prefix="/v1", tags=["map"])


async def maps_of(request: Request, served: Served) -> CollectionMaps:
    by_name: dict[str, CollectionMaps] = request.app.state.maps
    maps = by_name.get(served.name)
    if maps is None or maps.served is not served:
        by_name[served.name] = CollectionMaps(served)
        if maps:  # the folder now contains another collection
            maps.close()
    return by_name[served.name]


Maps = Annotated[CollectionMaps, Depends(maps_of)]
"""The maps of the collection that the URL parameter `collection` names, or of the default."""


@router.get(
    "/map",
    response_model=models.MapReady,
    responses={**READ_PROBLEMS, 202: {"model": models.MapMaking, "description": "The map is being made; try again."}},
)
async def state(maps: Maps) -> Response:
    """Return the newest map of a collection, or the progress of the first map. The first request starts it."""
    served = maps.served
    found = await served.run("slow read", maps.newest)
    if isinstance(found, MapProgress):
        making = {"state": "making", "collection": served.name, "done": found.done, "what": found.what}
        return json_response(making, 202)
    shown, missing = found
    return json_response(
        {
            "state": "ready",
            "collection": served.name,
            "key": shown.key,
            "documents": len(shown),
            "missing": missing,
            "clusters": shown.clusters,
            "fields": colour_fields(await served.current_facets()),
            "kept": shown.kept,
        }
    )


@router.get(
    "/map/points",
    response_class=Response,
    responses={
        **READ_PROBLEMS,
        200: {
            "description": "Three little-endian arrays: x (uint16), y (uint16) and cluster (uint8) of all points.",
            "content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}},
        },
    },
)
async def points(maps: Maps, key: Key) -> Response:
    """Return the coordinates and clusters of all points."""
    shown = maps.named(key)
    parts = (shown.x.astype("<u2"), shown.y.astype("<u2"), shown.cluster)
    return Response(b"".join(part.tobytes() for part in parts), media_type=OCTETS)


@router.get("/map/colours", response_model=models.MapColours, responses=READ_PROBLEMS)
async def point_colours(
    maps: Maps,
    key: Key,
    field: Annotated[str, Query(max_length=LONGEST_FILTER, description="A metadata field.")],
) -> Response:
    """Return the colour of every point by a metadata field."""
    served, shown = maps.served, maps.named(key)

    def read() -> dict[str, Any]:
        found = colours(served.retriever.local.store, shown, field)
        if found is None:
            raise Problem(404, f"no document of the collection {served.name!r} has a metadata field {field!r}.")
        return found

    return json_response(await served.run("slow read", read, cache_key=(key, field)))


@router.get("/map/points/{number}", response_model=models.MapPoint, responses=READ_PROBLEMS)
async def point(maps: Maps, number: Annotated[int, Path(ge=0, le=2**53)], key: Key) -> Response:
    """Return the document of a point."""
    shown = maps.named(key)
    return json_response(await maps.served.run("slow read", lambda: _point(maps.served, shown, number)))


@router.post("/map/locate", response_model=models.Located, responses=BODY_PROBLEMS)
async def locate(request: Request, body: models.LocateRequest) -> Response:
    """Return the number of the point of each document."""
    maps = await maps_of(request, await requested_collection(request, body.collection))
    shown, store = maps.named(body.key), maps.served.retriever.local.store

    def read() -> dict[str, Any]:
        numbers = [store.document_number(id_) for id_ in body.ids]
        return {"numbers": [None if number is None else shown.point_of(number) for number in numbers]}

    return json_response(await maps.served.run("slow read", read))


def _point(served: ServedCollection, shown: Map, number: int) -> dict[str, Any]:
    if number >= len(shown):
        raise Problem(404, f"the map has {len(shown):,} points; there is no point {number}.")
    store = served.retriever.local.store
    document = int(shown.numbers[number])
    stored = store.documents([document]).get(document)
    passages = store.passages_of_documents([document])[document]
    if stored is None or not passages:
        raise Problem(404, "the document of this point was deleted.")
    passage = stored["text"][passages[0].start : passages[0].end][:PASSAGE_SHOWN]
    return {"id": stored["id"], "title": stored["title"], "passage": passage}
