"""Fits a transform of any family to vectors, and loads a saved transform."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.folder.generation import Generation
from retriever.errors import Damaged, FitFailed, Mismatch
from retriever.transforms.affine import Affine, fit_center, fit_none, fit_standardize, fit_whiten
from retriever.transforms.base import CHUNK, FORMAT, JSON_FILE, TENSOR_FILE, Array, State, Transform
from retriever.transforms.bert_flow.bert_flow import BertFlow, fit_bert_flow
from retriever.transforms.flow.flow import Flow, fit_flow
from retriever.transforms.moments import equal_rows
from retriever.transforms.spec import Spec, parse

AFFINE: dict[str, Callable[[Array, Spec, int], Affine]] = {
    "none": fit_none,
    "center": fit_center,
    "standardize": fit_standardize,
    "whiten": fit_whiten,
}
FLOWS = {"flow": fit_flow, "bert-flow": fit_bert_flow}
CLASSES: dict[str, type[Transform]] = dict.fromkeys(AFFINE, Affine) | {"flow": Flow, "bert-flow": BertFlow}


def fit(
    spec: str | Spec,
    vectors: Array,
    *,
    seed: int = 0,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Transform:
    """Fit the transform that `spec` names to raw vectors (n, d).

    Only the flows use `seed` and `device`, and call `progress(done, total)` while they train. If the family cannot be
    fitted to these vectors, a simpler transform is returned, and its `notes` give the reason.
    """
    parsed = parse(spec)
    rows = _checked(vectors)
    if parsed.family != "none" and equal_rows(rows):
        count = "there is only one vector" if len(rows) == 1 else f"all {len(rows):,} vectors are the same"
        return fit_none(rows, parsed, seed, notes=(f"{count}, so nothing can be learned; the vectors stay raw",))
    if parsed.family in AFFINE:
        return AFFINE[parsed.family](rows, parsed, seed)
    return FLOWS[parsed.family](rows, parsed, seed, device, progress)


def _checked(vectors: Array) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise FitFailed(f"a transform is fitted to rows of numbers (n, d), but the array has the shape {rows.shape}")
    if not len(rows):
        raise FitFailed("there are no vectors to fit a transform to; add documents first, or use 'none'")
    chunks = (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))
    if bad := sum(int((~np.isfinite(chunk).all(axis=1)).sum()) for chunk in chunks):
        raise FitFailed(
            f"{bad:,} of {len(rows):,} vectors hold NaN or infinity: the encoder's output for these texts "
            "is broken; encode them again"
        )
    return rows


def load(folder: Path) -> Transform:
    """Load the transform that `save` wrote into the folder.

    Raise `Damaged` if a file is missing, or if the transform was changed after it was saved.
    """
    folder = Path(folder)
    header = _header(folder / JSON_FILE)
    tensors = _tensors(folder / TENSOR_FILE)
    fingerprint = header.pop("fingerprint", None)
    try:
        state = State(**header | {"notes": tuple(header["notes"]), "tensors": tensors})
        transform = CLASSES[state.family](state)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{folder / JSON_FILE} does not describe the tensors in {TENSOR_FILE}: {error}") from error
    if transform.fingerprint != fingerprint:
        raise Damaged(
            f"the transform in {folder} was changed after it was saved: its fingerprint is now "
            f"{transform.fingerprint[:12]}, but {JSON_FILE} says {str(header.get('fingerprint'))[:12]}"
        )
    return transform


def load_transform(generation: Generation) -> Transform:
    """Load the transform of a generation. Raise `Mismatch` if the index was built with another transform."""
    transform = load(generation.folder)
    expected = generation.manifest["transform"]["fingerprint"]
    if transform.fingerprint != expected:
        raise Mismatch(
            f"{generation.folder} was built with the transform {expected[:12]}, but the transform stored beside it is "
            f"{transform.fingerprint[:12]}; run: retriever verify --repair"
        )
    return transform


def _header(path: Path) -> dict[str, Any]:
    try:
        header = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from error
    if not isinstance(header, dict) or header.pop("format", None) != FORMAT:
        raise Damaged(f"{path} is not a transform in a format that this version can read")
    return header


def _tensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as tensors_from

    try:
        return dict(tensors_from(path.read_bytes()))
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from error
