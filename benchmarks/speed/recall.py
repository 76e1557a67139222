"""Recall of a system: its hits against brute force over every vector."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.sentence_vectors import Halves
from indexes.faiss.vectors import unit_rows

BLOCK = 65_536
# Systems add in another order and store other precisions, so scores this close are ties.
TIE = 1e-5


def least_scores(vectors: Halves, queries: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """The cosine of the k-th nearest vector to each query."""
    wanted = min(k, len(vectors))
    directions = unit_rows(queries)
    best = np.full((len(queries), wanted), -np.inf, np.float32)
    for start in range(0, len(vectors), BLOCK):
        scores = directions @ unit_rows(vectors[start : start + BLOCK].astype(np.float32)).T
        every = np.concatenate([best, scores], axis=1)
        best = -np.partition(-every, wanted - 1, axis=1)[:, :wanted]
    return np.asarray(best.min(axis=1), np.float32)


def recall(
    vectors: Halves, queries: NDArray[np.float32], least: NDArray[np.float32], found: Sequence[Sequence[str]], k: int
) -> float:
    """Recall@k: the mean share of a query's k nearest that was found; a tie with the k-th counts as found.

    Ids are row numbers.
    """
    directions = unit_rows(queries)
    wanted = min(k, len(vectors))
    shares = []
    for direction, threshold, ids in zip(directions, least, found, strict=True):
        rows = [int(id_) for id_ in dict.fromkeys(ids)][:k]
        scores = unit_rows(vectors[rows].astype(np.float32)) @ direction
        shares.append(int((scores >= threshold - TIE).sum()) / wanted)
    return float(np.mean(shares))
