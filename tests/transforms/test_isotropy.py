"""Each measure of a space against its formula, pair by pair and vector by vector."""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from retriever.transforms import fit, isotropy


@pytest.fixture
def cone() -> NDArray[np.float32]:
    """Vectors in a narrow, uneven cone, of unequal lengths."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 6)) * [1, 0.7, 0.5, 0.3, 0.2, 0.1] + [2, 1, 0, 0, 0, 0]
    return (rows * rng.uniform(1, 9, size=(80, 1))).astype(np.float32)


def unit(rows: NDArray[np.float32]) -> list[NDArray[np.float64]]:
    return [row.astype(np.float64) / np.linalg.norm(row.astype(np.float64)) for row in rows]


def test_mean_cosine_over_all_pairs(cone: NDArray[np.float32]) -> None:
    expected = np.mean([a @ b for a, b in itertools.combinations(unit(cone), 2)])
    assert isotropy.mean_cosine(cone) == pytest.approx(expected, abs=1e-12)
    assert expected > 0.5
    assert abs(isotropy.mean_cosine(fit("whiten", cone).apply(cone))) < 0.05


def test_uniformity_over_all_pairs(cone: NDArray[np.float32]) -> None:
    terms = [math.exp(-2 * ((a - b) ** 2).sum()) for a, b in itertools.combinations(unit(cone), 2)]
    assert isotropy.uniformity(cone) == pytest.approx(math.log(np.mean(terms)), abs=1e-9)
    assert isotropy.uniformity(np.ones((5, 3), np.float32)) == pytest.approx(0, abs=1e-9)


def test_alignment_over_pairs(cone: NDArray[np.float32]) -> None:
    expected = np.mean([((a - b) ** 2).sum() for a, b in zip(unit(cone[:30]), unit(cone[30:60]), strict=True)])
    assert isotropy.alignment(cone[:30], cone[30:60]) == pytest.approx(expected, abs=1e-12)
    assert isotropy.alignment(cone, 3 * cone) == pytest.approx(0, abs=1e-9)


def test_partition_isotropy_over_eigenvectors(cone: NDArray[np.float32]) -> None:
    vectors = unit(cone)
    _, _, directions = np.linalg.svd(np.stack(vectors), full_matrices=False)
    sums = [sum(math.exp(sign * (c @ x)) for x in vectors) for c in directions for sign in (1, -1)]
    assert isotropy.partition_isotropy(cone) == pytest.approx(min(sums) / max(sums), rel=1e-9)
    even = np.concatenate([np.eye(6), -np.eye(6)]).astype(np.float32)
    assert isotropy.partition_isotropy(even) == pytest.approx(1)


def test_spectrum_and_participation(cone: NDArray[np.float32]) -> None:
    expected = np.linalg.svd(cone.astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(isotropy.singular_values(cone), expected, rtol=1e-8)
    values = np.linalg.svd(cone.astype(np.float64) - cone.mean(axis=0, dtype=np.float64), compute_uv=False) ** 2
    ratio = values.sum() ** 2 / (values**2).sum()
    assert isotropy.participation_ratio(cone) == pytest.approx(ratio, rel=1e-9)
    assert isotropy.isoscore(cone) == pytest.approx((ratio - 1) / 5, rel=1e-9)
    line = np.outer(np.arange(1, 9), np.ones(6)).astype(np.float32)
    assert isotropy.isoscore(line) == pytest.approx(0, abs=1e-9)
    assert isotropy.isoscore(fit("whiten:shrinkage=0", cone).apply(cone)) == pytest.approx(1, abs=1e-5)


def test_bits_per_dimension_of_a_known_density() -> None:
    from scipy.stats import multivariate_normal

    rng = np.random.default_rng(0)
    rows = rng.multivariate_normal([1, 2, 3], [[2, 0.5, 0], [0.5, 1, 0.2], [0, 0.2, 0.5]], size=400).astype(np.float32)
    whiten = fit("whiten:shrinkage=0", rows[:300])
    mean = rows[:300].mean(axis=0, dtype=np.float64)
    covariance = np.cov(rows[:300].astype(np.float64), rowvar=False, bias=True)
    nats = multivariate_normal(mean, covariance).logpdf(rows[300:].astype(np.float64)).mean()
    found = isotropy.bits_per_dimension(whiten.log_likelihood(rows[300:]), 3)
    assert found == pytest.approx(-nats / 3 / math.log(2), abs=1e-4)


def test_gaussianity_tells_a_bell_curve() -> None:
    rng = np.random.default_rng(0)
    bell = rng.normal(size=(1500, 40)).astype(np.float32)
    skewed = rng.exponential(size=(1500, 40)).astype(np.float32)
    assert isotropy.gaussianity(bell).rejected < 0.1 and isotropy.gaussianity(bell).skewness < 0.1
    found = isotropy.gaussianity(skewed)
    assert found.rejected == 1 and found.skewness == pytest.approx(2, abs=0.4) and found.kurtosis > 3
    assert math.isnan(isotropy.gaussianity(np.ones((30, 3), np.float32)).rejected)


def test_a_sample_is_seeded_and_in_order() -> None:
    rows = np.arange(100, dtype=np.float32)[:, None]
    some = isotropy.sample_rows(rows, 10)
    assert len(some) == 10 and (np.diff(some[:, 0]) > 0).all()
    np.testing.assert_array_equal(some, isotropy.sample_rows(rows, 10))
    assert isotropy.sample_rows(rows, 100) is rows
