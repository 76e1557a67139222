"""The affine transforms z = (u - mean) @ W: `none`, `center`, `standardize` and `whiten`. They differ in how mean
and W are fitted.

W is stored compactly: the identity is not stored, a diagonal is stored as a row of scales, and any other W as a matrix
of the shape (d, k).
"""

import math
from functools import cached_property

import numpy as np

from retriever.errors import Misuse
from retriever.transforms.base import Json, State, StepProgress, Transform
from retriever.transforms.moments import CHUNK, NEGLIGIBLE, Array, Spectrum, moments
from retriever.transforms.spec import Spec


class Affine(Transform, families=("none", "center", "standardize", "whiten")):
    """z = (u - mean) @ W, with W the identity, a diagonal or a matrix."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        d, k = state.dimension_in, state.dimension_out
        shapes = {name: tensor.shape for name, tensor in state.tensors.items()}
        known = [{}, {"mean": (d,)}, {"mean": (d,), "scale": (d,)}, {"mean": (d,), "matrix": (d, k)}]
        if shapes not in known or ("matrix" not in shapes and d != k) or k > d:
            raise ValueError(f"tensors of shapes {shapes} do not make an affine map from {d} to {k} dimensions")
        self._mean = state.tensors.get("mean")
        self._scale = state.tensors.get("scale")
        self._matrix = state.tensors.get("matrix")
        self.constant_log_det = float(state.config.get("log_det", 0.0))  # type: ignore[arg-type]
        # The matrix is kept in both precisions, so that it is not converted for each query.
        self._wide_matrix = None if self._matrix is None else self._matrix.astype(np.float64)

    @classmethod
    def fit(cls, vectors: Array, spec: Spec, seed: int, device: str, progress: StepProgress) -> "Affine":
        fits = {"none": fit_none, "center": fit_center, "standardize": fit_standardize, "whiten": fit_whiten}
        return fits[spec.family](vectors, spec, seed)

    def _forward(self, vectors: Array) -> Array:
        if self._mean is None:
            return vectors
        centred = vectors - self._mean.astype(vectors.dtype)
        if self._scale is not None:
            return np.asarray(centred * self._scale)
        if self._matrix is not None:
            return np.asarray(centred @ (self._matrix if vectors.dtype == np.float32 else self._wide_matrix))
        return np.asarray(centred)

    def _backward(self, z: Array) -> Array:
        if self._mean is None:
            return z
        if self._scale is not None:
            z = z / self._scale
        elif self._matrix is not None:
            z = z @ self._pseudo_inverse
        return np.asarray(z + self._mean)

    @cached_property
    def _pseudo_inverse(self) -> Array:
        assert self._wide_matrix is not None
        return np.asarray(np.linalg.pinv(self._wide_matrix, rcond=1e-12))


def fit_none(vectors: Array, spec: Spec, seed: int, notes: tuple[str, ...] = ()) -> Affine:
    """Return the identity z = u, for encoders whose vectors need no transform."""
    n, d = vectors.shape
    return Affine(State("none", str(spec), dimension_in=d, dimension_out=d, fitted_on=n, seed=seed, notes=notes))


def fit_center(vectors: Array, spec: Spec, seed: int) -> Affine:
    """Fit z = u - mean. Cosines then no longer depend on the direction that all vectors share."""
    return _affine("center", spec, seed, len(vectors), vectors.mean(axis=0, dtype=np.float64))


def fit_standardize(vectors: Array, spec: Spec, seed: int) -> Affine:
    """Fit z = (u - mean) / standard deviation, per dimension.

    A constant dimension has no scale of its own and gets the typical scale. It then counts as much for a query as any
    other dimension.
    """
    n, d = vectors.shape
    mean = vectors.mean(axis=0, dtype=np.float64)
    squares = np.zeros(d)
    for start in range(0, n, CHUNK):
        squares += ((vectors[start : start + CHUNK].astype(np.float64) - mean) ** 2).sum(axis=0)
    deviation = np.sqrt(squares / n)
    typical = float(np.sqrt((deviation**2).mean()))
    constant = deviation < NEGLIGIBLE * typical
    notes = (f"{constant.sum()} of {d} dimensions are constant and were only centred",) if constant.any() else ()
    scale = 1 / np.where(constant, typical, deviation)
    return _affine("standardize", spec, seed, n, mean, scale=scale, notes=notes)


def fit_whiten(vectors: Array, spec: Spec, seed: int, notes: tuple[str, ...] = ()) -> Affine:
    """Fit a map that scales the principal directions towards variance 1.

    U are the eigenvectors of the covariance, l its eigenvalues, and m their mean. First the eigenvalues are made
    reliable:

    - `shrinkage=c`: l <- (1 - c) l + c m. The default `auto` uses the Ledoit-Wolf coefficient, which is near 0 for
      many vectors and near 1 for fewer vectors than dimensions. 0 whitens the sample exactly.
    - `soft=e`: l <- l + e m (soft-ZCA; 0 by default).

    Then W = U (l / m)^(-gamma / 2) m^(-1/2):

    - `gamma=1`, the default, whitens fully. 0 keeps all proportions and only scales by one number.
    - `method=pca`, the default, orders the result by eigenvectors, largest first, so that `dimension=k` keeps the k
      largest. `method=zca` rotates it back to the original axes.

    If `spec` names another family, that family fell back to whitening. The default options are used then.
    """
    return whiten(Spectrum.of(vectors), spec, seed, notes)


def whiten(found: Spectrum, spec: Spec, seed: int, notes: tuple[str, ...] = ()) -> Affine:
    """Return the map of `fit_whiten` for vectors with this spectrum. Several maps can share one spectrum."""
    d = len(found.mean)
    options = spec.options if spec.family == "whiten" else {}
    method = options.get("method", "pca")
    dimension = int(options.get("dimension", d))
    gamma = float(options.get("gamma", 1.0))
    shrinkage = options.get("shrinkage", "auto")
    soft = float(options.get("soft", 0.0))
    if dimension > d:
        raise Misuse(f"the transform {str(spec)!r} keeps {dimension} dimensions, but the vectors have {d}")

    coefficient = found.shrinkage if shrinkage == "auto" else float(shrinkage)
    values, axes = found.values, found.axes
    average = float(values.mean())
    shrunk = (1 - coefficient) * values + (coefficient + soft) * average
    empty = shrunk < NEGLIGIBLE**2 * average
    if empty[:dimension].any():
        notes += (
            f"{empty[:dimension].sum()} of {dimension} directions hold no variance in the {found.count:,} vectors "
            "and were not scaled up",
        )
    # A direction without variance gets the mean variance, so that it counts as much for a query as other directions.
    relative = np.where(empty, 1.0, shrunk / average)
    scaled = axes * (relative ** (-gamma / 2) / np.sqrt(average))
    matrix = scaled @ axes.T if method == "zca" else scaled[:, :dimension]
    config: dict[str, Json] = {
        "method": str(method),
        "gamma": gamma,
        "shrinkage": coefficient,
        "soft": soft,
        "kept_variance": float(values[:dimension].sum() / values.sum()),
    }
    return _affine("whiten", spec, seed, found.count, found.mean, matrix=matrix, config=config, notes=notes)


def fit_gaussian(vectors: Array) -> Affine:
    """Fit a Gaussian with the shrunk covariance of `fit_whiten`, as a map whose `log_likelihood` is its density.

    The map is the inverse of the covariance's Cholesky factor. Its density is that of the full whitening, without an
    eigendecomposition, which takes ten times as long.
    """
    spec, found = Spec("whiten"), moments(vectors)
    if found.shrinkage < NEGLIGIBLE**2:  # a direction may be without variance, and only the eigenvalues show which
        return fit_whiten(vectors, spec, 0)
    average = float(np.trace(found.covariance)) / len(found.mean)
    shrunk = (1 - found.shrinkage) * found.covariance + found.shrinkage * average * np.eye(len(found.mean))
    factor = np.linalg.cholesky(shrunk)
    config: dict[str, Json] = {"method": "cholesky", "shrinkage": found.shrinkage}
    return _affine("whiten", spec, 0, len(vectors), found.mean, matrix=np.linalg.inv(factor).T, config=config)


def _affine(
    family: str,
    spec: Spec,
    seed: int,
    fitted_on: int,
    mean: Array,
    *,
    scale: Array | None = None,
    matrix: Array | None = None,
    config: dict[str, Json] | None = None,
    notes: tuple[str, ...] = (),
) -> Affine:
    """Return a transform with the results of a fit as float32 tensors, and the log-determinant of the rounded map."""
    tensors = {"mean": mean.astype(np.float32)}
    log_det = 0.0
    if scale is not None:
        tensors["scale"] = scale.astype(np.float32)
        log_det = float(np.log(tensors["scale"].astype(np.float64)).sum())
    width = len(mean)
    if matrix is not None:
        tensors["matrix"], width = matrix.astype(np.float32), matrix.shape[1]
        wide = tensors["matrix"].astype(np.float64)
        if width == len(mean):
            log_det = float(np.linalg.slogdet(wide)[1])
        else:
            log_det = float(0.5 * np.linalg.slogdet(wide.T @ wide)[1])  # volume within the subspace that is kept
    if not math.isfinite(log_det):
        raise ValueError("the fitted map is singular")
    facts = (config or {}) | {"log_det": log_det}
    return Affine(State(family, str(spec), len(mean), width, fitted_on, seed, notes, facts, tensors))
