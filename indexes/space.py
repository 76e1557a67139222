"""Where a search looks: some indexes over vectors in one space, and the documents these vectors stand for."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexes.documents import DocumentStore, PassageRow
from indexes.vectors import VectorIndex, unit_rows

Apply = Callable[[NDArray[np.float32]], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Match:
    """A document found, by its best passage."""

    passage: PassageRow
    score: float


@dataclass(frozen=True, slots=True)
class Space:
    """Indexes, each with the numbers to leave out, as of one state of the table."""

    store: DocumentStore
    dimension: int
    version: tuple[int, int]
    parts: tuple[tuple[VectorIndex, NDArray[np.int64]], ...]
    apply: Apply

    def nearest_documents(self, queries: NDArray[np.float32], k: int) -> list[list[Match]]:
        """The k documents nearest to each query (raw vectors), each by its best passage, best first."""
        total = sum(len(index) for index, _ in self.parts)
        mapped = unit_rows(self.apply(queries))
        matches: list[list[Match]] = [[] for _ in mapped]
        open_queries, wanted = list(range(len(mapped))), min(2 * k, total)
        while open_queries:
            for place, scored in zip(
                open_queries, self._nearest_vectors(mapped[open_queries], wanted), strict=True
            ):
                matches[place] = self._by_document(scored)[:k]
            if wanted >= total:
                break
            # Several passages of the same documents came first: look further.
            open_queries = [place for place in open_queries if len(matches[place]) < k]
            wanted = min(4 * wanted, total)
        return matches

    def _nearest_vectors(
        self, queries: NDArray[np.float32], k: int
    ) -> list[list[tuple[int, float]]]:
        """(vector number, cosine) of the k nearest to each query, scored in float64 so that the order does not
        depend on how FAISS batches its sums."""
        scored: list[list[tuple[int, float]]] = [[] for _ in queries]
        for index, excluded in self.parts:
            for own, query, numbers in zip(scored, queries, index.search(queries, k, excluded), strict=True):
                if not len(numbers):
                    continue
                if index.exact:
                    vectors = index.vectors(numbers)
                else:  # the codes are lossy: score from what is stored
                    vectors = unit_rows(self.apply(self.store.vectors(numbers.tolist(), self.dimension)))
                scores = vectors.astype(np.float64) @ query.astype(np.float64)
                own += zip(numbers.tolist(), scores.tolist(), strict=True)
        for own in scored:
            own.sort(key=lambda pair: (-pair[1], pair[0]))
            del own[k:]
        return scored

    def _by_document(self, scored: list[tuple[int, float]]) -> list[Match]:
        passages = self.store.passages_of_vectors([number for number, _ in scored])
        best: dict[int, Match] = {}
        for number, score in scored:
            for passage in passages.get(number, []):
                best.setdefault(passage.document, Match(passage, score))
        return sorted(best.values(), key=lambda match: (-match.score, match.passage.document))
