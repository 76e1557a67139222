"""Answer queries: encode the query, transform it, search the index, and turn the documents found into hits."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import is_unicode
from indexes.faiss.vectors import unit_rows
from indexes.generation import Generation
from indexes.protocol import AnyCollection, AnySpace
from indexes.rows import Apply, Match
from indexes.sqlite.conditions import Condition
from indexes.sqlite.filters import parse
from indexes.stores import AnyStore
from retriever.corpus.document import Document
from retriever.corpus.passages import encoded_text, sentences
from retriever.encoder.encoder import Encoder
from retriever.encoder.writing import in_capitals, plain, recased
from retriever.errors import BadFilter, Misuse, NoSuchDocument
from retriever.hits import Answer, Hit, Hits, Mode, Space
from retriever.transforms import load_transform
from retriever.transforms.base import Transform
from retriever.transforms.novelty import Novelty

if TYPE_CHECKING:
    from retriever.encoder.reranker import Reranker

RERANKED = 50
"""The number of hits that a reranker scores, unless k is more."""
LONGEST_QUERY = 1_000_000
RECASING = 50
"""The number of passages that show how the collection writes the words of a query in capitals."""


class Searcher:
    """Answers queries over one collection, with the encoder and the transform of its published index."""

    def __init__(self, collection: AnyCollection, encoder: Callable[[], Encoder]) -> None:
        self.collection = collection
        self._encoder = encoder
        self._loaded: tuple[tuple[int, str, str], Transform, Novelty | None] | None = None

    def transform(self) -> Transform:
        """Return the transform of the published index."""
        return self.collection.load(self._load)[1][0]

    def novelty(self) -> Novelty | None:
        """Return the measure of unusual text, or None if the collection was too small to fit one."""
        return self.collection.load(self._load)[1][1]

    def apply_of(self, generation: Generation) -> Apply:
        """Return the function that applies the transform of this generation of the index."""
        return self._load(generation)[0].apply

    def _load(self, generation: Generation) -> tuple[Transform, Novelty | None]:
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
        """Answer many queries. `Retriever.search` explains the options.

        `vectors` holds the raw vectors of the queries, if the caller already has them.
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
                allowed = _matching(self.collection.store, conditions)
                found = [self.collection.words.matches(query, wanted, allowed) for query in queries]
        else:
            novelty = self.novelty()  # a collection without an index is refused before the encoder is loaded
            vectors = self.query_vectors(queries) if vectors is None else vectors
            found = self._matches(queries, vectors, wanted, mode, conditions, space)
        if rerank:
            found = [_rerank(rerank, query, matches) for query, matches in zip(queries, found, strict=True)]
        if min_score is not None:
            found = [[match for match in matches if match.score >= min_score] for matches in found]
        found = [matches[:k] for matches in found]
        results = [_hits(matches) for matches in found]
        if highlight and vectors is None:
            results = [_highlight_words(matches, hits) for matches, hits in zip(found, results, strict=True)]
        elif highlight and vectors is not None:
            results = [self._highlight(hits, vector, space) for hits, vector in zip(results, vectors, strict=True)]
        if novelty is None or vectors is None:
            return [Answer(hits, None, None, strange=False) for hits in results]
        limits = [novelty.query_limit(query) for query in queries]
        scored = zip(results, novelty.scores(vectors).tolist(), limits, strict=True)
        return [Answer(hits, score, limit, limit is not None and score > limit) for hits, score, limit in scored]

    def query_vectors(self, queries: Sequence[str], *, here: bool = False) -> NDArray[np.float32]:
        """Return the raw vectors of queries. If `here` is True, encode in the caller's thread.

        If the encoder distinguishes cases, a query in capitals is first written as the collection writes its words.
        """
        encoder = self._encoder()
        if any(map(in_capitals, queries)) and encoder.distinguishes_case:
            queries = [self._recased(query) if in_capitals(query) else query for query in queries]
        return encoder.encode_queries(queries, here=here)

    def _recased(self, query: str) -> str:
        with self.collection.store.snapshot():
            found = self.collection.words.matches(plain(query), RECASING)
        return recased(query, (encoded_text(match.document["title"], _passage(match)) for match in found))

    def conditions(self, where: Sequence[str]) -> list[Condition]:
        """Parse filters. Raise `BadFilter` if a filter is invalid or names a field that no document has."""
        if isinstance(where, str):
            raise Misuse(f"`where` must be a list of filters; for one filter, use where=[{where!r}].")
        conditions: list[Condition] = []
        for place, text in enumerate(where):
            with _place_in_error(place):
                conditions.append(parse(text))
        known: set[str] = set()
        for place, condition in enumerate(conditions):
            if condition.field not in known:
                known.add(condition.field)
                with _place_in_error(place):
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
            allowed = _matching(inside.store, conditions)
            if mode == "dense":
                return inside.nearest_documents(vectors, k, documents=allowed)
            from retriever.search.fusion import fuse
            from retriever.settings import trust

            choice, pooling = self.collection.store.setting("choice"), self.collection.encoder["pooling"]
            weight = trust(choice, self.transform().family, pooling)
            return fuse(inside, self.collection.words, queries, vectors, k, trust=weight, documents=allowed)

        return self.collection.in_raw_space(look) if space == "raw" else self.collection.in_space(self.apply_of, look)

    def similar(self, id_: str, k: int, *, where: Sequence[str] = ()) -> Hits:
        """Return the k documents that are nearest to the stored document `id_`.

        The distance of two documents is that of their nearest passages.
        """
        _check_request([], k, "dense", None, "index")
        conditions = self.conditions(where)

        def look(space: AnySpace) -> list[Match]:
            return space.similar_documents(self._number(space.store, id_), k, _matching(space.store, conditions))

        return _hits(self.collection.in_space(self.apply_of, look))

    def document(self, id_: str) -> Document:
        """Return a stored document."""
        store = self.collection.store
        number = self._number(store, id_)
        fields = store.documents([number])[number]
        return Document(fields["id"], fields["text"], fields["title"], fields["metadata"])

    def _number(self, store: AnyStore, id_: str) -> int:
        number = store.document_number(id_)
        if number is None:
            raise NoSuchDocument(id_, self.collection.name)
        return number

    def _highlight(self, hits: Hits, query: NDArray[np.float32], space: Space) -> Hits:
        """Mark the sentence nearest to the query in each passage that has more than one sentence."""
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


