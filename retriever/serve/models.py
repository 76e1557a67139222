"""The requests and replies of the API. FastAPI validates requests with these models and describes them in OpenAPI."""

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from retriever.corpus import Skipped
from retriever.corpus.structure import Place
from retriever.hits import Hit, Mode, Space
from retriever.maps.map import Cluster, Preserved
from retriever.search.facets import FieldValue, RangedFacet
from retriever.serve import settings


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; describe in a few words what to search for.")
    return text


def _texts(given: Any) -> Any:
    """Return one text as a list. Refuse tokens, which OpenAI accepts."""
    first = given[0] if isinstance(given, list) and given else None
    if isinstance(first, int) or (isinstance(first, list) and first and isinstance(first[0], int)):
        raise ValueError(
            "has tokens, which belong to the tokenizer of another model; send texts. In LangChain: "
            "OpenAIEmbeddings(check_embedding_ctx_length=False)."
        )
    return [given] if isinstance(given, str) else given


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; leave it out.")
    return text


MOST_UNKNOWN = 3
"""Maximum number of unknown fields that are named one by one."""

# No stored id contains a NUL character.
WITHOUT_NUL = r"^[^\x00]*$"

QueryText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=settings.LONGEST_QUERY,
        description="What to search for, in a few words. Words in double quotes must occur together, unless the mode "
        "is `dense` or no document has them.",
    ),
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

Encoding = Literal["float", "base64"]
"""How a vector is written in JSON: as a list of numbers, or as the Base64 of little-endian 32-bit floats."""
TextToEmbed = Annotated[
    str,
    Field(min_length=1, max_length=settings.LONGEST_INPUT, description="A text to embed."),
    AfterValidator(_not_empty),
]
TextsToEmbed = Annotated[list[TextToEmbed], Field(min_length=1, max_length=settings.MOST_INPUTS)]

# Parameters in the URL.
CollectionParameter = Annotated[CollectionName, Query(alias="collection")]
IdParameter = Annotated[
    str, Path(alias="id", min_length=1, max_length=settings.LONGEST_ID, description="May contain slashes.")
]


class Request(BaseModel):
    """A request body. Unknown fields and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _name_unknown_fields_once(cls, given: Any) -> Any:
        """Refuse many unknown fields by one problem, because a problem for each would take the server seconds."""
        if isinstance(given, dict) and len(given) > len(cls.model_fields) + MOST_UNKNOWN:
            unknown = [name for name in given if name not in cls.model_fields]
            raise ValueError(f"has {len(unknown):,} unknown fields, e.g. {unknown[0][:100]!r}.")
        return given


class SearchOptions(Request):
    collection: CollectionName = None
    k: HitCount = 10
    mode: Annotated[
        Mode, Field(description="`hybrid`: by meaning and words. `dense`: by meaning. `lexical`: by words (BM25).")
    ] = "hybrid"
    where: Filters = []
    space: Annotated[Space, Field(description="Compare transformed vectors, or the encoder's raw vectors.")] = "index"
    highlight: Annotated[bool, Field(description="Mark the sentence of each hit that fits the query best.")] = False
    explain: Annotated[bool, Field(description="Explain each hit: what meaning and words found.")] = False
    min_score: Annotated[
        float | None,
        Field(
            ge=0, le=100, allow_inf_nan=False, description="Omit hits with a lower `relevance`, 0 to 100 in every mode."
        ),
    ] = None


class SearchRequest(SearchOptions):
    query: QueryText


class SearchParameters(SearchOptions):
    """The parameters of a search in a URL, where every value is a text."""

    model_config = ConfigDict(strict=False)
    q: QueryText


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


class EmbeddingsRequest(Request):
    """A request as OpenAI's clients send it."""

    model: Annotated[
        str, Field(max_length=settings.LONGEST_NAME, description="The collection whose encoder and transform are used.")
    ]
    input: Annotated[
        TextsToEmbed,
        BeforeValidator(_texts, json_schema_input_type=TextToEmbed | TextsToEmbed),
        Field(description="One or several texts. Tokens are refused."),
    ]
    input_type: Annotated[
        Literal["document", "query"],
        Field(description="Some encoders put another prompt before a query than before a passage of a document."),
    ] = "document"
    encoding_format: Annotated[Encoding, Field(description="`base64`: the Base64 of little-endian 32-bit floats.")] = (
        "float"
    )
    dimensions: Annotated[
        int | None, Field(ge=1, description="The vectors cannot be shortened: only their own length is accepted.")
    ] = None
    user: Annotated[str | None, Field(max_length=settings.LONGEST_NAME, description="Ignored.")] = None


class LocateRequest(Request):
    collection: CollectionName = None
    key: Key
    ids: Annotated[list[Annotated[str, Field(max_length=settings.LONGEST_ID)]], Field(max_length=settings.MOST_HITS)]


class Reply(BaseModel):
    """A reply. It has all fields of its model and no others."""

    # OpenAPI then also describes the fields of hits, by their docstrings.
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class FieldProblem(Reply):
    field: str
    reason: str


class OpenAIError(Reply):
    message: str
    type: str
    param: str | None
    code: str | None


class ProblemDetails(Reply):
    """An error: its status, what is wrong, and which fields of the request are invalid."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem]
    error: Annotated[
        OpenAIError | None, Field(description="The error as OpenAI's clients read it; only from /v1/embeddings.")
    ] = None


class Collection(Reply):
    name: str
    title: Annotated[str | None, Field(description="What people call it, if it was given a title.")]
    description: str | None
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


class Examples(Reply):
    examples: Annotated[list[str], Field(description="At most three questions or phrases from its documents.")]


class Fields(Reply):
    fields: list[RangedFacet]


class FieldValues(Reply):
    values: list[FieldValue]
    more: Annotated[bool, Field(description="Whether there are further values.")]


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
    note: Annotated[str, Field(description="What the reader should know about the hits. Often empty.")]
    suggestion: Annotated[
        str | None, Field(description="The query with known words, if no document has a word of the query.")
    ]
    generation: int | None
    took_ms: float


class Embedding(Reply):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(Reply):
    prompt_tokens: int
    total_tokens: int


class Embeddings(Reply):
    """Vectors of length one, in the order of the texts. Their cosine is that of a search in the collection."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage
    fingerprint: Annotated[
        str, Field(description="Of the transform. Only vectors with the same fingerprint can be compared.")
    ]


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
    place: Annotated[Place, Field(description="The file, line, page and headings of the offset `start`.")]


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
