"""From vectors to a fitted transform: the one door to every family's fit, with the checks they share."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from retriever.errors import FitFailed
from retriever.transforms.base import CHUNK, Array, Transform
from retriever.transforms.bert_flow import fit_bert_flow
from retriever.transforms.center import fit_center
from retriever.transforms.flow import fit_flow
from retriever.transforms.moments import equal_rows
from retriever.transforms.none import fit_none
from retriever.transforms.spec import Spec, parse
from retriever.transforms.standardize import fit_standardize
from retriever.transforms.whiten import fit_whiten

__all__ = ["fit"]


def fit(
    spec: str | Spec,
    vectors: Array,
    *,
    seed: int = 0,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Transform:
    """Fit the transform that `spec` names to raw vectors (n, d).

    `seed` and `device` matter to the flows only, and `progress(done, total)` is called while one trains. Where
    a fit is not possible but search is, a simpler transform comes back and its `notes` say why.
    """
    asked = parse(spec)
    text = str(asked)
    rows = _checked(vectors)
    if asked.family == "none":
        return fit_none(rows, text, seed)
    if equal_rows(rows):
        count = "there is only one vector" if len(rows) == 1 else f"all {len(rows):,} vectors are the same"
        return fit_none(rows, text, seed, notes=(f"{count}: nothing can be learned, so it is left as it is",))
    if asked.family == "center":
        return fit_center(rows, text, seed)
    if asked.family == "standardize":
        return fit_standardize(rows, text, seed)
    if asked.family == "whiten":
        return fit_whiten(rows, asked, text, seed)
    if asked.family == "flow":
        return fit_flow(rows, asked, text, seed, device, progress)
    return fit_bert_flow(rows, asked, text, seed, device, progress)


def _checked(vectors: Array) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise FitFailed(f"a transform is fitted to rows of numbers (n, d); got an array of shape {rows.shape}")
    if not len(rows):
        raise FitFailed("there are no vectors to fit a transform to; ingest documents first, or use 'none'")
    bad = sum(
        int((~np.isfinite(rows[start : start + CHUNK]).all(axis=1)).sum()) for start in range(0, len(rows), CHUNK)
    )
    if bad:
        raise FitFailed(
            f"{bad:,} of {len(rows):,} vectors hold NaN or infinity: the encoder's output for these texts "
            "is broken; encode them again"
        )
    return rows
