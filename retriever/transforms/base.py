"""The base class of every transform. It defines how a transform is applied, stored and identified.

A transform consists of a frozen `State` (the spec, the fitted tensors and facts about the fit) and of computations with
it. The computations use only numpy, because answering a query must not need torch.

`apply` computes in float32. Likelihoods and inverses are computed in float64, from the same float32 parameters.
"""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.errors import Mismatch

Array = NDArray[Any]
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

JSON_FILE = "transform.json"
TENSOR_FILE = "transform.safetensors"
FORMAT = 1
CHUNK = 8192


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
    """A fitted map from raw vectors to isotropic vectors, and the density of raw vectors that follows from it."""

    constant_log_det: float
    """log |det dz/du| in nats, or the part of it that does not depend on the vector."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.family = state.family
        self.spec = state.spec
        self.notes = state.notes
        self.fitted_on = state.fitted_on
        self.dimension_in = state.dimension_in
        self.dimension_out = state.dimension_out
        self.fingerprint = _fingerprint(state.header(), state.tensors)

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

    def save(self, folder: Path) -> list[str]:
        """Write the transform to a folder and return the file names. Equal transforms give equal files."""
        from safetensors.numpy import save as tensor_bytes

        tensors = {name: np.ascontiguousarray(value) for name, value in sorted(self.state.tensors.items())}
        header = self.state.header() | {"fingerprint": self.fingerprint}
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TENSOR_FILE).write_bytes(tensor_bytes(tensors))
        text = json.dumps(header, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
        (folder / JSON_FILE).write_text(text + "\n", encoding="utf-8")
        return [JSON_FILE, TENSOR_FILE]

    def describe(self) -> dict[str, Json]:
        """Return the facts that `info` shows."""
        header = self.state.header()
        del header["format"], header["config"]
        return header | dict(self.state.config) | {"fingerprint": self.fingerprint}


def by_chunks(
    step: Callable[[Array], Array],
    vectors: Array,
    width: int,
    precision: type[np.floating[Any]],
    result: type[np.floating[Any]],
) -> Array:
    """Call `step` on CHUNK rows at a time, converted to `precision`, so that the converted copies stay small."""
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
