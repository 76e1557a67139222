"""The worker of a Ray cluster: a process with one encoder. This module does not import Ray.

A worker returns a `RetrieverError` instead of raising it, so that the caller can raise the same error.
"""

import contextlib
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from indexes.rows import VECTOR_TYPE
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import EncoderIdentity
from retriever.encoder.runtimes.onnx_runtime import export_folder
from retriever.errors import EncoderUnavailable, Mismatch, RetrieverError
from retriever.settings import made_by
from retriever.transforms import Transform

# With other versions of these packages, vectors may differ in their last bits.
PACKAGES = ("onnxruntime", "tokenizers", "numpy")
SAME_ENCODER = (
    "Every node of the cluster needs the encoder at the same place: share its folder, or use a Hugging Face name that "
    "each node can download."
)


@dataclass(frozen=True)
class EncoderSpec:
    """The encoder that a worker must load, and the versions of packages that it needs."""

    identity: EncoderIdentity
    device: str
    versions: dict[str, str]

    @classmethod
    def of(cls, encoder: Encoder, device: str) -> "EncoderSpec":
        return cls(encoder.identity, device, versions())

    def load(self) -> Encoder:
        """Load the encoder. Raise `Mismatch` if the package versions or the encoder of this node differ."""
        identity, node = self.identity, socket.gethostname()
        if (own := versions()) != self.versions:
            names = [name for name in own if own[name] != self.versions[name]]
            differing = ", ".join(f"{name} {own[name]} instead of {self.versions[name]}" for name in names)
            raise Mismatch(
                f"the package versions on the Ray node {node} differ from those on this machine: {differing}. "
                "Its vectors might differ; "
                f"install the same versions there ({sys.executable})."
            )
        try:
            encoder = Encoder(identity.name, device=self.device, stored=identity)
        except RetrieverError as error:
            raise EncoderUnavailable(f"on the Ray node {node}: {error} {SAME_ENCODER}") from error
        if difference := identity.difference(encoder.identity):
            raise Mismatch(
                f"the Ray node {node} has a different encoder {identity.name} ({difference}). {SAME_ENCODER}"
            )
        return encoder


def versions() -> dict[str, str]:
    return {"flow-retriever": made_by(), **{name: version(name) for name in PACKAGES}}


class Worker:
    """A worker with one encoder, on a CPU or GPU that is reserved for it."""

    def __init__(self) -> None:
        self._encoder: Encoder | None = None

    def prepare(self, spec: EncoderSpec | None) -> tuple[str, str] | RetrieverError:
        """Load the encoder of `spec`, if given. Return the name of the host and the note of the encoder."""
        if spec is None:
            return socket.gethostname(), ""
        try:
            encoder = spec.load()
            with _export_lock(encoder):
                encoder.load()
        except RetrieverError as error:
            return error
        self._encoder = encoder
        return socket.gethostname(), encoder.note

    def encode(self, tokens: list[list[int]], half: bool) -> NDArray[np.floating[Any]] | RetrieverError:
        """Return the vectors of a batch. If `half` is True, they have the precision in which vectors are stored."""
        assert self._encoder is not None
        try:
            vectors = self._encoder.encode_tokens(tokens)
        except RetrieverError as error:
            return error
        if not half:
            return vectors
        with np.errstate(over="ignore"):  # the store detects and reports overflows
            return vectors.astype(VECTOR_TYPE)

    def apply(self, transform: Transform, raw: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        return transform.apply(raw.astype(np.float32))


@contextlib.contextmanager
def _export_lock(encoder: Encoder) -> Iterator[None]:
    """Prevent other workers on this machine from exporting the same encoder at the same time.

    If the file system does not support locks, do nothing.
    """
    folder = export_folder(encoder.identity)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, NotImplementedError):
            folder.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(folder.with_suffix(".lock")))
        yield
