"""The affine families against what they promise and against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf
from sklearn.decomposition import PCA

from retriever.errors import FitFailed, Misuse
from retriever.transforms import fit

RNG = np.random.default_rng(0)
MIX = RNG.normal(size=(12, 12)) * np.geomspace(1, 0.02, 12)
X = (RNG.normal(size=(900, 12)) @ MIX.T + 3).astype(np.float32)


def covariance(z: np.ndarray) -> np.ndarray:
    return np.cov(z.astype(np.float64).T, bias=True)


@pytest.mark.parametrize("method", ["pca", "zca"])
def test_whitening_gives_the_identity(method: str) -> None:
    z = fit(f"whiten:method={method},shrinkage=0", X).apply(X)
    np.testing.assert_allclose(covariance(z), np.eye(12), atol=2e-3)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=2e-3)


def test_pca_whitening_is_that_of_scikit_learn() -> None:
    ours = fit("whiten:dimension=6,shrinkage=0", X).apply(X)
    theirs = PCA(6, whiten=True).fit_transform(X.astype(np.float64)) * np.sqrt(900 / 899)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-3)


def test_zca_is_the_whitening_nearest_to_the_original_axes() -> None:
    matrix = fit("whiten:method=zca", X).state.tensors["matrix"]
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-4)
    assert np.linalg.eigvalsh(matrix.astype(np.float64)).min() > 0


def test_gamma_tempers_the_spectrum() -> None:
    """Variances l / m become (l / m)^(1 - gamma)."""
    before = np.linalg.eigvalsh(covariance(X))[::-1]
    for gamma in (0.0, 0.25, 0.5):
        after = covariance(fit(f"whiten:gamma={gamma},shrinkage=0", X).apply(X))
        np.testing.assert_allclose(np.diag(after), (before / before.mean()) ** (1 - gamma), rtol=1e-3)


def test_soft_adds_a_part_of_the_mean_eigenvalue() -> None:
    values, axes = np.linalg.eigh(covariance(X))
    expected = axes @ np.diag((values + 0.1 * values.mean()) ** -0.5) @ axes.T
    found = fit("whiten:method=zca,soft=0.1,shrinkage=0", X).state.tensors["matrix"]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_standardize_gives_unit_deviation() -> None:
    z = fit("standardize", X).apply(X)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=1e-4)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-4)


def test_center_takes_the_mean_away() -> None:
    np.testing.assert_allclose(fit("center", X).apply(X), X - X.mean(axis=0), atol=1e-5)


@pytest.mark.parametrize("n", [3, 10, 50, 900])
def test_shrinkage_is_that_of_scikit_learn(n: int) -> None:
    expected, coefficient = ledoit_wolf(X[:n].astype(np.float64))
    transform = fit("whiten:method=zca", X[:n])
    assert transform.describe()["shrinkage"] == pytest.approx(coefficient, rel=1e-8)
    matrix = transform.state.tensors["matrix"].astype(np.float64)
    np.testing.assert_allclose(np.linalg.inv(matrix @ matrix), expected, rtol=1e-3, atol=1e-4)


def test_likelihood_is_that_of_the_fitted_gaussian() -> None:
    transform = fit("whiten:shrinkage=0", X)
    expected = multivariate_normal(X.mean(axis=0, dtype=np.float64), covariance(X)).logpdf(X.astype(np.float64))
    np.testing.assert_allclose(transform.log_likelihood(X), expected, rtol=1e-3, atol=1e-3)
    assert fit("none", X).log_likelihood(X)[0] == pytest.approx(
        multivariate_normal(np.zeros(12)).logpdf(X[0].astype(np.float64)), rel=1e-9
    )


def test_likelihood_of_a_reduced_dimension_is_that_of_the_kept_subspace() -> None:
    transform = fit("whiten:dimension=4,shrinkage=0", X)
    _, axes = np.linalg.eigh(covariance(X))
    kept = (X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)) @ axes[:, :-5:-1]
    expected = multivariate_normal(np.zeros(4), covariance(kept)).logpdf(kept)
    np.testing.assert_allclose(transform.log_likelihood(X), expected, rtol=1e-3, atol=1e-3)


def test_more_dimensions_than_there_are_is_misuse() -> None:
    with pytest.raises(Misuse, match=r"13 dimensions.*12"):
        fit("whiten:dimension=13", X)


@pytest.mark.parametrize("family", ["standardize", "whiten", "whiten:shrinkage=0", "whiten:method=zca,shrinkage=0"])
def test_a_constant_dimension_is_not_blown_up(family: str) -> None:
    x = X.copy()
    x[:, 4] = 0.25
    transform = fit(family, x)
    z = transform.apply(x)
    assert np.isfinite(z).all()
    query = x[:1].copy()
    query[0, 4] += 0.01 * x.std()
    assert np.linalg.norm(transform.apply(query) - z[:1]) < 1.0
    if family != "whiten":
        assert "1 of 12" in transform.notes[0]
    np.testing.assert_allclose(transform.inverse(z), x, atol=1e-3)


@pytest.mark.parametrize("family", ["center", "standardize", "whiten", "whiten:dimension=4", "bert-flow"])
@pytest.mark.parametrize("n", [1, 2, 500])
def test_equal_vectors_are_left_as_they_are(family: str, n: int) -> None:
    transform = fit(family, np.full((n, 8), 0.3, dtype=np.float32))
    assert transform.family == "none" and transform.spec == family and transform.fitted_on == n
    assert ("only one vector" if n == 1 else f"all {n} vectors are the same") in transform.notes[0]
    assert transform.apply(np.full((1, 8), 0.3, dtype=np.float32)).all(), "centred, they could not be searched"


@pytest.mark.parametrize("family", ["none", "center", "standardize", "whiten", "bert-flow"])
def test_broken_vectors_are_refused(family: str) -> None:
    x = X.copy()
    x[3, 2], x[7, 0], x[7, 1] = np.nan, np.inf, -np.inf
    with pytest.raises(FitFailed, match="2 of 900"):
        fit(family, x)
    with pytest.raises(FitFailed, match="no vectors"):
        fit(family, x[:0])
    with pytest.raises(FitFailed, match="shape"):
        fit(family, x[0])


@settings(max_examples=60, deadline=None)
@given(
    x=st.tuples(st.integers(1, 12), st.integers(1, 6)).flatmap(
        lambda shape: arrays(np.float32, shape, elements=st.floats(-100, 100, width=32))
    ),
    spec=st.sampled_from(
        ["none", "center", "standardize", "whiten", "whiten:shrinkage=0", "whiten:method=zca,gamma=0.5,soft=0.1"]
    ),
)
def test_whatever_the_vectors_the_map_is_finite_and_invertible(x: np.ndarray, spec: str) -> None:
    transform = fit(spec, x)
    z = transform.apply(x)
    assert np.isfinite(z).all() and np.isfinite(transform.log_likelihood(x)).all()
    np.testing.assert_allclose(transform.inverse(z), x, atol=1e-2 * max(1.0, float(np.abs(x).max())))
