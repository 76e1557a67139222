"""Mean, covariance and shrinkage of many vectors, computed in float64 chunk by chunk."""

from dataclasses import dataclass

import numpy as np

from retriever.transforms.base import CHUNK, Array

# Differences below this fraction of the vectors' size are float32 rounding, not data.
ROUNDING = 1e-6

# A dimension or direction whose standard deviation is below this fraction of the typical one counts as constant.
# Its variation is rounding (about 3e-4 for float16). Scaling it up would let noise decide the search.
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
    """Eigenvalues in descending order, clipped at 0, and eigenvectors as columns whose largest entry is positive."""
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
    """Drop repeated vectors. A copy on both sides of a split would hide that a flow memorises its training data."""
    # Hashes of the rows, because the rows themselves would double the memory of the sample.
    first = {hash(row.tobytes()): number for number, row in reversed(list(enumerate(vectors)))}
    return vectors if len(first) == len(vectors) else vectors[sorted(first.values())]
