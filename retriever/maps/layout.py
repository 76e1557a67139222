"""Vectors as places on a plane where neighbours stay neighbours: t-SNE over their nearest by cosine.

Van der Maaten and Hinton, "Visualizing data using t-SNE", JMLR 2008, as openTSNE computes it (Poličar et al. 2024),
from the principal components. Seeded: the same vectors get the same places.
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
"""Fewer than these are laid out by their principal components."""
EARLY, LATE = 200, 450
EARLY_EXAGGERATION = 12.0
# Attraction that strong would hold few points in one place for ever.
EXAGGERATED_FROM = 120
# Threads cost more than they save on fewer points.
THREADS_FROM = 1000
# Repulsion by interpolation on a grid pays from here on; below, a tree is quicker.
GRID_FROM = 4000
REPORTED_EVERY = 10
SEARCHED_TOGETHER = 2048

AMONG = 5
# What is placed among its neighbours stays with those that lie around the nearest; others are on another island.
AROUND = 0.03
JITTER = 0.002

NEIGHBOURS = 10


def lay_out(vectors: Matrix, progress: Callable[[int, int], None], seed: int = 0) -> Places:
    """A place for each of these unit vectors."""
    count = len(vectors)
    first = _components(vectors)
    if count < FEWEST:
        turns = 2 * math.pi * np.arange(count) / max(count, 1)
        circle = np.stack([np.cos(turns), np.sin(turns)], axis=1) if count > 1 else np.zeros((count, 2))
        return np.asarray(first / max(float(np.abs(first).max(initial=0.0)), 1e-9) + 0.1 * circle)
    affinity, embedding_of, precomputed = _open_tsne()
    perplexity = min(PERPLEXITY, (count - 1) / 3)
    jobs = -1 if count >= THREADS_FROM else 1
    exaggeration = EARLY_EXAGGERATION * min(1.0, count / EXAGGERATED_FROM)
    neighbours, cosines = nearest(vectors, vectors, int(3 * perplexity), own=np.arange(count))
    distances = np.sqrt(np.maximum(2 - 2 * cosines.astype(np.float64), 0))
    affinities = affinity(perplexity=perplexity, knn_index=precomputed(neighbours, distances), n_jobs=jobs)
    rng = np.random.default_rng(seed)
    spread = max(float(first.std(axis=0)[0]), 1e-12)
    start = 1e-4 * first / spread + rng.normal(scale=1e-6, size=first.shape)
    done = 0

    def report(iteration: int, error: float, embedding: object) -> None:
        progress(done + iteration, EARLY + LATE)

    embedding = embedding_of(
        start,
        affinities,
        negative_gradient_method="fft" if count >= GRID_FROM else "bh",
        n_jobs=jobs,
        random_state=seed,
        callbacks=report,
        callbacks_every_iters=REPORTED_EVERY,
    )
    embedding.optimize(EARLY, inplace=True, exaggeration=exaggeration, momentum=0.5, propagate_exception=True)
    done = EARLY
    embedding.optimize(LATE, inplace=True, exaggeration=1, momentum=0.8, propagate_exception=True)
    return np.nan_to_num(np.asarray(embedding, np.float64))


def _open_tsne() -> tuple[Any, Any, Any]:
    with requires_extra("serve", "a map"):
        from openTSNE import TSNEEmbedding
        from openTSNE.affinity import PerplexityBasedNN
        from openTSNE.nearest_neighbors import PrecomputedNeighbors
    return PerplexityBasedNN, TSNEEmbedding, PrecomputedNeighbors


def _components(vectors: Matrix) -> Places:
    """The rows along their two directions of most variance, the sign of each direction fixed."""
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
    """Which rows of `among` are nearest to each unit vector, nearest first, and their cosines.

    `own` says which row each vector is itself: that one is left out.
    """
    index = import_faiss().IndexFlatIP(among.shape[1])
    index.add(among)
    wanted = min(count + (own is not None), len(among))
    found = [
        index.search(vectors[start : start + SEARCHED_TOGETHER], wanted)
        for start in range(0, len(vectors), SEARCHED_TOGETHER)
    ]
    cosines = np.concatenate([some for some, _ in found]) if found else np.zeros((0, wanted), np.float32)
    rows = np.concatenate([some for _, some in found]) if found else np.zeros((0, wanted), np.int64)
    if own is None:
        return rows, cosines
    others = rows != own[:, None]
    others[others.all(axis=1), -1] = False  # so many are as near that it is not among them itself
    shape = (len(vectors), wanted - 1)
    return rows[others].reshape(shape), cosines[others].reshape(shape)


def placed_among(vectors: Matrix, known: Matrix, places: Places, seed: int = 0) -> tuple[Places, Numbers]:
    """Places beside the nearest of vectors that have one, and which of them is the nearest."""
    rows, _ = nearest(vectors, known, AMONG)
    width = max(float(np.ptp(places, axis=0).max()), 1e-9)
    around = places[rows]
    near = np.linalg.norm(around - around[:, :1], axis=2) <= AROUND * width
    middle = (around * near[:, :, None]).sum(axis=1) / near.sum(axis=1, keepdims=True)
    jitter = np.random.default_rng(seed).normal(scale=JITTER * width, size=middle.shape)
    return middle + jitter, rows[:, 0]


def preserved(places: NDArray[Any], asked: Numbers, neighbours: Numbers, within: int) -> float | None:
    """The share of the true neighbours of some rows that are among so many nearest on the plane; None of nothing.

    `neighbours` holds the rows nearest to each of `asked` in the space, NEIGHBOURS of them or all there are.
    """
    from scipy.spatial import KDTree

    if not neighbours.size:
        return None
    _, found = KDTree(places).query(places[asked], k=min(within + 1, len(places)))
    kept = [
        np.isin(own, here[here != row][:within]).mean() for row, own, here in zip(asked, neighbours, found, strict=True)
    ]
    return float(np.mean(kept))