def _matching(store: AnyStore, conditions: Sequence[Condition]) -> Any:
    """Return the documents that meet the conditions in the snapshot of the search. None means all documents."""
    return store.matching(conditions) if conditions else None


@contextlib.contextmanager
def _place_in_error(place: int) -> Iterator[None]:
    """Set the `place` of a `BadFilter` that the block raises: the position of the filter that caused it."""
    try:
        yield
    except BadFilter as error:
        error.place = place
        raise


def _check_request(queries: Sequence[str], k: int, mode: str, min_score: float | None, space: str) -> None:
    if k < 1:
        raise Misuse(f"k must be at least 1, not {k}.")
    if mode not in get_args(Mode):
        raise Misuse(f"unknown mode {mode!r}; known: {', '.join(get_args(Mode))}.")
    if space not in get_args(Space):
        raise Misuse(f"unknown space {space!r}; known: {', '.join(get_args(Space))}.")
    if min_score is not None and math.isnan(min_score):
        raise Misuse("`min_score` is not a number.")
    for number, query in enumerate(queries, 1):
        which = f"query {number} is" if len(queries) > 1 else "the query is"
        if not query.strip():
            raise Misuse(f"{which} empty; say in a few words what you are looking for.")
        if len(query) > LONGEST_QUERY:
            raise Misuse(f"{which} longer than {LONGEST_QUERY:,} characters; no encoder reads that many.")
        if not is_unicode(query):
            raise Misuse(f"{which} not valid UTF-8.")


def _rerank(reranker: "Reranker", query: str, matches: Sequence[Match]) -> list[Match]:
    """Order the matches by the scores of a cross-encoder. It reads title and passage in the format of the encoder."""
    texts = [encoded_text(match.document["title"], _passage(match)) for match in matches]
    scored = zip(matches, reranker.scores(query, texts).tolist(), strict=True)
    return sorted((replace(match, score=score) for match, score in scored), key=lambda match: -match.score)


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


def _highlight_words(matches: Sequence[Match], hits: Sequence[Hit]) -> Hits:
    """Mark the sentence that has the most words of the query, in each passage that has more than one sentence."""

    def marked(match: Match, hit: Hit) -> Hit:
        own = sentences(hit.passage)
        if len(own) < 2 or not match.places:
            return hit
        places = [place - hit.start for place in match.places]
        return replace(hit, highlight=max(own, key=lambda span: sum(span[0] <= p < span[1] for p in places)))

    return Hits(marked(match, hit) for match, hit in zip(matches, hits, strict=True))
