"""Mean, covariance and shrinkage of many vectors, in float64 and without a float64 copy of all of them."""

from dataclasses import dataclass

import numpy as np

from retriever.transforms.base import CHUNK, Array

__all__ = ["NEGLIGIBLE", "Moments", "distinct", "equal_rows", "moments", "principal_axes"]

# Spread below this part of the vectors' own size is rounding of float32, not data.
ROUNDING = 1e-6

# A dimension or direction whose standard deviation is below this part of the typical one is taken as
# constant. What varies there is rounding (that of float16 is near 3e-4), and to scale it up would let noise
# decide the search.
NEGLIGIBLE = 1e-3


@dataclass(frozen=True)
class Moments:
    """The first two moments (population: divided by n) and the Ledoit-Wolf coefficient."""

    mean: Array
    covariance: Array
    shrinkage: float


def moments(vectors: Array) -> Moments:
    """Mean, covariance and Ledoit-Wolf shrinkage towards a multiple of the identity.

    The coefficient (Ledoit and Wolf 2004, "A well-conditioned estimator for large-dimensional covariance
    matrices") is min(b, D) / D with D = |S - m I|^2 / d, b = (sum_i |x_i|^4 / n - |S|^2) / (n d) and m = tr S
    / d; the shrunk covariance is (1 - c) S + c m I.
    """
    n, d = vectors.shape
    mean = vectors.mean(axis=0, dtype=np.float64)
    scatter = np.zeros((d, d))
    fourth = 0.0
    for start in range(0, n, CHUNK):
        centred = vectors[start : start + CHUNK].astype(np.float64) - mean
        scatter += centred.T @ centred
        fourth += float((np.einsum("ij,ij->i", centred, centred) ** 2).sum())
    covariance = scatter / n
    average = float(np.trace(covariance)) / d
    square = float((covariance**2).sum())
    distance = (square - d * average**2) / d
    error = min((fourth / n - square) / (n * d), distance)
    return Moments(mean, covariance, error / distance if error > 0 and distance > 0 else 0.0)


def principal_axes(covariance: Array) -> tuple[Array, Array]:
    """Eigenvalues, largest first and none below 0, and eigenvectors as columns, their largest entries positive."""
    values, axes = np.linalg.eigh(covariance)
    values, axes = np.maximum(values[::-1], 0.0), axes[:, ::-1]
    signs = np.where(axes[np.abs(axes).argmax(axis=0), np.arange(len(values))] < 0, -1.0, 1.0)
    return values, axes * signs


def equal_rows(vectors: Array) -> bool:
    """Whether all vectors are the same, up to rounding."""
    first = vectors[0].astype(np.float64)
    size = float(np.abs(first).max())
    for start in range(0, len(vectors), CHUNK):
        if np.abs(vectors[start : start + CHUNK] - first).max() > ROUNDING * size:
            return False
    return True


def distinct(vectors: Array) -> Array:
    """Every vector once: a copy on both sides of the split would hide that a flow learns by heart."""
    # Hashes, not the rows themselves, which would double the memory of the sample.
    first = {hash(row.tobytes()): number for number, row in reversed(list(enumerate(vectors)))}
    return vectors if len(first) == len(vectors) else vectors[sorted(first.values())]
