"""Reading a saved transform back. Nothing is trusted that does not give the fingerprint it was saved with."""

import json
from pathlib import Path
from typing import Any

from indexes.folder.generation import Generation
from retriever.errors import Damaged, Mismatch
from retriever.transforms.base import JSON_FILE, TENSOR_FILE, State, Transform
from retriever.transforms.bert_flow import BertFlow
from retriever.transforms.center import Center
from retriever.transforms.flow import Flow
from retriever.transforms.none import Identity
from retriever.transforms.standardize import Standardize
from retriever.transforms.whiten import Whiten

__all__ = ["load", "load_transform"]

KINDS: dict[str, type[Transform]] = {
    kind.family: kind for kind in (Identity, Center, Standardize, Whiten, Flow, BertFlow)
}


def load_transform(generation: Generation) -> Transform:
    """Load the transform of a generation; refuse one that the index was not built with."""
    transform = load(generation.folder)
    expected = generation.manifest["transform"]["fingerprint"]
    if transform.fingerprint != expected:
        raise Mismatch(
            f"{generation.folder} was built with the transform {expected[:12]}, "
            f"the one beside it is {transform.fingerprint[:12]}; run: retriever verify --repair"
        )
    return transform


def load(folder: Path) -> Transform:
    """The transform that `save` wrote into the folder; `Damaged` when it is not there whole."""
    folder = Path(folder)
    header = _header(folder / JSON_FILE)
    tensors = _tensors(folder / TENSOR_FILE)
    try:
        state = State(
            spec=header["spec"],
            dimension_in=header["dimension_in"],
            dimension_out=header["dimension_out"],
            fitted_on=header["fitted_on"],
            seed=header["seed"],
            notes=tuple(header["notes"]),
            config=header["config"],
            tensors=tensors,
        )
        transform = KINDS[header["family"]](state)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{folder / JSON_FILE} does not describe the transform beside it: {error}") from error
    if transform.fingerprint != header.get("fingerprint"):
        raise Damaged(
            f"the transform in {folder} was changed after it was saved: its fingerprint is now "
            f"{transform.fingerprint[:12]}, and {JSON_FILE} says {str(header.get('fingerprint'))[:12]}"
        )
    return transform


def _header(path: Path) -> dict[str, Any]:
    try:
        header = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from error
    if not isinstance(header, dict) or header.get("format") != 1:
        raise Damaged(f"{path} is not a transform of a format this version knows")
    return header


def _tensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as tensors_from

    try:
        return dict(tensors_from(path.read_bytes()))
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from error
