"""Where a search in Milvus looks: one field of vectors, and the documents that the rows found belong to.

Milvus gives candidates; their scores are computed again in float64, as they are of an index in a folder, so that the
order does not depend on how a server sums. Rows of documents that have changed or gone meanwhile are passed over.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.milvus.client import MOST_ROWS, Row, both
from indexes.milvus.rows import passage_of
from indexes.milvus.store import MilvusStore
from indexes.space import LOOKED_AT, SAMPLED, SMALLEST_SPREAD, Apply, Match, Nearest, products
from indexes.vectors import SPARE, TIE, unit_rows

INDEX_FIELDS = ("document", "position", "start", "end", "vector", "seal")
# What a request with so many queries brings back stays within some megabytes.
QUERIES_TOGETHER = 100


@dataclass(frozen=True)
class MilvusSpace:
    """The published index (`mapped`), or the encoder's own space (`raw`)."""

    store: MilvusStore
    dimension: int
    index: str
    apply: Apply
    raw: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    def nearest_documents(
        self, queries: NDArray[np.float32], k: int, *, documents: str | None = None
    ) -> list[list[Match]]:
        """The k documents nearest to each query (raw vectors), each by its best passage, best first."""
        return self.matches(self.nearest_passages(queries, k, documents=documents))

    def matches(self, found: Sequence[Sequence[Nearest]]) -> list[list[Match]]:
        """The same with the documents' fields; nothing is given that is not as it was stored."""
        passages = [passage for own in found for passage, _ in own]
        stored = self.store.documents(list({passage.document: None for passage in passages}), passages)
        return [
            [Match(passage, score, stored[passage.document]) for passage, score in own if passage.document in stored]
            for own in found
        ]

    def similar_documents(self, number: int, k: int, documents: str | None = None) -> list[Match]:
        """The k documents nearest to a stored one, by their nearest pair of passages, itself left out."""
        own = [passage.vector for passage in self.store.passages_of_documents([number])[number]]
        others = both(f"document != {number}", documents or "")
        best: dict[int, Nearest] = {}
        for found in self.nearest_passages(self.store.vectors(own, self.dimension), k, documents=others):
            for passage, score in found:
                if passage.document not in best or score > best[passage.document][1]:
                    best[passage.document] = (passage, score)
        return self.matches([sorted(best.values(), key=_best_first)[:k]])[0]

    def nearest_passages(
        self, queries: NDArray[np.float32], k: int, *, documents: str | None = None
    ) -> list[list[Nearest]]:
        """The best passage of each of the k documents nearest to each query, best first."""
        mapped = unit_rows(self.apply(queries))
        found: list[list[Nearest]] = [[] for _ in mapped]
        for start in range(0, len(mapped), QUERIES_TOGETHER):
            some = list(range(start, min(start + QUERIES_TOGETHER, len(mapped))))
            limit = LOOKED_AT * k + SPARE
            while some:
                look = self._in_raw if self.raw else self._in_index
                rows = look(mapped[some], min(limit, MOST_ROWS), documents or "")
                left = []
                for place, (own, all_there) in zip(some, rows, strict=True):
                    found[place], settled = _by_document(own, k)
                    if not (settled or all_there):
                        left.append(place)
                if limit >= MOST_ROWS:
                    break
                some, limit = left, 4 * limit
        return found

    def _in_index(self, queries: NDArray[np.float32], limit: int, expression: str) -> list[tuple[list[Nearest], bool]]:
        """For each query the nearest passages that are alive, and whether there are no more."""
        rows = self.store.client.search(
            self.index,
            "mapped",
            queries,
            limit,
            [*INDEX_FIELDS, "mapped"],
            expression=expression,
            settings=self.settings,
        )
        seals = self.store.seals([row["document"] for own in rows for row in own])
        return [
            (
                _scored([row for row in own if seals.get(row["document"]) == row["seal"]], query, _mapped),
                len(own) < limit,
            )
            for own, query in zip(rows, queries, strict=True)
        ]

    def _in_raw(self, queries: NDArray[np.float32], limit: int, expression: str) -> list[tuple[list[Nearest], bool]]:
        """The same by the encoder's own vectors, which stand for passages that the index knows."""
        client = self.store.client
        rows = client.search(self.store.vectors_table, "raw", queries, limit, ["number", "raw"], metric="COSINE")
        vectors = [row["number"] for own in rows for row in own]
        passages = client.select_among(self.index, "vector", vectors, INDEX_FIELDS, expression)
        seals = self.store.seals([row["document"] for row in passages])
        of_vector: dict[int, list[Row]] = {}
        for row in passages:
            if seals.get(row["document"]) == row["seal"]:
                of_vector.setdefault(row["vector"], []).append(row)
        found = []
        for own, query in zip(rows, queries, strict=True):
            alive = [{**row, "raw": one["raw"]} for one in own for row in of_vector.get(one["number"], [])]
            found.append((_scored(alive, query, _raw), len(own) < limit))
        return found

    def nearest_of(self, query: NDArray[np.float32], documents: Sequence[int]) -> dict[int, Nearest]:
        """The passage of each of these documents that is nearest to the query (a raw vector)."""
        passages = self.store.passages_of_documents(documents)
        numbers = list(dict.fromkeys(passage.vector for own in passages.values() for passage in own))
        if not numbers:
            return {}
        raw = np.concatenate([query[None, :], self.store.vectors(numbers, self.dimension)])
        mapped = unit_rows(self.apply(raw)).astype(np.float64)
        score_of = dict(zip(numbers, products(mapped[1:], mapped[0]).tolist(), strict=True))
        best = {
            number: max(own, key=lambda passage: score_of[passage.vector]) for number, own in passages.items() if own
        }
        return {number: (passage, score_of[passage.vector]) for number, passage in best.items()}

    def background(self, queries: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of each query's cosines with the vectors of the collection, from a sample."""
        if not len(self._sample):
            return np.zeros(len(queries)), np.ones(len(queries))
        cosines = self._sample @ unit_rows(self.apply(queries)).astype(np.float64).T
        return cosines.mean(axis=0), np.maximum(cosines.std(axis=0), SMALLEST_SPREAD)

    @cached_property
    def _sample(self) -> NDArray[np.float64]:
        """Unit vectors of a seeded choice of the vectors that were ever given a number."""
        last = self.store.last_vector()
        numbers = np.arange(1, last + 1)
        if last > SAMPLED:
            numbers = np.unique(np.random.default_rng(0).integers(1, last + 1, SAMPLED))
        rows = self.store.client.select_among(self.store.vectors_table, "number", numbers.tolist(), ["raw"])
        raw = np.array([row["raw"] for row in rows], np.float32).reshape(len(rows), self.dimension)
        return unit_rows(self.apply(raw)).astype(np.float64)


def _mapped(rows: Sequence[Row]) -> NDArray[np.float32]:
    return np.array([row["mapped"] for row in rows], np.float32)


def _raw(rows: Sequence[Row]) -> NDArray[np.float32]:
    return unit_rows(np.array([row["raw"] for row in rows], np.float32))


def _scored(
    rows: Sequence[Row], query: NDArray[np.float32], vectors: Callable[[Sequence[Row]], NDArray[np.float32]]
) -> list[Nearest]:
    """Passages with their cosines, best first, those that tie by the number of their vector."""
    if not rows:
        return []
    scores = products(vectors(rows).astype(np.float64), query.astype(np.float64)).tolist()
    ranked = zip(map(passage_of, rows), scores, strict=True)
    return sorted(ranked, key=lambda pair: (-pair[1], pair[0].vector, pair[0].document, pair[0].position))


def _by_document(scored: Sequence[Nearest], k: int) -> tuple[list[Nearest], bool]:
    """The k best documents by their best passage, and whether nothing that was not looked at could be among them."""
    best: dict[int, Nearest] = {}
    for passage, score in scored:
        best.setdefault(passage.document, (passage, score))
    ranked = sorted(best.values(), key=_best_first)[:k]
    return ranked, len(ranked) == k and ranked[-1][1] - scored[-1][1] >= TIE


def _best_first(found: Nearest) -> tuple[float, int]:
    return -found[1], found[0].document
