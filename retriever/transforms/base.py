"""The base class of every transform, and the functions that fit and load a transform of any family.

A transform consists of a frozen `State` (the spec, the fitted tensors and facts about the fit) and of computations with
it. The computations use only numpy, because answering a query must not need torch.

`apply` computes in float32. Likelihoods and inverses are computed in float64, from the same float32 parameters.
"""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from indexes.generation import Generation
from retriever.errors import Damaged, FitFailed, Mismatch
from retriever.transforms.moments import CHUNK, Array, equal_rows
from retriever.transforms.spec import Spec, parse

StepProgress = Callable[[int, int], None] | None
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

NAME = "transform"
FORMAT = 1


@dataclass(frozen=True)
class State:
    """The whole state of a fitted transform. `save` writes it, `load` reads it, and the fingerprint covers it."""

    family: str
    spec: str
    dimension_in: int
    dimension_out: int
    fitted_on: int
    seed: int
    notes: tuple[str, ...] = ()
    config: Mapping[str, Json] = field(default_factory=dict)
    tensors: Mapping[str, Array] = field(default_factory=dict)

    def header(self) -> dict[str, Json]:
        """Return the part of the state that is stored as JSON, which is everything except the tensors."""
        facts = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "tensors"}
        return facts | {"format": FORMAT, "notes": list(self.notes), "config": dict(self.config)}


