"""The options and the results of a search: hits, and answers, which add the novelty of the query."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypedDict, overload

if TYPE_CHECKING:
    from retriever.encoder.reranker import Reranker

Mode = Literal["dense", "lexical", "hybrid"]
Space = Literal["index", "raw"]


class Options(TypedDict, total=False):
    """The keyword options of a search. `Retriever.search` explains them."""

    mode: Mode
    where: Sequence[str]
    min_score: float | None
    space: Space
    highlight: bool
    rerank: "Reranker | None"


@dataclass(frozen=True, slots=True)
class Hit:
    """One document found by a search, with its best passage."""

    rank: int
    score: float
    """The score of the reranker, if one was used. Otherwise it depends on the mode.

    dense: the cosine. lexical: BM25. hybrid: the weighted sum of both surprises in nats.
    """
    id: str
    title: str
    passage: str
    start: int
    """Offset of the passage in the text of the document, in characters."""
    end: int
    metadata: dict[str, Any]
    highlight: tuple[int, int] | None = None
    """Start and end, within the passage, of the sentence that fits the query best. None without `highlight`."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def _repr_html_(self) -> str:
        return Hits([self])._repr_html_()


class Hits(list[Hit]):
    """A list of hits, best first. Notebooks show the list, and any slice of it, as a table."""

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> Hit: ...
    @overload
    def __getitem__(self, place: slice, /) -> "Hits": ...
    def __getitem__(self, place: SupportsIndex | slice, /) -> "Hit | Hits":
        return Hits(super().__getitem__(place)) if isinstance(place, slice) else super().__getitem__(place)

    def _repr_html_(self) -> str:
        from retriever.notebook import hits_html

        return hits_html([hit.to_json() for hit in self])


@dataclass(frozen=True, slots=True)
class Answer:
    """The hits of one query, and how far the query is from the text that the transform was fitted on."""

    hits: Hits
    novelty: float | None
    """Negative log-likelihood in bits per dimension. None if the collection has no measurements of ordinary text."""
    limit: float | None
    """The novelty above which the query counts as strange. None if it is unknown or if the query is too short."""
    strange: bool
    """Whether the query is unlike all text of the collection, so that its hits mean little."""
