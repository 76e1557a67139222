"""The routes of the map: whether it is there, its points, their colours, and which document is where."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, FastAPI, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from retriever.maps.mapping import Map
from retriever.serve.document_routes import READING, NamedCollection
from retriever.serve.map_colours import colours, usable
from retriever.serve.map_making import Making, Maps
from retriever.serve.models import Name
from retriever.serve.places import chosen
from retriever.serve.problems import Problem, documented, problem_of
from retriever.serve.search_routes import json_response
from retriever.serve.settings import LONGEST_FILTER, LONGEST_ID, MOST_HITS

PASSAGE_SHOWN = 400
OCTETS = "application/octet-stream"
ASKING = {**READING, **documented(408, 413, 415)}

Key = Annotated[str, Query(max_length=64, description="Which map, as /v1/map named it.")]
Result = TypeVar("Result")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class MapCluster(_Strict):
    number: int
    label: str
    documents: int


class MapKept(_Strict):
    """The share of a document's ten nearest that are among its 10 and its 50 nearest on the map."""

    within_10: float | None
    within_50: float | None
    measured_on: int


class MapReady(_Strict):
    state: Literal["ready"]
    collection: str
    key: str
    documents: int
    missing: int
    clusters: list[MapCluster]
    fields: list[str]
    kept: MapKept


class MapMaking(_Strict):
    state: Literal["making"]
    collection: str
    done: float
    what: str


class MapColours(_Strict):
    """Codes are base64 of one byte a point, 255 for none: numbers of `values`, or places along the scale up to 254."""

    kind: Literal["category", "number"]
    codes: str
    values: list[str] | None = None
    least: float | None = None
    greatest: float | None = None


class MapPoint(_Strict):
    id: str
    title: str
    passage: str


class LocateRequest(_Strict):
    collection: Name = None
    key: Annotated[str, Field(max_length=64)]
    ids: Annotated[list[Annotated[str, Field(max_length=LONGEST_ID)]], Field(max_length=MOST_HITS)]


class Located(_Strict):
    numbers: list[int | None]


def router() -> APIRouter:
    all_maps: dict[str, Maps] = {}

    @asynccontextmanager
    async def closing(app: FastAPI) -> AsyncIterator[None]:
        yield
        for maps in all_maps.values():
            await asyncio.to_thread(maps.close)

    routes = APIRouter(prefix="/v1", tags=["map"], lifespan=closing)

    async def of(request: Request, name: str | None) -> Maps:
        served = await chosen(request, name)
        maps = all_maps.get(served.name)
        if maps is None or maps.served is not served:
            all_maps[served.name] = Maps(served)
            if maps:  # another collection lies there now
                asyncio.get_running_loop().run_in_executor(None, maps.close)
        return all_maps[served.name]

    @routes.get(
        "/map",
        response_model=MapReady,
        responses={**READING, 202: {"model": MapMaking, "description": "It is being made; ask again."}},
    )
    async def state(request: Request, name: NamedCollection = None) -> Response:
        """The map of a collection, or how far it is; asking starts making it."""
        maps = await of(request, name)
        found = await _read(maps, maps.look)
        if isinstance(found, Making):
            making = {"state": "making", "collection": maps.served.name, "done": found.done, "what": found.what}
            answer = json_response(making)
            answer.status_code = 202
            return answer
        shown, missing = found
        return json_response(
            {
                "state": "ready",
                "collection": maps.served.name,
                "key": shown.key,
                "documents": len(shown),
                "missing": missing,
                "clusters": [
                    {"number": one.number, "label": one.label, "documents": one.documents} for one in shown.clusters
                ],
                "fields": usable(await maps.served.current_facets()),
                "kept": {
                    "within_10": shown.kept.within_10,
                    "within_50": shown.kept.within_50,
                    "measured_on": shown.kept.measured_on,
                },
            }
        )

    @routes.get(
        "/map/points",
        response_class=Response,
        responses={
            **READING,
            200: {
                "description": "Little-endian: uint16 x of every point, uint16 y, uint8 cluster (255 for none).",
                "content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}},
            },
        },
    )
    async def points(request: Request, key: Key, name: NamedCollection = None) -> Response:
        """All points at once."""
        shown = (await of(request, name)).named(key)
        parts = (shown.x.astype("<u2"), shown.y.astype("<u2"), shown.cluster)
        return Response(b"".join(part.tobytes() for part in parts), media_type=OCTETS)

    @routes.get("/map/colours", response_model=MapColours, responses=READING)
    async def colouring(
        request: Request,
        key: Key,
        field: Annotated[str, Query(max_length=LONGEST_FILTER, description="A metadata field.")],
        name: NamedCollection = None,
    ) -> Response:
        """A colour for every point, by a metadata field."""
        maps = await of(request, name)
        shown = maps.named(key)
        store = maps.served.retriever.local.store

        def look() -> dict[str, Any]:
            return maps.remembered((key, field), lambda: _coloured(maps, colours(store, shown, field), field))

        return json_response(await _read(maps, look))

    @routes.get("/map/points/{number}", response_model=MapPoint, responses=READING)
    async def point(
        request: Request, number: Annotated[int, Path(ge=0, le=2**53)], key: Key, name: NamedCollection = None
    ) -> Response:
        """The document that a point stands for."""
        maps = await of(request, name)
        shown = maps.named(key)
        return json_response(await _read(maps, lambda: _point(maps, shown, number)))

    @routes.post("/map/locate", response_model=Located, responses=ASKING)
    async def locate(request: Request, body: LocateRequest) -> Response:
        """The points of documents by their ids; null for one that is not on the map."""
        maps = await of(request, body.collection)
        shown = maps.named(body.key)
        store = maps.served.retriever.local.store

        def look() -> dict[str, Any]:
            found = [store.document_number(id_) for id_ in body.ids]
            return {"numbers": [None if number is None else shown.place_of(number) for number in found]}

        return json_response(await _read(maps, look))

    return routes


async def _read(maps: Maps, look: Callable[[], Result]) -> Result:
    """What a call finds in the thread that reads for the map."""
    try:
        return await asyncio.get_running_loop().run_in_executor(maps.reading, look)
    except Problem:
        raise
    except Exception as error:
        raise problem_of(error, maps.served.name) from error


def _coloured(maps: Maps, found: dict[str, Any] | None, field: str) -> dict[str, Any]:
    if found is None:
        raise Problem(404, f"no document of the collection {maps.served.name!r} has a metadata field {field!r}.")
    return found


def _point(maps: Maps, shown: Map, number: int) -> dict[str, Any]:
    if number >= len(shown):
        raise Problem(404, f"the map has {len(shown):,} points, and none numbered {number}.")
    store = maps.served.retriever.local.store
    document = int(shown.numbers[number])
    stored = store.documents([document]).get(document)
    passages = store.passages_of_documents([document])[document]
    if stored is None or not passages:
        raise Problem(404, "the document of this point was deleted.")
    passage = stored["text"][passages[0].start : passages[0].end][:PASSAGE_SHOWN]
    return {"id": stored["id"], "title": stored["title"], "passage": passage}
