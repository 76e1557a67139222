"""`center`: the mean taken away, so that cosine no longer measures the direction all vectors share."""

import numpy as np

from retriever.transforms.affine import Affine, affine
from retriever.transforms.base import Array, Transform

__all__ = ["Center", "fit_center"]


class Center(Affine):
    """z = u - mean."""

    family = "center"


def fit_center(vectors: Array, spec: str, seed: int, notes: tuple[str, ...] = ()) -> Transform:
    """Learn the mean."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    return affine(Center, spec=spec, seed=seed, fitted_on=len(vectors), mean=mean, notes=notes)
