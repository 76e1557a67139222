"""The options and the results of a search.

A result is a list of hits, or an answer, which also has the novelty of the query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, Protocol, SupportsIndex, TypedDict, overload

from retriever.corpus.document import Json
from retriever.corpus.structure import NOWHERE, Place
from retriever.errors import requires_extra

if TYPE_CHECKING:
    import pandas
    import polars
    from numpy.typing import ArrayLike

Mode = Literal["dense", "lexical", "hybrid"]
Space = Literal["index", "raw"]
Where = Sequence[str] | Mapping[str, str | int | float | bool]
"""Filters over metadata: a list of texts such as `year >= 2020`, or a dict for equality such as `{"lang": "en"}`."""


class Reranks(Protocol):
    """What orders hits again: a `retriever.encoder.reranker.Reranker`, or any object with this method."""

    def scores(self, query: str, texts: Sequence[str], /) -> "ArrayLike":
        """Score how well each text answers the query. Higher is better."""


class Options(TypedDict, total=False):
    """The keyword options of a search. `Retriever.search` explains them."""

    mode: Mode
    where: Where
    min_score: float | None
    space: Space
    highlight: bool
    explain: bool
    rerank: str | Reranks | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a hit has its score: what each side of the search found. A side that was not searched has None."""

    meaning: float | None = None
    """How near the passage is to the query, 0 to 100. 0 is a random passage, 100 one with the same vector."""
    meaning_rank: int | None = None
    """The rank by meaning alone. None if the document is not among the best by meaning."""
    cosine: float | None = None
    words: float | None = None
    """How many of the query's words the document has, 0 to 100. Rare words count more."""
    words_rank: int | None = None
    """The rank by words alone. None if the document is not among the best by words."""
    bm25: float | None = None
    matched: tuple[str, ...] = ()
    """The words of the query that the document contains. Of a long text, the first 100,000 characters are read."""
    same_id: bool = False
    """Whether the query is the id of the document, so that it comes first with a `relevance` of 100."""
    weight: float | None = None
    """The weight of meaning in the score, 0 to 1. Words have the rest."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One document found by a search, with its best passage.

    >>> hit = pets.search("an animal that catches mice")[0]
    >>> hit.id, hit.passage[hit.start:hit.end], hit.metadata
    ('cat', 'Cats purr and hunt mice.', {'legs': 4})
    """

    rank: int
    score: float
    """The exact score, by which hits are ordered. Its scale depends on the mode.

    dense: the cosine. lexical: BM25. hybrid: the weighted power mean of both sides, at most 1. A document whose id is
    the query has the highest possible score. With a reranker: its score.
    """
    relevance: float
    """The score for people, 0 to 100, with one meaning in every mode.

    0 is no better than a random document. 100 is a document with the vector of the query, or with every word of the
    query many times, or whose id is the query.
    """
    id: str
    title: str
    passage: str
    start: int
    """Offset of the passage in the text of the document, in characters."""
    end: int
    metadata: dict[str, Json]
    place: Place = NOWHERE
    """The file of the passage, and as far as known its line, its page, and the headings that it is under."""
    highlight: tuple[int, int] | None = None
    """Start and end, within the passage, of the sentence that fits the query best. None without `highlight`."""
    explanation: Explanation | None = None
    """Why the hit has its score. None without `explain`."""

    def to_json(self) -> dict[str, Json]:
        """Return the fields of the hit as values for JSON."""
        return asdict(self)

    def _repr_html_(self) -> str:
        return Hits([self])._repr_html_()


COLUMNS = ("rank", "relevance", "score", "id", "title", "passage", "start", "end")
"""The fields of a hit that are columns of a frame. The metadata follows."""


class Hits(list[Hit]):
    """A list of hits, best first. Notebooks show the list, and any slice of it, as a table.

    >>> hits = pets.search("an animal that catches mice", k=2)
    >>> [hit.rank for hit in hits]
    [1, 2]
    >>> hits[:1].to_pandas()[["rank", "id", "legs"]].to_dict("records")
    [{'rank': 1, 'id': 'cat', 'legs': 4}]
    """

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> Hit: ...
    @overload
    def __getitem__(self, place: slice, /) -> "Hits": ...
    def __getitem__(self, place: SupportsIndex | slice, /) -> "Hit | Hits":
        return Hits(super().__getitem__(place)) if isinstance(place, slice) else super().__getitem__(place)

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a pandas frame with a row for each hit. Every field of the metadata is a column of its own.

        A field with the name of another column, e.g. `score`, is in the column `metadata.score`.
        """
        with requires_extra("frames", "`to_pandas`"):
            import pandas

        rows, columns = self._rows()
        return pandas.DataFrame(rows, columns=columns)

    def to_polars(self) -> "polars.DataFrame":
        """Return a polars frame with the columns of `to_pandas`."""
        with requires_extra("frames", "`to_polars`"):
            import polars

        rows, columns = self._rows()
        values = {name: [row.get(name) for row in rows] for name in columns}
        return polars.DataFrame([polars.Series(name, own, strict=False) for name, own in values.items()])

    def _rows(self) -> tuple[list[dict[str, Json]], list[str]]:
        rows: list[dict[str, Json]] = []
        for hit in self:
            own: dict[str, Json] = {name: getattr(hit, name) for name in COLUMNS}
            named = {f"metadata.{name}" if name in COLUMNS else name: value for name, value in hit.metadata.items()}
            rows.append(own | named)
        return rows, list(dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)]))

    def _repr_html_(self) -> str:
        from retriever.notebook import hits_html

        return hits_html([hit.to_json() for hit in self])


@dataclass(frozen=True, slots=True)
class Answer:
    """The hits of one query, and how far the query is from the text that the transform was fitted on.

    >>> answer = pets.answer_many(["mice"])[0]
    >>> answer.hits[0].id, answer.strange, answer.note
    ('cat', False, '')
    """

    hits: Hits
    novelty: float | None
    """Negative log-likelihood in bits per dimension. None if the collection has no measurements of ordinary text."""
    limit: float | None
    """The novelty above which the query counts as strange. None if it is unknown or if the query is too short."""
    strange: bool
    """Whether the query is unlike all text of the collection, so that its hits mean little."""
    note: str = ""
    """What the reader of the hits should know, e.g. that no document has a word of the query. Often empty."""
    suggestion: str | None = None
    """The query with known words in place of unknown ones. None if a word of the query is known."""
