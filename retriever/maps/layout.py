"""A layout of vectors on a plane that preserves neighbourhoods: t-SNE over the nearest neighbours by cosine.

The method is from van der Maaten and Hinton, "Visualizing data using t-SNE", JMLR 2008. It is computed by openTSNE
(Poličar et al. 2024) and starts from the principal components. The layout is seeded, so the same vectors always give
the same layout.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import import_faiss
from retriever.errors import requires_extra

Matrix = NDArray[np.float32]
Places = NDArray[np.float64]
Numbers = NDArray[np.int64]

PERPLEXITY = 20.0
FEWEST = 10
"""Minimum number of vectors for t-SNE. Fewer vectors are laid out by their principal components."""
STEPS = (100, 200)
"""Early and late steps. On 4,000 abstracts, 64.6 % of the ten nearest are then among the fifty nearest on the map. With
200 and 450 steps they are 65.2 %."""
STEPS_OF_MANY = (200, 450)
EARLY_EXAGGERATION = 12.0
# With fewer points, this exaggeration would keep all points in one place, so it is reduced.
EXAGGERATED_FROM = 120
# With fewer points, one thread is fast enough. Several would wait for each other in loops that keep busy cores busier.
THREADS_FROM = 10_000
# With fewer points, a Barnes-Hut tree is faster than interpolation on a grid, whose size grows with the layout.
GRID_FROM = 10_000
REPORTED_EVERY = 10

PLACED_NEAR = 5
"""Number of neighbours that determine where a new point is placed."""
# A neighbour is ignored if its distance from the nearest neighbour exceeds this share of the map's width. It belongs to
# another island of the map.
SAME_ISLAND = 0.03
JITTER = 0.002


def lay_out(vectors: Matrix, progress: Callable[[int, int], None], seed: int = 0) -> Places:
    """Return a point on the plane for each unit vector."""
    count = len(vectors)
    first = _components(vectors)
    if count < FEWEST:
        turns = 2 * math.pi * np.arange(count) / max(count, 1)
        circle = np.stack([np.cos(turns), np.sin(turns)], axis=1) if count > 1 else np.zeros((count, 2))
        return np.asarray(first / max(float(np.abs(first).max(initial=0.0)), 1e-9) + 0.1 * circle)
    with requires_extra("serve", "a map"):
        from openTSNE import TSNEEmbedding
        from openTSNE.affinity import PerplexityBasedNN
        from openTSNE.nearest_neighbors import PrecomputedNeighbors
    perplexity = min(PERPLEXITY, (count - 1) / 3)
    jobs = -1 if count >= THREADS_FROM else 1
    exaggeration = EARLY_EXAGGERATION * min(1.0, count / EXAGGERATED_FROM)
    neighbours, cosines = nearest(vectors, vectors, int(3 * perplexity), own=np.arange(count))
    distances = np.sqrt(np.maximum(2 - 2 * cosines.astype(np.float64), 0))
    affinities = PerplexityBasedNN(
        perplexity=perplexity, knn_index=PrecomputedNeighbors(neighbours, distances), n_jobs=jobs
    )
    rng = np.random.default_rng(seed)
    spread = max(float(first.std(axis=0)[0]), 1e-12)
    start = 1e-4 * first / spread + rng.normal(scale=1e-6, size=first.shape)
    done = 0
    early, late = STEPS_OF_MANY if count >= GRID_FROM else STEPS

    def report(iteration: int, error: float, embedding: object) -> None:
        progress(done + iteration, early + late)

    embedding = TSNEEmbedding(
        start,
        affinities,
        negative_gradient_method="fft" if count >= GRID_FROM else "bh",
        n_jobs=jobs,
        random_state=seed,
        callbacks=report,
        callbacks_every_iters=REPORTED_EVERY,
    )
    embedding.optimize(early, inplace=True, exaggeration=exaggeration, momentum=0.5, propagate_exception=True)
    done = early
    embedding.optimize(late, inplace=True, exaggeration=1, momentum=0.8, propagate_exception=True)
    return np.nan_to_num(np.asarray(embedding, np.float64))


def _components(vectors: Matrix) -> Places:
    """Project the vectors on their first two principal components. The sign of each component is fixed."""
    if not len(vectors):
        return np.zeros((0, 2))
    centred = vectors - vectors.mean(axis=0)
    _, axes = np.linalg.eigh((centred.T @ centred).astype(np.float64))
    two = np.zeros((vectors.shape[1], 2))
    two[:, : min(2, vectors.shape[1])] = axes[:, ::-1][:, :2]
    two *= np.where(two[np.abs(two).argmax(axis=0), [0, 1]] < 0, -1, 1)
    return np.asarray(centred @ two)


def nearest(
    vectors: Matrix, among: Matrix, count: int, own: Numbers | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the rows of `among` that are nearest to each unit vector, nearest first, and their cosines.

    If the vectors are themselves in `among`, `own` gives the row of each one. This row is left out.
    """
    faiss = import_faiss()
    wanted = min(count + (own is not None), len(among))
    cosines, rows = faiss.knn(vectors, among, wanted, metric=faiss.METRIC_INNER_PRODUCT)
    if own is None:
        return rows, cosines
    others = rows != own[:, None]
    others[others.all(axis=1), -1] = False  # if a vector has many duplicates, its own row may not be among the nearest
    shape = (len(vectors), wanted - 1)
    return rows[others].reshape(shape), cosines[others].reshape(shape)


def placed_among(vectors: Matrix, known: Matrix, places: Places, seed: int = 0) -> tuple[Places, Numbers]:
    """Place each vector near its nearest neighbours among the `known` vectors, whose points are `places`.

    Return the new points, and for each vector the row of its nearest neighbour in `known`.
    """
    rows, _ = nearest(vectors, known, PLACED_NEAR)
    width = max(float(np.ptp(places, axis=0).max()), 1e-9)
    around = places[rows]
    near = np.linalg.norm(around - around[:, :1], axis=2) <= SAME_ISLAND * width
    middle = (around * near[:, :, None]).sum(axis=1) / near.sum(axis=1, keepdims=True)
    jitter = np.random.default_rng(seed).normal(scale=JITTER * width, size=middle.shape)
    return middle + jitter, rows[:, 0]


def preserved(places: NDArray[Any], measured: Numbers, neighbours: Numbers, within: int) -> float | None:
    """Return the share of true neighbours that are also among the `within` nearest points on the plane.

    For each of the `measured` rows, `neighbours` has the rows that are nearest to it in the vector space. If
    `neighbours` is empty, return None.
    """
    from scipy.spatial import KDTree

    if not neighbours.size:
        return None
    _, found = KDTree(places).query(places[measured], k=min(within + 1, len(places)))
    kept = [
        np.isin(own, here[here != row][:within]).mean()
        for row, own, here in zip(measured, neighbours, found, strict=True)
    ]
    return float(np.mean(kept))
