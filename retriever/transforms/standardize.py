"""`standardize`: every dimension to mean 0 and standard deviation 1."""

import numpy as np

from retriever.transforms.affine import Affine, affine
from retriever.transforms.base import CHUNK, Array, Transform
from retriever.transforms.moments import NEGLIGIBLE

__all__ = ["Standardize", "fit_standardize"]


class Standardize(Affine):
    """z = (u - mean) / standard deviation."""

    family = "standardize"


def fit_standardize(vectors: Array, spec: str, seed: int) -> Transform:
    """Learn the mean and spread of every dimension.

    A constant dimension has no scale of its own. It gets the typical one, so that a query that differs there
    counts as much as it does anywhere else, and no more.
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
    return affine(Standardize, spec=spec, seed=seed, fitted_on=n, mean=mean, scale=scale, notes=notes)
