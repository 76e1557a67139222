"""`none`: the vectors as they are, for encoders that are already good at it."""

from retriever.transforms.affine import Affine
from retriever.transforms.base import Array, State, Transform

__all__ = ["Identity", "fit_none"]


class Identity(Affine):
    """z = u."""

    family = "none"


def fit_none(vectors: Array, spec: str, seed: int, notes: tuple[str, ...] = ()) -> Transform:
    """Nothing is learned but the dimension."""
    n, d = vectors.shape
    return Identity(State(spec=spec, dimension_in=d, dimension_out=d, fitted_on=n, seed=seed, notes=notes))
