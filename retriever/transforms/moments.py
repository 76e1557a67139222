"""Computes the mean, covariance, shrinkage and principal axes of many vectors, in float64 and chunk by chunk."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Rows that are converted to another precision at a time, so that the converted copies stay small.
CHUNK, FEW = 8192, 64
# Differences below this fraction of the vectors' size are treated as float32 rounding, not as data.
ROUNDING = 1e-6

# A dimension or direction whose standard deviation is below this fraction of the typical one counts as constant.
# Its variation is rounding (about 3e-4 for float16). If it were scaled up, noise would dominate the search.
NEGLIGIBLE = 1e-3


@dataclass(frozen=True)
class Moments:
    """The mean, the covariance (divided by n, not n - 1), and the Ledoit-Wolf shrinkage coefficient."""

    mean: Array
    covariance: Array
    shrinkage: float


def moments(vectors: Array) -> Moments:
    """Compute the mean, the covariance, and the Ledoit-Wolf shrinkage towards a multiple of the identity.

    The coefficient c (Ledoit and Wolf 2004, "A well-conditioned estimator for large-dimensional covariance
    matrices") is min(b, D) / D with D = |S - m I|^2 / d, b = (sum_i |x_i|^4 / n - |S|^2) / (n d) and m = tr S
    / d. The shrunk covariance is (1 - c) S + c m I.
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
    """Return the eigenvalues and eigenvectors of a covariance.

    Eigenvalues are in descending order and not negative. Eigenvectors are columns. The entry of a column with the
    largest absolute value is positive.
    """
    values, axes = np.linalg.eigh(covariance)
    values, axes = np.maximum(values[::-1], 0.0), axes[:, ::-1]
    signs = np.where(axes[np.abs(axes).argmax(axis=0), np.arange(len(values))] < 0, -1.0, 1.0)
    return values, axes * signs


@dataclass(frozen=True)
class Spectrum:
    """The mean of `count` vectors, the eigenvalues and eigenvectors of their covariance, and its shrinkage."""

    count: int
    mean: Array
    values: Array
    axes: Array
    shrinkage: float

    @classmethod
    def of(cls, vectors: Array) -> "Spectrum":
        found = moments(vectors)
        return cls(len(vectors), found.mean, *principal_axes(found.covariance), found.shrinkage)


def equal_rows(vectors: Array) -> bool:
    """Return whether all vectors are equal, up to rounding."""
    first = vectors[0].astype(np.float64)
    size = float(np.abs(first).max())
    for start in range(0, len(vectors), FEW):  # nearly always, the first few differ already
        if np.abs(vectors[start : start + FEW] - first).max() > ROUNDING * size:
            return False
    return True


def distinct(vectors: Array) -> Array:
    """Return the vectors without repetitions.

    If a vector were both in the training data and held out, it would hide that a flow memorises its training data.
    """
    # The keys are hashes of the rows, because the rows themselves would double the memory of the sample.
    first = {hash(row.tobytes()): number for number, row in reversed(list(enumerate(vectors)))}
    return vectors if len(first) == len(vectors) else vectors[sorted(first.values())]
