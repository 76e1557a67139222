"""The fit of whitening: directions of the covariance, each scaled towards variance 1.

With eigenvectors U, eigenvalues l and their mean m, the eigenvalues are first made trustworthy:

- `shrinkage=c`: l <- (1 - c) l + c m. `auto`, the default, takes the coefficient of Ledoit and Wolf, which
  nears 0 when vectors abound and 1 when there are fewer of them than dimensions. 0 whitens the sample
  exactly.
- `soft=e`: l <- l + e m (soft-ZCA; 0 by default).

Then W = U (l / m)^(-gamma / 2) m^(-1/2):

- `gamma=1`, the default, whitens fully; 0 leaves all proportions and only scales by one number.
- `method=pca`, the default, leaves the result along the eigenvectors, largest first, so that `dimension=k`
  keeps the k largest; `method=zca` turns it back into the original axes.
"""

import numpy as np

from retriever.errors import Misuse
from retriever.transforms.affine import Affine, affine
from retriever.transforms.base import Array, Json, Transform
from retriever.transforms.moments import NEGLIGIBLE, moments, principal_axes
from retriever.transforms.spec import Spec

__all__ = ["Whiten", "fit_whiten"]


class Whiten(Affine):
    """z = (u - mean) @ W."""

    family = "whiten"


def fit_whiten(vectors: Array, asked: Spec, spec: str, seed: int, notes: tuple[str, ...] = ()) -> Transform:
    """Whiten as `asked`. `spec` is what the user asked for: another family where that fell back to this."""
    n, d = vectors.shape
    method = asked.options.get("method", "pca")
    dimension = int(asked.options.get("dimension", d))
    gamma = float(asked.options.get("gamma", 1.0))
    shrinkage = asked.options.get("shrinkage", "auto")
    soft = float(asked.options.get("soft", 0.0))
    if dimension > d:
        raise Misuse(f"whitening was asked for {dimension} dimensions, but the vectors have {d}")

    found = moments(vectors)
    coefficient = found.shrinkage if shrinkage == "auto" else float(shrinkage)
    values, axes = principal_axes(found.covariance)
    average = float(values.mean())
    shrunk = (1 - coefficient) * values + (coefficient + soft) * average
    empty = shrunk < NEGLIGIBLE**2 * average
    if empty[:dimension].any():
        notes += (
            f"{empty[:dimension].sum()} of {dimension} directions hold no variance in the {n:,} vectors "
            "and were not scaled up",
        )
    # An empty direction gets the mean variance: a query that differs there counts as much as anywhere else.
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
    return affine(Whiten, spec=spec, seed=seed, fitted_on=n, mean=found.mean, matrix=matrix, config=config, notes=notes)
