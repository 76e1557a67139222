"""Answer queries: encode the query, transform it, search the index, and turn the documents found into hits."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import unit_rows
from indexes.generation import Generation
from indexes.protocol import AnyCollection, AnySpace
from indexes.rows import Apply, Match
from indexes.sqlite.conditions import Condition
from indexes.sqlite.filters import parse
from indexes.stores import AnyStore
from retriever.corpus.document import Document
from retriever.corpus.passages import encoded_text, prose
from retriever.encoder.base import AnyEncoder
from retriever.encoder.functions import is_brought
from retriever.encoder.writing import as_written, in_capitals, plain, without_marks
from retriever.errors import BadFilter, Misuse, NoSuchDocument, require_type
from retriever.hits import Answer, Hits, Mode, Reranks, Space, Where
from retriever.search.fusion import fuse, weight_of_meaning
from retriever.search.no_match import refuse_other_dates, why_none
from retriever.search.request import (
    check_k,
    check_options,
    checked_queries,
    checked_texts,
    checked_vectors,
    filters_of,
)
from retriever.search.same_id import COMPARED, same_ids
from retriever.search.scored import (
    Scored,
    by_meaning,
    by_words,
    explained,
    highlight_words,
    hits_of,
    passage_text,
    reranked,
    with_first,
)
from retriever.transforms import load_transform
from retriever.transforms.base import Transform
from retriever.transforms.novelty import Novelty

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float32]]
"""A matrix of vectors, one row for each."""

RERANKED = 50
"""The number of hits that a reranker scores, unless k is more."""
REWRITING = 50
"""The number of passages that are read to see how the collection writes the words of a query."""
WITHOUT_MARKS = "en"
"""A language that is written without diacritics."""

BY_WORDS_ALONE = "The documents brought their vectors and there is no encoder, so this is a search by words."


class Embedded(NamedTuple):
    """The vectors of texts as a search compares them: transformed, and scaled to length one.

    Vectors can be compared with each other only if `fingerprint`, that of the transform, is the same.
    """

    vectors: Matrix
    tokens: np.ndarray[tuple[int], np.dtype[np.int64]]
    """How many tokens each text has."""
    fingerprint: str


class Searcher:
    """Answers queries over one collection, with the encoder and the transform of its published index."""

    def __init__(self, collection: AnyCollection, encoder: Callable[[], AnyEncoder]) -> None:
        self.collection = collection
        self._encoder = encoder
        self._rerankers: dict[str, Reranks] = {}
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
        queries: Sequence[str] | None,
        k: int,
        *,
        vectors: "ArrayLike | None" = None,
        mode: Mode = "hybrid",
        where: Where = (),
        min_score: float | None = None,
        space: Space = "index",
        highlight: bool = False,
        explain: bool = False,
        rerank: str | Reranks | None = None,
    ) -> list[Answer]:
        """Answer many queries. `Retriever.search` explains the options.

        `vectors` holds the raw vectors of the queries, if the caller already has them. `queries` may then be None.
        """
        k = check_k(k)
        check_options(mode, min_score, space, highlight, explain)
        given = None if vectors is None else checked_vectors(vectors, queries, self.collection.dimension)
        if queries is not None:
            queries = checked_queries(queries)
        elif given is None:
            raise Misuse("give queries, or the vectors of queries as `vectors`.")
        elif mode == "lexical":
            raise Misuse('a search by words (`mode="lexical"`) needs a query; a vector has no words.')
        elif rerank is not None:
            raise Misuse("a reranker reads the query; give its text too.")
        else:
            queries, mode = [""] * len(given), "dense"
        wordy = mode == "hybrid" and given is None and self._brings_vectors()
        mode = "lexical" if wordy else mode
        reranker = self._reranker(rerank) if rerank is not None else None
        conditions = self.conditions(where)
        if not queries:
            return []
        wanted = max(k, RERANKED) if reranker else k
        novelty = None
        encoded: NDArray[np.float32] | None = None
        if mode == "lexical":
            self.collection.refuse_unfinished()
            found = self._by_words(queries, wanted, conditions)
        else:
            novelty = self.novelty()  # a collection without an index is refused before the encoder is loaded
            encoder = self._encoder() if given is None else None
            encoded = self.query_vectors(queries) if given is None else given
            found = self._in_space(queries, encoded, wanted, mode, conditions, space)
            if encoder and encoder is not self._encoder():  # its word table was learned again between the two steps
                encoded = self.query_vectors(queries)
                found = self._in_space(queries, encoded, wanted, mode, conditions, space)
        none = why_none(self.collection.store, conditions) if conditions and not all(found) else ""
        notes = [
            (none, None) if none else self._note(query, own, mode, bool(where))
            for query, own in zip(queries, found, strict=True)
        ]
        if wordy:
            notes = [(f"{BY_WORDS_ALONE} {note}".strip(), suggestion) for note, suggestion in notes]
        if reranker:
            found = [reranked(reranker, query, own) for query, own in zip(queries, found, strict=True)]
        if min_score is not None:
            found = [[one for one in own if one.shown >= min_score] for own in found]
        words = self.collection.words
        found = [own[:k] for own in found]
        if explain:
            found = [explained(words, query, own) for query, own in zip(queries, found, strict=True)]
        results = [hits_of(own) for own in found]
        if not explain:
            results = [Hits(replace(hit, explanation=None) for hit in hits) for hits in results]
        if highlight and (encoded is None or is_brought(self.collection.encoder)):
            results = [highlight_words(words, query, hits) for query, hits in zip(queries, results, strict=True)]
        elif highlight and encoded is not None:
            results = [self._highlight(hits, vector, space) for hits, vector in zip(results, encoded, strict=True)]
        if novelty is None or encoded is None:
            return [Answer(hits, None, None, False, *note) for hits, note in zip(results, notes, strict=True)]
        limits = [novelty.query_limit(query) for query in queries]
        scored = zip(results, novelty.scores(encoded).tolist(), limits, notes, strict=True)
        return [
            Answer(hits, score, limit, limit is not None and score > limit, *note)
            for hits, score, limit, note in scored
        ]

    def _note(self, query: str, found: Sequence[Scored], mode: Mode, filtered: bool) -> tuple[str, str | None]:
        """Return what the reader of the hits should know, and a suggestion if no word of the query is known."""
        # Meaning alone counts if no document has a word of the query.
        if mode == "dense" or any(one.explanation.weight != 1 or one.explanation.same_id for one in found):
            return "", None
        which = "document that fits the filters" if filtered else "document"
        terms = self.collection.words.terms(query)
        note = f"No {which} has a word of the query" if terms else "The query has no words"
        with self.collection.store.snapshot():
            suggestion = self.collection.words.suggestion(query)
        return note + (", so these hits are by meaning alone." if found else "."), suggestion

    def _by_words(self, queries: Sequence[str], k: int, conditions: Sequence[Condition]) -> list[list[Scored]]:
        with self.collection.store.snapshot():
            allowed = _matching(self.collection.store, conditions)
            return [self._one_by_words(query, k, allowed) for query in queries]

    def _one_by_words(self, query: str, k: int, allowed: Any) -> list[Scored]:
        words, store = self.collection.words, self.collection.store
        query = words.searched(query, allowed)
        matches = words.matches(query, k, allowed)
        ceiling = words.ceiling(query)
        found = by_words(matches, ceiling)
        near = (number for number, _ in words.best(query, COMPARED, allowed))
        if not (same := same_ids(store, query, near, allowed)):
            return found
        bm25, fields, passages = words.scores(query, same), store.documents(same), store.passages_of_documents(same)
        own = [Match(passages[number][0], bm25.get(number, 0.0), fields[number]) for number in same]
        first = [replace(one, explanation=replace(one.explanation, words_rank=None)) for one in by_words(own, ceiling)]
        return with_first(found, first, ceiling)[:k]

    def _reranker(self, given: str | Path | Reranks) -> Reranks:
        """Return the reranker that was given by its name or folder, or as an object."""
        if isinstance(given, str | Path):
            name = str(given)
            if name not in self._rerankers:
                from retriever.encoder.reranker import Reranker

                self._rerankers[name] = Reranker(name)
            return self._rerankers[name]
        if not callable(getattr(given, "scores", None)):
            raise Misuse(
                f"`rerank` is of the type {type(given).__name__}; give the name or folder of a cross-encoder, or an "
                "object with a method scores(query, texts)."
            )
        return given

    def query_vectors(self, queries: Sequence[str], *, here: bool = False) -> NDArray[np.float32]:
        """Return the raw vectors of queries. If `here` is True, encode in the caller's thread.

        A query in capitals or without diacritics is first written as the collection writes its words, if the encoder
        distinguishes that.
        """
        queries = checked_queries(queries)
        return self._encoder().encode_queries(self._as_written(queries), here=here)

    def embed(self, texts: Sequence[str], *, queries: bool = False) -> Embedded:
        """Return the vectors of passages or queries as a search compares them. The caller's thread encodes."""
        transform = self.transform()  # a collection without an index is refused before the encoder is loaded
        texts = checked_texts(texts)
        texts = self._as_written(texts) if queries else texts
        vectors, tokens = self._encoder().encode_whole(texts, queries=queries)
        return Embedded(unit_rows(transform.apply(vectors)), tokens, transform.fingerprint)

    def _as_written(self, queries: Sequence[str]) -> Sequence[str]:
        encoder, store = self._encoder(), self.collection.store
        marks = store.setting("language", checked=False) != WITHOUT_MARKS and encoder.distinguishes_marks
        return [
            self._rewritten(query)
            if (in_capitals(query) and encoder.distinguishes_case) or (marks and without_marks(query))
            else query
            for query in queries
        ]

    def _rewritten(self, query: str) -> str:
        with self.collection.store.snapshot():
            found = self.collection.words.matches(plain(query), REWRITING)
        return as_written(query, (encoded_text(match.document["title"], passage_text(match)) for match in found))

    def _brings_vectors(self) -> bool:
        """Return whether the documents bring their vectors. A damaged identity is told when the index is opened."""
        encoder = self.collection.store.setting("encoder", checked=False)
        return isinstance(encoder, dict) and is_brought(encoder)

    def conditions(self, where: Where) -> list[Condition]:
        """Parse filters. Raise `BadFilter` if a filter is invalid or names a field that no document has."""
        conditions: list[Condition] = []
        for place, one in enumerate(filters_of(where)):
            with _place_in_error(place):
                conditions.append(parse(one) if isinstance(one, str) else one)
        known: set[str] = set()
        for place, condition in enumerate(conditions):
            if condition.field not in known:
                known.add(condition.field)
                with _place_in_error(place):
                    self.collection.store.check_fields([condition])
            with _place_in_error(place):
                refuse_other_dates(self.collection.store, condition)
        return conditions

    def _in_space(
        self,
        queries: Sequence[str],
        vectors: NDArray[np.float32],
        k: int,
        mode: Mode,
        conditions: Sequence[Condition],
        space: Space,
    ) -> list[list[Scored]]:
        def look(inside: AnySpace) -> list[list[Scored]]:
            allowed = _matching(inside.store, conditions)
            if mode == "dense":
                near = inside.nearest_documents(vectors, k, documents=allowed)
                means = inside.background(vectors).tolist()
                found = [by_meaning(*pair) for pair in zip(near, means, strict=True)]
                each = zip(queries, vectors, means, found, strict=True)
                return [self._first_same_id(inside, *one, k, allowed) for one in each]
            weight = weight_of_meaning(self.collection)
            matches, explanations = fuse(
                inside, self.collection.words, queries, vectors, k, weight=weight, documents=allowed
            )
            return [
                [Scored(match, 100 * match.score, explained[match.passage.document]) for match in own]
                for own, explained in zip(matches, explanations, strict=True)
            ]

        return self.collection.in_raw_space(look) if space == "raw" else self.collection.in_space(self.apply_of, look)

    def _first_same_id(
        self,
        space: AnySpace,
        query: str,
        vector: NDArray[np.float32],
        mean: float,
        found: Sequence[Scored],
        k: int,
        allowed: Any,
    ) -> list[Scored]:
        same = same_ids(space.store, query, (one.match.passage.document for one in found), allowed)
        own = by_meaning(space.matches([list(space.nearest_of(vector, same).values())])[0], mean) if same else []
        first = [replace(one, explanation=replace(one.explanation, meaning_rank=None)) for one in own]
        return with_first(found, first, 1.0)[:k]

    def similar(self, id_: str, k: int, *, where: Where = ()) -> Hits:
        """Return the k documents that are nearest to the stored document `id_`.

        The distance of two documents is that of their nearest passages.
        """
        k = check_k(k)
        conditions = self.conditions(where)

        def look(space: AnySpace) -> list[Scored]:
            number = self._number(space.store, id_)
            own = [passage.vector for passage in space.store.passages_of_documents([number])[number]]
            mean = float(space.background(space.store.vectors(own, space.dimension)).mean())
            return by_meaning(space.similar_documents(number, k, _matching(space.store, conditions)), mean)

        return Hits(replace(hit, explanation=None) for hit in hits_of(self.collection.in_space(self.apply_of, look)))

    def document(self, id_: str) -> Document:
        """Return a stored document."""
        store = self.collection.store
        number = self._number(store, id_)
        fields = store.documents([number])[number]
        return Document(fields["id"], fields["text"], fields["title"], fields["metadata"], fields["source"])

    def _number(self, store: AnyStore, id_: str) -> int:
        require_type("id_", id_, "a text", str)
        number = store.document_number(id_)
        if number is None:
            raise NoSuchDocument(id_, self.collection.name)
        return number

    def _highlight(self, hits: Hits, query: NDArray[np.float32], space: Space) -> Hits:
        """Mark the sentence nearest to the query in each passage that has several."""
        spans = [prose(hit.passage, hit.metadata) for hit in hits]
        texts = [hit.passage[a:b] for hit, own in zip(hits, spans, strict=True) for a, b in own]
        if not texts:
            return hits
        raw = np.concatenate([query[None, :], self._encoder().encode(texts)])
        mapped = unit_rows(raw if space == "raw" else self.transform().apply(raw))
        scores = mapped[1:] @ mapped[0]
        marked, position = Hits(), 0
        for hit, own in zip(hits, spans, strict=True):
            if own:
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
