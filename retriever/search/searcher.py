"""The query path: text in, ranked documents with their best passage out."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypedDict, get_args, overload

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import is_unicode
from indexes.faiss.vectors import unit_rows
from indexes.folder.generation import Generation
from indexes.folder.space import Apply, Match
from indexes.protocol import AnyCollection, AnySpace, AnyStore
from indexes.sqlite.conditions import Condition
from indexes.sqlite.filters import parse
from retriever.corpus.passages import encoded_text, sentences
from retriever.encoder.encoder import Encoder
from retriever.errors import BadFilter, Misuse, NoSuchDocument
from retriever.ingest.publishing import load_transform
from retriever.search.fusion import fused, trust
from retriever.transforms import Transform
from retriever.transforms.novelty import Novelty

if TYPE_CHECKING:
    from retriever.encoder.reranker import Reranker

Mode = Literal["dense", "lexical", "hybrid"]
Space = Literal["index", "raw"]

RERANKED = 50
"""How many hits a cross-encoder looks at, where fewer are asked for."""

LONGEST_QUERY = 1_000_000


class Options(TypedDict, total=False):
    """How to search, beside the queries and the number of hits; see `Searcher.search`."""

    mode: Mode
    where: Sequence[str]
    min_score: float | None
    space: Space
    highlight: bool
    rerank: "Reranker | None"


@dataclass(frozen=True, slots=True)
class Hit:
    """A document found: where it ranks, how near it is, and the passage that is nearest."""

    rank: int
    score: float
    """Dense: cosine. Lexical: BM25. Hybrid: nats, see `retriever.search.fusion`. Of a reranker: what it gives."""
    id: str
    title: str
    passage: str
    start: int
    """Where the passage starts in the document's text, in characters."""
    end: int
    metadata: dict[str, Any]
    highlight: tuple[int, int] | None = None
    """The passage's sentence nearest to the query, or of a lexical search with most of its words, as offsets."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def _repr_html_(self) -> str:
        from retriever.integrations.notebook import hits_html

        return hits_html([self])


class Hits(list[Hit]):
    """A list of hits, best first, that notebooks show as a table; so is a slice of it."""

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> Hit: ...
    @overload
    def __getitem__(self, place: slice, /) -> "Hits": ...
    def __getitem__(self, place: SupportsIndex | slice, /) -> "Hit | Hits":
        return Hits(super().__getitem__(place)) if isinstance(place, slice) else super().__getitem__(place)

    def _repr_html_(self) -> str:
        from retriever.integrations.notebook import hits_html

        return hits_html(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """The hits of a query, and how unlike it is to the text that the transform was fitted on."""

    hits: Hits
    novelty: float | None
    """Bits per dimension, higher is stranger; None where the collection does not know what is ordinary."""
    limit: float | None
    """What ordinary short texts stay below; None where that is not known, or the query is too short to be judged."""

    @property
    def strange(self) -> bool:
        """Whether the query is far outside: then the hits mean little."""
        return self.novelty is not None and self.limit is not None and self.novelty > self.limit


class Searcher:
    """Answers queries over one collection with its encoder and the transform of its generation."""

    def __init__(self, collection: AnyCollection, encoder: Callable[[], Encoder]) -> None:
        self.collection = collection
        self._encoder = encoder
        self._loaded: tuple[tuple[int, str, str], Transform, Novelty | None] | None = None

    def transform(self) -> Transform:
        """The transform of the published generation."""
        return self.collection.load(self._transform_of)[1]

    def novelty(self) -> Novelty | None:
        """What tells ordinary text from strange in the published generation, if it is known."""
        return self.collection.load(self._parts_of)[1][1]

    def trust(self) -> float:
        """What a nat of the vectors counts beside one of the words in a hybrid search."""
        return trust(self.collection.store.setting("choice"), self.transform().family)

    def apply_of(self, generation: Generation) -> Apply:
        return self._transform_of(generation).apply

    def _transform_of(self, generation: Generation) -> Transform:
        return self._parts_of(generation)[0]

    def _parts_of(self, generation: Generation) -> tuple[Transform, Novelty | None]:
        loaded = self._loaded
        if loaded is None or loaded[0] != generation.row:
            loaded = self._loaded = (generation.row, load_transform(generation), Novelty.of(generation))
        return loaded[1:]

    def search(
        self,
        queries: Sequence[str],
        k: int,
        *,
        vectors: NDArray[np.float32] | None = None,
        mode: Mode = "dense",
        where: Sequence[str] = (),
        min_score: float | None = None,
        space: Space = "index",
        highlight: bool = False,
        rerank: "Reranker | None" = None,
    ) -> list[Answer]:
        """The k best documents of each query.

        `vectors` are the queries as the encoder gives them, where the caller has them already. `mode`: by vectors
        (dense), by words (lexical, which needs no encoder) or by both (hybrid). `where` are filters that documents
        must meet, all of them (see `indexes.sqlite.filters`). `space="raw"` compares vectors as the encoder gave them.
        `highlight` marks the sentence of each hit that is nearest to the query. `rerank` has a cross-encoder judge
        the best hits again; `min_score` is held against the final score.
        """
        _check_request(queries, k, mode, min_score, space)
        conditions = self.conditions(where)
        if not queries:
            return []
        wanted = max(k, RERANKED) if rerank else k
        novelty = None
        if mode == "lexical":
            vectors = None
            self.collection.refuse_unfinished()
            with self.collection.store.snapshot():
                allowed = _allowed(self.collection.store, conditions)
                found = [self.collection.words.matches(query, wanted, allowed) for query in queries]
        else:
            novelty = self.novelty()  # a collection that cannot be searched says so before the encoder is loaded
            vectors = self._encoder().encode(queries) if vectors is None else vectors
            found = self._matches(queries, vectors, wanted, mode, conditions, space)
        if rerank:
            found = [_reranked(rerank, query, matches) for query, matches in zip(queries, found, strict=True)]
        found = [_kept(matches, k, min_score) for matches in found]
        results = [_hits(matches) for matches in found]
        if highlight and vectors is None:
            results = [_marked_by_words(matches, hits) for matches, hits in zip(found, results, strict=True)]
        elif highlight and vectors is not None:
            results = [self._highlighted(hits, vector, space) for hits, vector in zip(results, vectors, strict=True)]
        if novelty is None or vectors is None:
            return [Answer(hits, None, None) for hits in results]
        scored = zip(queries, results, novelty.scores(vectors).tolist(), strict=True)
        return [Answer(hits, score, novelty.query_limit(query)) for query, hits, score in scored]

    def conditions(self, where: Sequence[str]) -> list[Condition]:
        """The filters, read; refused where one cannot be, or names a field that no document has."""
        if isinstance(where, str):
            raise Misuse(f"where takes a list of filters; for one: where=[{where!r}].")
        conditions: list[Condition] = []
        for place, text in enumerate(where):
            with _telling_place(place):
                conditions.append(parse(text))
        known: set[str] = set()
        for place, condition in enumerate(conditions):
            if condition.field not in known:
                known.add(condition.field)
                with _telling_place(place):
                    self.collection.store.check_fields([condition])
        return conditions

    def _matches(
        self,
        queries: Sequence[str],
        vectors: NDArray[np.float32],
        k: int,
        mode: Mode,
        conditions: Sequence[Condition],
        space: Space,
    ) -> list[list[Match]]:
        def look(inside: AnySpace) -> list[list[Match]]:
            allowed = _allowed(inside.store, conditions)
            if mode == "hybrid":
                words = self.collection.words
                return fused(inside, words, queries, vectors, k, trust=self.trust(), documents=allowed)
            return inside.nearest_documents(vectors, k, documents=allowed)

        return self.collection.in_raw_space(look) if space == "raw" else self.collection.in_space(self.apply_of, look)

    def similar(self, id_: str, k: int, *, where: Sequence[str] = ()) -> Hits:
        """The documents nearest to a stored one, by their nearest pair of passages."""
        _check_request([], k, "dense", None, "index")
        conditions = self.conditions(where)

        def look(space: AnySpace) -> list[Match]:
            number = space.store.document_number(id_)
            if number is None:
                raise NoSuchDocument(id_, self.collection.name)
            return space.similar_documents(number, k, _allowed(space.store, conditions))

        return _hits(self.collection.in_space(self.apply_of, look))

    def _highlighted(self, hits: Hits, query: NDArray[np.float32], space: Space) -> Hits:
        """The hits with the sentence nearest to the query marked, where a passage has more than one."""
        spans = [sentences(hit.passage) for hit in hits]
        texts = [hit.passage[a:b] for hit, own in zip(hits, spans, strict=True) if len(own) > 1 for a, b in own]
        if not texts:
            return hits
        raw = np.concatenate([query[None, :], self._encoder().encode(texts)])
        mapped = unit_rows(raw if space == "raw" else self.transform().apply(raw))
        scores = mapped[1:] @ mapped[0]
        marked, position = Hits(), 0
        for hit, own in zip(hits, spans, strict=True):
            if len(own) > 1:
                best = int(np.argmax(scores[position : position + len(own)]))
                position += len(own)
                hit = replace(hit, highlight=own[best])
            marked.append(hit)
        return marked


def _allowed(store: AnyStore, conditions: Sequence[Condition]) -> Any:
    """The documents that may be found, None for all; to be asked in the snapshot of the search."""
    return store.matching(conditions) if conditions else None


@contextlib.contextmanager
def _telling_place(place: int) -> Iterator[None]:
    """Says of a filter that is refused which of them it is."""
    try:
        yield
    except BadFilter as error:
        error.place = place
        raise


def _check_request(queries: Sequence[str], k: int, mode: str, min_score: float | None, space: str) -> None:
    if k < 1:
        raise Misuse(f"-k must be at least 1, not {k}.")
    if mode not in get_args(Mode):
        raise Misuse(f"unknown mode {mode!r}; known: {', '.join(get_args(Mode))}.")
    if space not in get_args(Space):
        raise Misuse(f"unknown space {space!r}; known: {', '.join(get_args(Space))}.")
    if min_score is not None and math.isnan(min_score):
        raise Misuse("--min-score is not a number.")
    for number, query in enumerate(queries, 1):
        which = f"query {number} is" if len(queries) > 1 else "the query is"
        if not query.strip():
            raise Misuse(f"{which} empty; say in a few words what you look for.")
        if len(query) > LONGEST_QUERY:
            raise Misuse(f"{which} longer than {LONGEST_QUERY:,} characters, of which no encoder reads so many.")
        if not is_unicode(query):
            raise Misuse(f"{which} not valid UTF-8.")


def _reranked(rerank: "Reranker", query: str, matches: Sequence[Match]) -> list[Match]:
    """The matches as a cross-encoder orders them, by what the encoder was given of each: title and passage."""
    texts = [encoded_text(match.document["title"], _passage(match)) for match in matches]
    scored = zip(matches, rerank.scores(query, texts).tolist(), strict=True)
    return sorted((replace(match, score=score) for match, score in scored), key=lambda match: -match.score)


def _kept(matches: Sequence[Match], k: int, min_score: float | None) -> list[Match]:
    return [match for match in matches if min_score is None or match.score >= min_score][:k]


def _passage(match: Match) -> str:
    return str(match.document["text"][match.passage.start : match.passage.end])


def _hits(matches: Sequence[Match]) -> Hits:
    return Hits(
        Hit(
            rank=rank,
            score=match.score,
            id=match.document["id"],
            title=match.document["title"],
            passage=_passage(match),
            start=match.passage.start,
            end=match.passage.end,
            metadata=match.document["metadata"],
        )
        for rank, match in enumerate(matches, 1)
    )


def _marked_by_words(matches: Sequence[Match], hits: Sequence[Hit]) -> Hits:
    """The hits with the sentence marked that holds most words of the query, where a passage has more than one."""

    def marked(match: Match, hit: Hit) -> Hit:
        own = sentences(hit.passage)
        if len(own) < 2 or not match.places:
            return hit
        places = [place - hit.start for place in match.places]
        return replace(hit, highlight=max(own, key=lambda span: sum(span[0] <= p < span[1] for p in places)))

    return Hits(marked(match, hit) for match, hit in zip(matches, hits, strict=True))
