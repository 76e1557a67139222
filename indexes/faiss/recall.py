"""Measures the recall of an index: the share of the ten true nearest neighbours that it finds, on held-out queries.

The queries are vectors that are not in the index. If there are none, some vectors of the index are used, and each is
excluded from its own results. One half of the queries is used to choose the search settings (indexes/faiss/tuning.py).
The other half is used to measure the recall that is reported.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import VectorIndex
from indexes.rows import LOOKED_AT, Matrix, Numbers

RECALL_AT = 10
WANTED = LOOKED_AT * RECALL_AT
"""The number of vectors that a search for ten documents requests from an index."""
MOST_QUERIES = 1000
TIMED = 32
TIE = 1e-6
SHORT_TEXTS = "short texts cut from passages"
STORED = "stored passages, each excluded from its own results"
SEED = 0

Find = Callable[[VectorIndex, Matrix], Sequence[tuple[Numbers, NDArray[np.float64]]]]
"""A function that searches an index: it returns candidates of the index, scored exactly, best first."""


@dataclass(frozen=True)
class Queries:
    """Unit vectors to search with. If they are stored vectors, `own` holds their numbers."""

    vectors: Matrix
    what: str
    own: Numbers | None = None

    def __len__(self) -> int:
        return len(self.vectors)


@dataclass(frozen=True)
class HeldOut:
    """Queries with the true nearest neighbours of each."""

    queries: Queries
    numbers: Numbers
    """One row per query: the numbers of its nearest neighbours, best first."""
    scores: Matrix

    def half(self, which: int) -> "HeldOut":
        """Return every second query, starting with the first (0) or the second (1).

        A single query is in both halves.
        """
        if len(self.queries) < 2:
            return self
        some = slice(which, None, 2)
        own = None if self.queries.own is None else self.queries.own[some]
        queries = Queries(self.queries.vectors[some], self.queries.what, own)
        return HeldOut(queries, self.numbers[some], self.scores[some])

    def shares_found(self, index: VectorIndex, find: Find) -> NDArray[np.float64]:
        """Compute the recall of each query. A vector that is as near as the last true neighbour counts as found."""
        least = self.scores[:, -1].astype(np.float64) - TIE
        shares = np.zeros(len(self.queries))
        for place, (numbers, scores) in enumerate(find(index, self.queries.vectors)):
            if self.queries.own is not None:
                scores = scores[numbers != self.queries.own[place]]
            shares[place] = np.count_nonzero(scores[: self.numbers.shape[1]] >= least[place]) / self.numbers.shape[1]
        return shares


class Nearest:
    """Finds the true nearest neighbours of some queries among vectors that arrive in blocks."""

    def __init__(self, queries: Queries, count: int) -> None:
        self.queries = queries
        k = max(0, min(RECALL_AT, count - (queries.own is not None)))
        self._numbers = np.full((len(queries), k), -1, np.int64)
        self._scores = np.full((len(queries), k), -np.inf, np.float32)

    def see(self, numbers: Numbers, vectors: Matrix) -> None:
        k = self._numbers.shape[1]
        if not k or not len(self.queries):
            return
        scores = self.queries.vectors @ vectors.T
        if self.queries.own is not None:
            scores[self.queries.own[:, None] == numbers] = -np.inf
        better = np.flatnonzero(scores.max(axis=1) > self._scores[:, -1])
        some = scores[better]
        if some.shape[1] > k:
            best = np.argpartition(some, some.shape[1] - k, axis=1)[:, some.shape[1] - k :]
            some, known = np.take_along_axis(some, best, axis=1), numbers[best]
        else:
            known = np.broadcast_to(numbers, some.shape)
        all_scores = np.concatenate([self._scores[better], some], axis=1)
        all_numbers = np.concatenate([self._numbers[better], known], axis=1)
        order = np.argsort(-all_scores, axis=1, kind="stable")[:, :k]
        self._scores[better] = np.take_along_axis(all_scores, order, axis=1)
        self._numbers[better] = np.take_along_axis(all_numbers, order, axis=1)

    def held_out(self) -> HeldOut | None:
        """Return the queries with their neighbours, or None if there are no queries or no vectors."""
        if not len(self.queries) or not self._numbers.shape[1]:
            return None
        return HeldOut(self.queries, self._numbers, self._scores)


def stored_queries(numbers: Numbers, take: Callable[[Numbers], Matrix]) -> Queries:
    """Return a fixed random sample of the stored vectors, as queries."""
    rng = np.random.default_rng(SEED)
    own = np.sort(rng.choice(numbers, min(MOST_QUERIES, len(numbers)), replace=False))
    return Queries(take(own), STORED, own)


def interval(mean: float, count: int) -> tuple[float, float]:
    """Compute Wilson's 95 % confidence interval of a share.

    `count` is the number of queries and not of neighbours, because the neighbours of a query are not independent. The
    interval is a little too wide. It is wider than zero even if every query found all neighbours.

    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
    """
    z = 1.959964
    center = (mean + z * z / (2 * count)) / (1 + z * z / count)
    spread = z / (1 + z * z / count) * math.sqrt(mean * (1 - mean) / count + z * z / (4 * count * count))
    return max(0.0, center - spread), min(1.0, center + spread)


def cpu_ms(search: Callable[[Matrix], Any], queries: Matrix) -> float:
    """Measure the CPU time of a single query in milliseconds, summed over all threads."""
    some = queries[:TIMED]
    search(some[:1])
    began = time.process_time()
    for place in range(len(some)):
        search(some[place : place + 1])
    return 1000 * (time.process_time() - began) / len(some)


def measure(index: VectorIndex, held_out: HeldOut, find: Find) -> dict[str, Any]:
    """Measure the recall of an index and the time of a query, for its manifest."""
    found: dict[str, Any] = {
        "at": RECALL_AT,
        "cpu_ms": round(cpu_ms(lambda q: find(index, q), held_out.queries.vectors), 4),
    }
    if index.exact:
        return found | {"recall": 1.0, "exact": True}
    return found | recall_facts(held_out.shares_found(index, find), held_out.queries)


def recall_facts(shares: NDArray[np.float64], queries: Queries) -> dict[str, Any]:
    """Return the recall of an approximate index with its confidence interval and its queries, for the manifest."""
    low, high = interval(float(shares.mean()), len(shares))
    return {
        "exact": False,
        "recall": round(float(shares.mean()), 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "queries": len(shares),
        "queries_were": queries.what,
    }
