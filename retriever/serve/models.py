"""What goes over the wire: the requests, checked field by field, and the answers, as OpenAPI describes them."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from retriever.serve import settings

# ---- requests ------------------------------------------------------------------------------------------------


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; say in a few words what you look for.")
    return text


# A NUL would end the text in SQLite, and no stored id has one.
WITHOUT_NUL = r"^[^\x00]*$"

Query = Annotated[
    str,
    Field(min_length=1, max_length=settings.LONGEST_QUERY, description="What to look for, in a few words."),
    AfterValidator(_said),
]
Name = Annotated[
    str | None,
    Field(max_length=settings.LONGEST_NAME, description="The collection; the default one where none is named."),
]
Hits = Annotated[int, Field(ge=1, le=settings.MOST_HITS, description="How many hits.")]
Filters = Annotated[
    list[Annotated[str, Field(max_length=settings.LONGEST_FILTER)]],
    Field(
        max_length=settings.MOST_FILTERS,
        description="Filters over metadata, such as `year >= 2020` or `lang in (en, de)`; all must fit.",
    ),
]
Id = Annotated[str, Field(min_length=1, max_length=settings.LONGEST_ID, pattern=WITHOUT_NUL)]


class Request(BaseModel):
    """A body: fields that are not known are refused, and no value is taken for another kind."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SearchOptions(Request):
    """How to search."""

    collection: Name = None
    k: Hits = 10
    mode: Annotated[
        Literal["dense", "lexical", "hybrid"], Field(description="By meaning, by words (BM25), or by both.")
    ] = "dense"
    where: Filters = []
    space: Annotated[
        Literal["index", "raw"], Field(description="Compare through the transform, or as the encoder gave the vectors.")
    ] = "index"
    highlight: Annotated[bool, Field(description="Mark the sentence of each hit that is nearest to the query.")] = False
    min_score: Annotated[float | None, Field(allow_inf_nan=False, description="Leave out hits with a lower score.")] = (
        None
    )


class SearchRequest(SearchOptions):
    """One query."""

    query: Query


class BatchRequest(SearchOptions):
    """Many queries, searched in the same way."""

    queries: Annotated[list[Query], Field(min_length=1, max_length=settings.MOST_QUERIES)]


class SimilarRequest(Request):
    """A stored document to find the like of."""

    id: Id
    collection: Name = None
    k: Hits = 10
    where: Filters = []


class NewDocument(Request):
    """A document to be added, or to replace the one with its id."""

    id: Id
    text: Annotated[str, Field(min_length=1)]
    title: str = ""
    metadata: dict[str, Any] = {}


class AddRequest(Request):
    """Documents to be added."""

    collection: Name = None
    documents: Annotated[list[NewDocument], Field(min_length=1, max_length=settings.MOST_DOCUMENTS)]


# ---- answers -------------------------------------------------------------------------------------------------


class Reply(BaseModel):
    """An answer: it has these fields, all of them, and no others."""

    model_config = ConfigDict(extra="forbid")


class Collection(Reply):
    """A collection that is served."""

    name: str
    documents: int
    passages: int
    encoder: str
    transform: str
    generation: int | None
    writable: bool
    default: bool
    problem: Annotated[str | None, Field(description="Why it cannot be read; its counts are then the last known.")]


class Collections(Reply):
    collections: list[Collection]


class FieldValue(Reply):
    value: str | int | float | bool
    count: int


class MetadataField(Reply):
    """A metadata field, with its commonest values."""

    name: str
    documents: int
    values: list[FieldValue]
    more: Annotated[bool, Field(description="Whether it has other values than these.")]


class Fields(Reply):
    fields: list[MetadataField]


class Hit(Reply):
    """A document found, by the passage that is nearest. Offsets count Unicode code points."""

    rank: int
    score: float
    id: str
    title: str
    passage: str
    start: int
    end: int
    metadata: dict[str, Any]
    highlight: Annotated[tuple[int, int] | None, Field(description="A sentence of the passage, as offsets in it.")]


class SearchAnswer(Reply):
    """The hits of a query."""

    collection: str
    query: str
    mode: str
    space: str
    hits: list[Hit]
    novelty: Annotated[float | None, Field(description="How unlike the collection's text the query is.")]
    limit: Annotated[float | None, Field(description="What ordinary short texts stay below.")]
    strange: Annotated[bool, Field(description="Whether the query is far outside: then the hits mean little.")]
    generation: int | None
    took_ms: float


class SimilarAnswer(Reply):
    """The documents nearest to a stored one."""

    collection: str
    id: str
    hits: list[Hit]
    generation: int | None
    took_ms: float


class Document(Reply):
    """A stored document, whole."""

    collection: str
    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class Skipped(Reply):
    """A document that was not stored."""

    where: str
    reason: str


class Added(Reply):
    """What adding did."""

    collection: str
    new: int
    changed: int
    unchanged: int
    duplicate_ids: int
    skipped: list[Skipped]
    generation: int | None


class Deleted(Reply):
    collection: str
    deleted: list[str]


class State(Reply):
    """How the server is."""

    state: Annotated[str, Field(description="`ok`, or why nothing is answered yet or any more.")]
