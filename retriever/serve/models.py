"""The requests and replies of the API. FastAPI validates requests with these models and describes them in OpenAPI."""

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from retriever.corpus import Skipped
from retriever.hits import Hit, Mode, Space
from retriever.maps.map import Cluster, Preserved
from retriever.search.facets import Facet
from retriever.serve import settings


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; describe in a few words what to search for.")
    return text


# No stored id contains a NUL character.
WITHOUT_NUL = r"^[^\x00]*$"

QueryText = Annotated[
    str,
    Field(min_length=1, max_length=settings.LONGEST_QUERY, description="What to search for, in a few words."),
    AfterValidator(_not_blank),
]
CollectionName = Annotated[
    str | None, Field(max_length=settings.LONGEST_NAME, description="The collection. Default: the first one.")
]
HitCount = Annotated[int, Field(ge=1, le=settings.MOST_HITS, description="Number of hits.")]
Filters = Annotated[
    list[Annotated[str, Field(max_length=settings.LONGEST_FILTER)]],
    Field(
        max_length=settings.MOST_FILTERS,
        description="Filters on metadata, e.g. `year >= 2020` or `lang in (en, de)`. All must match.",
    ),
]
Id = Annotated[str, Field(min_length=1, max_length=settings.LONGEST_ID, pattern=WITHOUT_NUL)]
Key = Annotated[str, Field(max_length=64, description="The key of a map, from /v1/map.")]

# Parameters in the URL.
CollectionParameter = Annotated[CollectionName, Query(alias="collection")]
IdParameter = Annotated[
    str, Path(alias="id", min_length=1, max_length=settings.LONGEST_ID, description="May contain slashes.")
]


class Request(BaseModel):
    """A request body. Unknown fields and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SearchOptions(Request):
    collection: CollectionName = None
    k: HitCount = 10
    mode: Annotated[Mode, Field(description="By meaning, by words (BM25), or by both.")] = "dense"
    where: Filters = []
    space: Annotated[Space, Field(description="Compare transformed vectors, or the encoder's raw vectors.")] = "index"
    highlight: Annotated[bool, Field(description="Mark the sentence of each hit that fits the query best.")] = False
    min_score: Annotated[float | None, Field(allow_inf_nan=False, description="Omit hits with a lower score.")] = None


class SearchRequest(SearchOptions):
    query: QueryText


class BatchRequest(SearchOptions):
    """Many queries with the same options."""

    queries: Annotated[list[QueryText], Field(min_length=1, max_length=settings.MOST_QUERIES)]


class SimilarRequest(Request):
    """A request for documents that are similar to a stored document."""

    id: Id
    collection: CollectionName = None
    k: HitCount = 10
    where: Filters = []


class NewDocument(Request):
    """A document to add. It replaces the document with the same id."""

    id: Id
    text: Annotated[str, Field(min_length=1)]
    title: str = ""
    metadata: dict[str, Any] = {}


class AddRequest(Request):
    collection: CollectionName = None
    documents: Annotated[list[NewDocument], Field(min_length=1, max_length=settings.MOST_DOCUMENTS)]


class LocateRequest(Request):
    collection: CollectionName = None
    key: Key
    ids: Annotated[list[Annotated[str, Field(max_length=settings.LONGEST_ID)]], Field(max_length=settings.MOST_HITS)]


class Reply(BaseModel):
    """A reply. It has all fields of its model and no others."""

    model_config = ConfigDict(extra="forbid")


class FieldProblem(Reply):
    field: str
    reason: str


class ProblemDetails(Reply):
    """An error: its status, what is wrong, and which fields of the request are invalid."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem]


class Collection(Reply):
    name: str
    documents: int
    passages: int
    encoder: str
    transform: str
    generation: int | None
    writable: bool
    default: bool
    problem: Annotated[str | None, Field(description="Why it cannot be read. Its counts are then the last known ones.")]


class Collections(Reply):
    collections: list[Collection]


class Fields(Reply):
    fields: list[Facet]


class SearchAnswer(Reply):
    """The hits of a query. Offsets count Unicode code points."""

    collection: str
    query: str
    mode: str
    space: str
    hits: list[Hit]
    novelty: Annotated[float | None, Field(description="How much the query differs from the collection's texts.")]
    limit: Annotated[float | None, Field(description="The highest novelty that is normal for short texts.")]
    strange: Annotated[bool, Field(description="True if the novelty exceeds the limit, so hits may be irrelevant.")]
    generation: int | None
    took_ms: float


class SimilarAnswer(Reply):
    collection: str
    id: str
    hits: list[Hit]
    generation: int | None
    took_ms: float


class Document(Reply):
    collection: str
    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class Added(Reply):
    """Counts of the documents that were added."""

    collection: str
    new: int
    changed: int
    unchanged: int
    duplicate_ids: int
    skipped: Annotated[list[Skipped], Field(description="Documents that were not stored.")]
    generation: int | None


class Deleted(Reply):
    collection: str
    deleted: list[str]


class State(Reply):
    state: Annotated[str, Field(description="`ok`.")]


class MapReady(Reply):
    state: Literal["ready"]
    collection: str
    key: str
    documents: int
    missing: Annotated[int, Field(description="Documents of the collection that are not on the map.")]
    clusters: list[Cluster]
    fields: Annotated[list[str], Field(description="Metadata fields to colour the map by.")]
    kept: Preserved


class MapMaking(Reply):
    state: Literal["making"]
    collection: str
    done: Annotated[float, Field(description="From 0 to 1.")]
    what: str


class MapColours(Reply):
    """A colour per point. `codes` is the Base64 of one byte per point; 255 means no colour.

    For a category, the byte is an index in `values`. For a number, 0 to 254 is a scale from `least` to `greatest`.
    """

    kind: Literal["category", "number"]
    codes: str
    values: list[str] | None = None
    least: float | None = None
    greatest: float | None = None


class MapPoint(Reply):
    id: str
    title: str
    passage: str


class Located(Reply):
    numbers: Annotated[
        list[int | None],
        Field(description="The number of the point of each id; null if the document is not on the map."),
    ]