class Transform(ABC):
    """A fitted map from raw vectors to isotropic vectors, and the density of raw vectors that follows from it.

    A subclass names its families: `class Flow(Transform, families=("flow",))`.
    """

    classes: ClassVar[dict[str, "type[Transform]"]] = {}
    """The class of every family."""
    constant_log_det: float
    """log |det dz/du| in nats, or the part of it that does not depend on the vector."""

    def __init_subclass__(cls, families: Sequence[str]) -> None:
        cls.classes.update(dict.fromkeys(families, cls))

    def __init__(self, state: State) -> None:
        self.state = state
        self.family = state.family
        self.spec = state.spec
        self.notes = state.notes
        self.fitted_on = state.fitted_on
        self.dimension_in = state.dimension_in
        self.dimension_out = state.dimension_out
        self.fingerprint = _fingerprint(state.header(), state.tensors)

    @classmethod
    @abstractmethod
    def fit(
        cls, vectors: NDArray[np.float32], spec: Spec, seed: int, device: str, progress: StepProgress
    ) -> "Transform":
        """Fit a transform to finite vectors that are not all equal, or return a simpler one with a note."""

    @abstractmethod
    def _forward(self, vectors: Array) -> Array:
        """Map rows. The result has the precision of the input."""

    @abstractmethod
    def _backward(self, z: Array) -> Array:
        """Invert `_forward`. The result has the precision of the input."""

    def apply(self, vectors: Array) -> NDArray[np.float32]:
        """Map raw vectors (n, dimension_in) to isotropic vectors (n, dimension_out)."""
        return by_chunks(self._forward, vectors, self.dimension_in, np.float32, np.float32)

    def inverse(self, z: Array) -> NDArray[np.float32]:
        """Map isotropic vectors back to raw vectors.

        If the transform reduces the dimension, many vectors map to z. The one that is nearest to the mean of the fit is
        returned (the least-squares reconstruction).
        """
        return by_chunks(self._backward, z, self.dimension_out, np.float64, np.float32)

    def log_det(self, vectors: Array) -> NDArray[np.float64]:
        """Return log |det dz/du| of every row, in nats. For a reduced dimension, this is within the kept subspace."""
        rows = _checked_rows(vectors, self.dimension_in)
        return np.full(len(rows), self.constant_log_det, dtype=np.float64)

    def log_likelihood(self, vectors: Array) -> NDArray[np.float64]:
        """Return log N(z; 0, I) + log |det dz/du| of every row, in nats.

        For a reduced dimension this is the density of the projection onto the kept subspace. It can only be compared
        between transforms that keep the same number of dimensions.
        """
        constant = self.constant_log_det - 0.5 * self.dimension_out * math.log(2 * math.pi)

        def score(rows: Array) -> Array:
            z = self._forward(rows)
            return np.asarray(constant - 0.5 * np.einsum("ij,ij->i", z, z))

        return by_chunks(score, vectors, self.dimension_in, np.float64, np.float64)

    def save(self, folder: Path, name: str = NAME) -> list[str]:
        """Write the transform to NAME.json and NAME.safetensors, and return the file names.

        Equal transforms give equal files.
        """
        from safetensors.numpy import save as tensor_bytes

        tensors = {key: np.ascontiguousarray(value) for key, value in sorted(self.state.tensors.items())}
        header = self.state.header() | {"fingerprint": self.fingerprint}
        text = json.dumps(header, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.safetensors").write_bytes(tensor_bytes(tensors))
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        return [f"{name}.json", f"{name}.safetensors"]

    def describe(self) -> dict[str, Json]:
        """Return the facts that `info` shows."""
        header = self.state.header()
        del header["format"], header["config"]
        return header | dict(self.state.config) | {"fingerprint": self.fingerprint}


def fit(
    spec: str | Spec,
    vectors: Array,
    *,
    seed: int = 0,
    device: str = "cpu",
    progress: StepProgress = None,
) -> Transform:
    """Fit the transform that `spec` names to raw vectors (n, d).

    Only the flows use `seed` and `device`, and call `progress(done, total)` while they train. If the family cannot be
    fitted to these vectors, a simpler transform is returned, and its `notes` give the reason.
    """
    parsed = parse(spec)
    rows = _checked(vectors)
    if parsed.family != "none" and equal_rows(rows):
        count = "there is only one vector" if len(rows) == 1 else f"all {len(rows):,} vectors are the same"
        note = f"{count}, so nothing can be learned; the vectors stay raw"
        n, d = rows.shape
        return Transform.classes["none"](State("none", str(parsed), d, d, n, seed, (note,)))
    return Transform.classes[parsed.family].fit(rows, parsed, seed, device, progress)


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


def load(folder: Path, name: str = NAME) -> Transform:
    """Load the transform that `save` wrote into the folder.

    Raise `Damaged` if a file is missing, or if the transform was changed after it was saved.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as tensors_from

    header_path, tensor_path = folder / f"{name}.json", folder / f"{name}.safetensors"
    try:
        header = json.loads(header_path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Damaged(f"{header_path} cannot be read: {error}") from error
    if not isinstance(header, dict) or header.pop("format", None) != FORMAT:
        raise Damaged(f"{header_path} is not a transform in a format that this version can read")
    try:
        tensors = tensors_from(tensor_path.read_bytes())
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{tensor_path} cannot be read: {error}") from error
    fingerprint = header.pop("fingerprint", None)
    try:
        state = State(**header | {"notes": tuple(header["notes"]), "tensors": tensors})
        transform = Transform.classes[state.family](state)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{header_path} does not describe the tensors in {tensor_path.name}: {error}") from error
    if transform.fingerprint != fingerprint:
        raise Damaged(
            f"the transform in {folder} was changed after it was saved: its fingerprint is now "
            f"{transform.fingerprint[:12]}, but {header_path.name} says {str(fingerprint)[:12]}"
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


def by_chunks(
    step: Callable[[Array], Array],
    vectors: Array,
    width: int,
    precision: type[np.floating[Any]],
    result: type[np.floating[Any]],
) -> Array:
    """Call `step` on CHUNK rows at a time, converted to `precision`."""
    rows = _checked_rows(vectors, width)
    first = np.asarray(step(rows[:CHUNK].astype(precision)), dtype=result)
    if len(rows) <= CHUNK:
        return first
    out = np.empty((len(rows), *first.shape[1:]), dtype=result)
    out[:CHUNK] = first
    for start in range(CHUNK, len(rows), CHUNK):
        out[start : start + CHUNK] = step(rows[start : start + CHUNK].astype(precision))
    return out


def _checked_rows(vectors: Array, width: int) -> Array:
    rows = np.asarray(vectors)
    if rows.ndim != 2 or rows.shape[1] != width:
        raise Mismatch(f"the transform needs rows of {width} numbers, but the array has the shape {rows.shape}")
    return rows


def _fingerprint(header: Mapping[str, Json], tensors: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    digest.update(json.dumps(header, sort_keys=True, ensure_ascii=False, allow_nan=False).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype.str} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()
