"""Where a search looks: some indexes over vectors in one space, and the documents these vectors stand for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.documents import DocumentStore, PassageRow
from indexes.vectors import VectorIndex, unit_rows

Apply = Callable[[NDArray[np.float32]], NDArray[np.float32]]


SCORED_TOGETHER = 8192
SAMPLED = 2000
SMALLEST_SPREAD = 1e-6


@dataclass(frozen=True, slots=True)
class Match:
    """A document found, by its best passage, with the fields it had when it was found."""

    passage: PassageRow
    score: float
    document: dict[str, Any]
    places: tuple[int, ...] = ()
    """Where words of the query begin in the document's text, if it was found by them."""


Scored = list[tuple[int, float]]
"""Vector numbers with their cosines, best first."""


@dataclass(frozen=True)
class Space:
    """Indexes, each with the numbers to leave out, as of one state of the table."""

    store: DocumentStore
    dimension: int
    version: tuple[int, int]
    parts: tuple[tuple[VectorIndex, NDArray[np.int64]], ...]
    apply: Apply

    def nearest_documents(
        self, queries: NDArray[np.float32], k: int, without: Sequence[int] = ()
    ) -> list[list[Match]]:
        """The k documents nearest to each query (raw vectors), each by its best passage, best first.

        Documents that tie on the score come by arrival. Vectors in `without` are passed over.
        """
        total = sum(len(index) for index, _ in self.parts)
        mapped = unit_rows(self.apply(queries))
        found: list[list[tuple[PassageRow, float]]] = [[] for _ in mapped]
        open_queries, wanted = list(range(len(mapped))), min(2 * k, total)
        while open_queries:
            nearest = self._nearest_vectors(mapped[open_queries], wanted, without)
            for place, scored in zip(open_queries, nearest, strict=True):
                found[place] = self._by_document(scored)[:k]
            if wanted >= total:
                break
            # Several passages of the same documents came first: look further.
            open_queries = [place for place in open_queries if len(found[place]) < k]
            wanted = min(4 * wanted, total)
        documents = self.store.documents(list({p.document: None for own in found for p, _ in own}))
        return [[Match(p, score, documents[p.document]) for p, score in own] for own in found]

    def matches_of(self, query: NDArray[np.float32], documents: Sequence[int]) -> dict[int, Match]:
        """These documents, by number, each by its passage nearest to the query (a raw vector)."""
        passages = [passage for own in self.store.passages_of_documents(documents).values() for passage in own]
        numbers = list(dict.fromkeys(passage.vector for passage in passages))
        if not numbers:
            return {}
        mapped = unit_rows(self.apply(np.concatenate([query[None, :], self.store.vectors(numbers, self.dimension)])))
        cosines = mapped[1:].astype(np.float64) @ mapped[0].astype(np.float64)
        score_of = dict(zip(numbers, cosines.tolist(), strict=True))
        fields = self.store.documents(documents)
        best: dict[int, Match] = {}
        for passage in passages:
            number, score = passage.document, score_of[passage.vector]
            if number not in best or score > best[number].score:
                best[number] = Match(passage, score, fields[number])
        return best

    def background(self, queries: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of each query's cosines with the vectors of the collection, from a sample."""
        cosines = self._sample @ unit_rows(self.apply(queries)).astype(np.float64).T
        return cosines.mean(axis=0), np.maximum(cosines.std(axis=0), SMALLEST_SPREAD)

    @cached_property
    def _sample(self) -> NDArray[np.float64]:
        """Unit vectors of a seeded choice of the vectors in use."""
        numbers = self.store.used_vectors()
        if len(numbers) > SAMPLED:
            numbers = np.sort(np.random.default_rng(0).choice(numbers, SAMPLED, replace=False))
        return unit_rows(self.apply(self.store.vectors(numbers.tolist(), self.dimension))).astype(np.float64)

    def _nearest_vectors(self, queries: NDArray[np.float32], k: int, without: Sequence[int]) -> list[Scored]:
        """The k nearest to each query and all that tie with the last of them."""
        results: list[Scored] = [[] for _ in queries]
        for index, unused in self.parts:
            excluded = np.union1d(unused, np.array(without, np.int64)) if len(without) else unused
            for own, query, numbers in zip(results, queries, index.search(queries, k, excluded), strict=True):
                own += self._scored(index, numbers, query)
        for own in results:
            own.sort(key=lambda pair: (-pair[1], pair[0]))
            while len(own) > k and own[-1][1] < own[k - 1][1]:
                own.pop()
        return results

    def _scored(self, index: VectorIndex, numbers: NDArray[np.int64], query: NDArray[np.float32]) -> Scored:
        """Cosines in float64, so that the order does not depend on how FAISS batches its sums."""
        scored: Scored = []
        for start in range(0, len(numbers), SCORED_TOGETHER):
            some = numbers[start : start + SCORED_TOGETHER]
            if index.exact:
                vectors = index.vectors(some)
            else:  # the codes are lossy: score from what is stored
                vectors = unit_rows(self.apply(self.store.vectors(some.tolist(), self.dimension)))
            scores = vectors.astype(np.float64) @ query.astype(np.float64)
            scored += zip(some.tolist(), scores.tolist(), strict=True)
        return scored

    def _by_document(self, scored: Scored) -> list[tuple[PassageRow, float]]:
        passages = self.store.passages_of_vectors([number for number, _ in scored])
        best: dict[int, tuple[PassageRow, float]] = {}
        for number, score in scored:
            for passage in passages.get(number, []):
                best.setdefault(passage.document, (passage, score))
        return sorted(best.values(), key=lambda pair: (-pair[1], pair[0].document))
