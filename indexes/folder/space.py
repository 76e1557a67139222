"""Searches a collection in a folder by meaning: FAISS finds candidates, which are scored again in float64."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import VectorIndex, unit_rows
from indexes.protocol import SAMPLED, AnySpace, products, rank
from indexes.rows import LOOKED_AT, Apply, Match, Matrix, Nearest, Numbers, PassageRow
from indexes.sqlite.documents import DocumentStore

SCORED_TOGETHER = 8192


@dataclass(frozen=True, slots=True)
class Scored:
    """Vector numbers and their cosines."""

    numbers: Numbers
    scores: NDArray[np.float64]

    def best(self, k: int) -> "Scored":
        """Return the k best vectors, best first, and all vectors that tie with the last of them.

        Vectors with equal scores are in ascending order of their numbers.
        """
        order = np.lexsort((self.numbers, -self.scores))
        if len(order) > k:
            ranked = self.scores[order]
            order = order[ranked >= ranked[k - 1]]
        return Scored(self.numbers[order], self.scores[order])


@dataclass(frozen=True)
class Space(AnySpace):
    """The indexes to search, for one state of the database. Each index has a list of vector numbers to leave out."""

    store: DocumentStore
    dimension: int
    version: tuple[int, ...]
    parts: tuple[tuple[VectorIndex, Numbers], ...]
    apply: Apply

    @property
    def exact(self) -> bool:
        return all(index.exact for index, _ in self.parts)

    def matches(self, found: Sequence[Sequence[Nearest]]) -> list[list[Match]]:
        """Add the fields of the documents. Raise `Damaged` if a vector, passage or document is not intact."""
        passages = [passage for own in found for passage, _ in own]
        self.store.vectors([passage.vector for passage in passages], self.dimension, checked=True)
        stored = self.store.documents(list({passage.document: None for passage in passages}), passages)
        return [[Match(passage, score, stored[passage.document]) for passage, score in own] for own in found]

    def nearest_passages(
        self, queries: Matrix, k: int, *, documents: Numbers | None = None, without: int | None = None
    ) -> list[list[Nearest]]:
        excluded = [] if without is None else self._vectors_only_of(without)
        allowed = None if documents is None else self.store.vectors_of_documents(documents)
        findable = None if documents is None else frozenset(documents.tolist())
        total = sum(len(index) for index, _ in self.parts) if allowed is None else len(allowed)
        mapped = unit_rows(self.apply(queries))
        found: list[list[Nearest]] = [[] for _ in mapped]
        open_queries, wanted = list(range(len(mapped))) if total else [], min(LOOKED_AT * k, total)
        while open_queries:
            nearest = self.nearest_vectors(mapped[open_queries], wanted, excluded, allowed)
            for place, scored in zip(open_queries, nearest, strict=True):
                found[place] = self._by_document(scored, findable, without)[:k]
            if wanted >= total:
                break
            # Several of the vectors belong to the same documents, so more vectors are needed.
            open_queries = [place for place in open_queries if len(found[place]) < k]
            wanted = min(4 * wanted, total)
        return found

    def _vectors_only_of(self, document: int) -> list[int]:
        """Return the vectors of a document that no other document shares."""
        own = [passage.vector for passage in self.store.passages_of_documents([document])[document]]
        passages = self.store.passages_of_vectors(own)
        return [vector for vector in own if all(passage.document == document for passage in passages[vector])]

    def _passages_of(self, documents: Sequence[int]) -> dict[int, list[PassageRow]]:
        passages = self.store.passages_of_documents(documents)
        self.store.refuse_without_passages(passages)
        return passages

    def _raw(self, numbers: Sequence[int]) -> Matrix:
        """Return raw vectors from a file of the index if it has them. That is faster than rows of the database."""
        found = self.parts[0][0].raw_vectors(np.array(numbers, np.int64)) if self.parts else None
        return super()._raw(numbers) if found is None else found

    def _sample(self) -> NDArray[np.float64]:
        return self._used_sample

    @cached_property
    def _used_sample(self) -> NDArray[np.float64]:
        # The indexes know the numbers of the used vectors. The table would have to be read as a whole.
        numbers = np.concatenate([_without(index.numbers, unused) for index, unused in self.parts])
        if len(numbers) > SAMPLED:
            numbers = np.sort(np.random.default_rng(0).choice(numbers, SAMPLED, replace=False))
        raw = self.store.vectors(numbers.tolist(), self.dimension, checked=True)
        return unit_rows(self.apply(raw)).astype(np.float64)

    def nearest_vectors(
        self, queries: Matrix, k: int, without: Sequence[int] = (), allowed: Numbers | None = None
    ) -> list[Scored]:
        """Find the k vectors nearest to each query, and all vectors that tie with the last of them.

        The queries are unit vectors of this space.
        """
        results: list[list[Scored]] = [[] for _ in queries]
        for index, unused in self.parts:
            excluded = np.union1d(unused, np.array(without, np.int64)) if len(without) else unused
            candidates = index.search(queries, k, excluded, allowed)
            for own, scored in zip(results, self._scored(index, candidates, queries), strict=True):
                own.append(scored.best(k))
        if len(self.parts) == 1:
            return [own[0] for own in results]
        return [
            Scored(np.concatenate([s.numbers for s in own]), np.concatenate([s.scores for s in own])).best(k)
            for own in results
        ]

    def _scored(self, index: VectorIndex, candidates: Sequence[Numbers], queries: Matrix) -> list[Scored]:
        """Score each query's candidates in float64, so that the order does not depend on how FAISS adds numbers.

        A vector that is a candidate of several queries is fetched once.
        """
        scores = [np.zeros(len(own), np.float64) for own in candidates]
        shared = all(own is candidates[0] for own in candidates)
        everything = candidates[0] if shared else np.unique(np.concatenate(candidates))
        for start in range(0, len(everything), SCORED_TOGETHER):
            some = everything[start : start + SCORED_TOGETHER]
            if index.exact:
                vectors = index.vectors(some).astype(np.float64)
            else:  # the codes of the index are lossy, so score the stored vectors
                vectors = unit_rows(self.apply(self._raw(some.tolist()))).astype(np.float64)
            for query, own, results in zip(queries.astype(np.float64), candidates, scores, strict=True):
                if own is everything:
                    results[start : start + len(some)] = products(vectors, query)
                else:
                    here = np.flatnonzero((own >= some[0]) & (own <= some[-1]))
                    results[here] = products(vectors[np.searchsorted(some, own[here])], query)
        return [Scored(own, results) for own, results in zip(candidates, scores, strict=True)]

    def _by_document(self, scored: Scored, findable: frozenset[int] | None, without: int | None) -> list[Nearest]:
        numbers = scored.numbers.tolist()
        passages = self.store.passages_of_vectors(numbers)
        best: dict[int, Nearest] = {}
        for number, score in zip(numbers, scored.scores.tolist(), strict=True):
            own = passages.get(number, [])
            if findable is not None:
                own = [passage for passage in own if passage.document in findable]
            if not own:  # every vector here is used, so it must have a passage
                raise self.store.damaged(f"the passages of vector {number} are missing")
            for passage in own:
                if passage.document != without:
                    best.setdefault(passage.document, (passage, score))
        return sorted(best.values(), key=rank)


def _without(numbers: Numbers, unused: Numbers) -> Numbers:
    return numbers[~np.isin(numbers, unused)] if len(unused) else numbers
