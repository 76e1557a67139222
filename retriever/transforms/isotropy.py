"""Measures of isotropy, i.e. how evenly vectors fill their space. Each function states its formula and source."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.float32]

SAMPLE = 2000
"""Number of rows that are sampled for measures over all pairs and for tests of normality."""
SIGNIFICANCE = 0.01


def unit_rows(rows: Rows) -> Floats:
    """Scale the rows to length one, in float64. A zero row stays zero."""
    wide = rows.astype(np.float64)
    return np.asarray(wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12))


def mean_cosine(rows: Rows) -> float:
    """Return the mean cosine over all pairs of different rows: (|sum of unit rows|^2 - n) / (n (n - 1)).

    It is near 0 in an isotropic space, and near 1 if all rows lie in a narrow cone (Ethayarajh 2019).
    """
    unit = unit_rows(rows)
    total = unit.sum(axis=0)
    own = np.einsum("ij,ij->", unit, unit)
    return float((total @ total - own) / (len(unit) * (len(unit) - 1)))


def uniformity(rows: Rows) -> float:
    """Return log E exp(-2 |x - y|^2) over all pairs of rows scaled to length one (Wang and Isola 2020).

    A lower value means that the rows are spread more uniformly.
    """
    unit = unit_rows(rows)
    squares = 2 - 2 * (unit @ unit.T)
    first, second = np.triu_indices(len(unit), k=1)
    return float(np.log(np.exp(-2 * np.maximum(squares[first, second], 0)).mean()))


def alignment(first: Rows, second: Rows) -> float:
    """Return the mean squared distance of pairs with the same meaning, E |x - x+|^2 (Wang and Isola 2020).

    The rows are scaled to length one. A lower value means that the pairs are closer.
    """
    return float(((unit_rows(first) - unit_rows(second)) ** 2).sum(axis=1).mean())


def partition_isotropy(rows: Rows) -> float:
    """Return min Z(c) / max Z(c) over the eigenvectors c of X^T X in both directions, with Z(c) = sum_x exp(c . x).

    The value is 1 in an isotropic space (Arora et al. 2016; Mu and Viswanath 2018). The rows are scaled to length one,
    because the ratio of long vectors would depend only on their length.
    """
    unit = unit_rows(rows)
    _, axes = np.linalg.eigh(unit.T @ unit)
    along = unit @ axes
    sums = np.concatenate([np.exp(along).sum(axis=0), np.exp(-along).sum(axis=0)])
    return float(sums.min() / sums.max())


def singular_values(rows: Rows) -> Floats:
    """Return the singular values of the rows, largest first. The rows are not centred."""
    wide = rows.astype(np.float64)
    return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(wide.T @ wide)[::-1], 0)))


def participation_ratio(rows: Rows) -> float:
    """Return the effective number of dimensions: (sum l)^2 / (sum l^2) for the eigenvalues l of the covariance."""
    covariance = np.atleast_2d(np.cov(rows.astype(np.float64), rowvar=False))
    total, square = float(np.trace(covariance)), float((covariance**2).sum())
    return total * total / square if square else 1.0


def isoscore(rows: Rows) -> float:
    """Return (PR - 1) / (d - 1), with PR the participation ratio (Rudman et al. 2022). It is 1 after whitening."""
    if rows.shape[1] == 1:
        return 1.0
    return (participation_ratio(rows) - 1) / float(rows.shape[1] - 1)


def bits_per_dimension(log_likelihood: Floats, dimension: int) -> float:
    """Return the mean negative log-likelihood in bits per dimension, from nats per row. Lower is better."""
    return float(-log_likelihood.mean() / (dimension * math.log(2)))


@dataclass(frozen=True)
class Gaussianity:
    """How far single dimensions are from a normal distribution.

    `skewness` and `kurtosis` are means of absolute values over the dimensions. `rejected` is the share of dimensions
    for which a test rejects normality.
    """

    skewness: float
    kurtosis: float
    rejected: float


def gaussianity(rows: Rows) -> Gaussianity:
    """Measure skewness and excess kurtosis, and test each dimension for normality.

    The test is D'Agostino's K^2 at the significance level 1 %. Constant dimensions are left out.
    """
    from scipy import stats

    varying = rows.astype(np.float64)[:, np.ptp(rows, axis=0) > 0]
    if not varying.shape[1]:
        return Gaussianity(math.nan, math.nan, math.nan)
    return Gaussianity(
        float(np.abs(stats.skew(varying)).mean()),
        float(np.abs(stats.kurtosis(varying)).mean()),
        float((stats.normaltest(varying).pvalue < SIGNIFICANCE).mean()),
    )


def sample_rows(rows: Rows, count: int = SAMPLE, seed: int = 0) -> Rows:
    """Return a seeded random sample of at most `count` rows, in their original order."""
    if len(rows) <= count:
        return rows
    return rows[np.sort(np.random.default_rng(seed).choice(len(rows), count, replace=False))]
