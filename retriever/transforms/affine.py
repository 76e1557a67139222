"""The affine transforms: z = (u - mean) @ W. `none`, `center`, `standardize` and `whiten`
differ only in their fit.

W is kept as cheaply as it can be: nothing (the identity), a row of scales (a diagonal) or a matrix (d, k).
"""

import math
from functools import cached_property

import numpy as np

from retriever.transforms.base import Array, Json, State, Transform

__all__ = ["Affine", "affine"]


class Affine(Transform):
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
        # The parameters in both precisions: a query must not pay for a conversion of the matrix.
        self._wide_matrix = None if self._matrix is None else self._matrix.astype(np.float64)

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

    def _constant_log_det(self) -> float:
        value = self.state.config.get("log_det", 0.0)
        assert isinstance(value, float)
        return value


def affine(
    kind: type[Affine],
    *,
    spec: str,
    seed: int,
    fitted_on: int,
    mean: Array,
    scale: Array | None = None,
    matrix: Array | None = None,
    config: dict[str, Json] | None = None,
    notes: tuple[str, ...] = (),
) -> Affine:
    """Store float64 results of a fit as float32 tensors, with the log-determinant of what is stored."""
    tensors = {"mean": mean.astype(np.float32)}
    log_det = 0.0
    if scale is not None:
        tensors["scale"] = scale.astype(np.float32)
        log_det = float(np.log(tensors["scale"].astype(np.float64)).sum())
    if matrix is not None:
        tensors["matrix"] = matrix.astype(np.float32)
        log_det = _log_volume(tensors["matrix"].astype(np.float64))
    if not math.isfinite(log_det):
        raise ValueError("the fitted map is singular")
    return kind(
        State(
            spec=spec,
            dimension_in=len(mean),
            dimension_out=len(mean) if matrix is None else matrix.shape[1],
            fitted_on=fitted_on,
            seed=seed,
            notes=notes,
            config=(config or {}) | {"log_det": log_det},
            tensors=tensors,
        )
    )


def _log_volume(matrix: Array) -> float:
    """log sqrt(det(W^T W)): how much the map stretches volume within the subspace it keeps."""
    return float(0.5 * np.linalg.slogdet(matrix.T @ matrix)[1])
