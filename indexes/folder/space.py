"""A space that is searched: indexes over vectors, and the documents that these vectors belong to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import VectorIndex, unit_rows
from indexes.rows import LOOKED_AT, Apply, Match, Matrix, Nearest, Numbers, PassageRow
from indexes.sqlite.documents import DocumentStore

SCORED_TOGETHER = 8192
SAMPLED = 2000
SMALLEST_SPREAD = 1e-6


@dataclass(frozen=True, slots=True)
class Scored:
    """Vector numbers and their cosines."""

    numbers: Numbers
    scores: NDArray[np.float64]

    def best(self, k: int) -> "Scored":
        """Return the k best vectors, best first, and all vectors that tie with the last of them.

        Vectors with equal scores are in ascending order of the number.
        """
        order = np.lexsort((self.numbers, -self.scores))
        if len(order) > k:
            ranked = self.scores[order]
            order = order[ranked >= ranked[k - 1]]
        return Scored(self.numbers[order], self.scores[order])


@dataclass(frozen=True)
class Space:
    """The indexes to search, for one state of the database. Each index has a list of vector numbers to leave out."""

    store: DocumentStore
    dimension: int
    version: tuple[int, ...]
    parts: tuple[tuple[VectorIndex, Numbers], ...]
    apply: Apply

    def nearest_documents(
        self,
        queries: Matrix,
        k: int,
        without: Sequence[int] = (),
        documents: Numbers | None = None,
    ) -> list[list[Match]]:
        """Find the k documents nearest to each query (raw vectors), each with its best passage, best first."""
        return self.matches(self.nearest_passages(queries, k, without, documents))

    def matches(self, found: Sequence[Sequence[Nearest]]) -> list[list[Match]]:
        """Add the fields of the documents. Raise `Damaged` if a vector, passage or document is not intact."""
        passages = [passage for own in found for passage, _ in own]
        self.store.vectors([passage.vector for passage in passages], self.dimension, checked=True)
        stored = self.store.documents(list({passage.document: None for passage in passages}), passages)
        return [[Match(passage, score, stored[passage.document]) for passage, score in own] for own in found]

    def nearest_passages(
        self,
        queries: Matrix,
        k: int,
        without: Sequence[int] = (),
        documents: Numbers | None = None,
    ) -> list[list[Nearest]]:
        """Find the best passage of each of the k documents nearest to each query, best first.

        Documents with equal scores are in ascending order of the number. Vectors in `without` are ignored. If
        `documents` is given, only these documents are found. Fewer than k are returned only if fewer exist.
        """
        allowed = None if documents is None else self.store.vectors_of_documents(documents)
        findable = None if documents is None else frozenset(documents.tolist())
        total = sum(len(index) for index, _ in self.parts) if allowed is None else len(allowed)
        mapped = unit_rows(self.apply(queries))
        found: list[list[Nearest]] = [[] for _ in mapped]
        open_queries, wanted = list(range(len(mapped))) if total else [], min(LOOKED_AT * k, total)
        while open_queries:
            nearest = self.nearest_vectors(mapped[open_queries], wanted, without, allowed)
            for place, scored in zip(open_queries, nearest, strict=True):
                found[place] = self._by_document(scored, findable)[:k]
            if wanted >= total:
                break
            # Several of the vectors belong to the same documents, so more vectors are needed.
            open_queries = [place for place in open_queries if len(found[place]) < k]
            wanted = min(4 * wanted, total)
        return found

    def similar_documents(self, number: int, k: int, documents: Numbers | None = None) -> list[Match]:
        """Find the k documents nearest to a stored document, without that document.

        The score of a document is the cosine of its nearest pair of passages with the stored document.
        """
        store = self.store
        own = [passage.vector for passage in store.passages_of_documents([number])[number]]
        stands_for = store.passages_of_vectors(own)
        only_own = [v for v in own if all(passage.document == number for passage in stands_for[v])]
        best: dict[int, Match] = {}
        results = self.nearest_documents(store.vectors(own, self.dimension), k + 1, only_own, documents)
        for match in (match for matches in results for match in matches):
            document = match.passage.document
            if document != number and (document not in best or match.score > best[document].score):
                best[document] = match
        return sorted(best.values(), key=lambda match: (-match.score, match.passage.document))[:k]

    def nearest_of(self, query: Matrix, documents: Sequence[int]) -> dict[int, Nearest]:
        """Find the passage of each of the given documents that is nearest to the query (a raw vector)."""
        passages = self.store.passages_of_documents(documents)
        self.store.refuse_without_passages(passages)
        return nearest_among(query, passages, lambda numbers: self.store.vectors(numbers, self.dimension), self.apply)

    def background(self, queries: Matrix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Estimate the mean and standard deviation of each query's cosines with the collection, from a sample."""
        return background_of(self._sample, queries, self.apply)

    @cached_property
    def _sample(self) -> NDArray[np.float64]:
        """The transformed unit vectors of a fixed random sample of the used vectors."""
        numbers = self.store.used_vectors()
        if len(numbers) > SAMPLED:
            numbers = np.sort(np.random.default_rng(0).choice(numbers, SAMPLED, replace=False))
        raw = self.store.vectors(numbers.tolist(), self.dimension, checked=True)
        return unit_rows(self.apply(raw)).astype(np.float64)

    def nearest_vectors(
        self,
        queries: Matrix,
        k: int,
        without: Sequence[int] = (),
        allowed: Numbers | None = None,
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
                raw = self.store.vectors(some.tolist(), self.dimension)
                vectors = unit_rows(self.apply(raw)).astype(np.float64)
            for query, own, results in zip(queries.astype(np.float64), candidates, scores, strict=True):
                if own is everything:
                    results[start : start + len(some)] = products(vectors, query)
                else:
                    here = np.flatnonzero((own >= some[0]) & (own <= some[-1]))
                    results[here] = products(vectors[np.searchsorted(some, own[here])], query)
        return [Scored(own, results) for own, results in zip(candidates, scores, strict=True)]

    def _by_document(self, scored: Scored, findable: frozenset[int] | None) -> list[Nearest]:
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
                best.setdefault(passage.document, (passage, score))
        return sorted(best.values(), key=lambda pair: (-pair[1], pair[0].document))


def nearest_among(
    query: Matrix,
    passages: Mapping[int, Sequence[PassageRow]],
    vectors: Callable[[list[int]], Matrix],
    apply: Apply,
) -> dict[int, Nearest]:
    """Find the passage of each document that is nearest to the query (a raw vector).

    `vectors` is a function that reads raw vectors by number.
    """
    numbers = list(dict.fromkeys(passage.vector for own in passages.values() for passage in own))
    if not numbers:
        return {}
    mapped = unit_rows(apply(np.concatenate([query[None, :], vectors(numbers)]))).astype(np.float64)
    score_of = dict(zip(numbers, products(mapped[1:], mapped[0]).tolist(), strict=True))
    best = {number: max(own, key=lambda passage: score_of[passage.vector]) for number, own in passages.items() if own}
    return {number: (passage, score_of[passage.vector]) for number, passage in best.items()}


def background_of(
    sample: NDArray[np.float64], queries: Matrix, apply: Apply
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the mean and standard deviation of each query's cosines with a sample of unit vectors."""
    if not len(sample):
        return np.zeros(len(queries)), np.ones(len(queries))
    cosines = sample @ unit_rows(apply(queries)).astype(np.float64).T
    return cosines.mean(axis=0), np.maximum(cosines.std(axis=0), SMALLEST_SPREAD)


def unchanged(vectors: Matrix) -> Matrix:
    """Return the vectors unchanged. This is the transform of the space of raw vectors."""
    return vectors


def products(rows: NDArray[np.float64], query: NDArray[np.float64]) -> NDArray[np.float64]:
    # `rows @ query` is not used: BLAS adds the products of a row in an order that depends on the position of the row,
    # so equal vectors could get different scores.
    return np.asarray(np.einsum("ij,j->i", rows, query))
