"""What runs on the nodes of a cluster: a worker with one encoder, and a reader. No Ray in here.

Errors that are meant for people come back as results, so that the caller raises the very same.
"""

import contextlib
import os
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

# Of two that differ here, the same text may get vectors that differ in their last bits.
PACKAGES = ("onnxruntime", "tokenizers", "numpy")
REACHABLE = (
    "Every node of the cluster needs the encoder at the same place: share its folder, or give a Hugging Face name that "
    "each can download."
)


@dataclass(frozen=True)
class EncoderSpec:
    """Which encoder a worker makes for itself, and what it must turn out to be."""

    identity: EncoderIdentity
    device: str
    versions: dict[str, str]

    @classmethod
    def of(cls, encoder: Encoder, device: str) -> "EncoderSpec":
        return cls(encoder.identity, device, versions())

    def made(self) -> Encoder:
        """That encoder, refused if it is another than the one asked for."""
        asked, node = self.identity, socket.gethostname()
        if (own := versions()) != self.versions:
            names = [name for name in own if own[name] != self.versions[name]]
            differing = ", ".join(f"{name} {own[name]} against {self.versions[name]}" for name in names)
            raise Mismatch(
                f"the Ray node {node} has other versions than the machine that asks: {differing}. Its vectors might "
                f"differ; install the same there ({sys.executable})."
            )
        try:
            encoder = Encoder(
                asked.name,
                pooling=asked.pooling,
                max_length=asked.max_length,
                precision=asked.precision,
                device=self.device,
            )
        except RetrieverError as error:
            raise EncoderUnavailable(f"on the Ray node {node}: {error} {REACHABLE}") from error
        if difference := asked.difference(encoder.identity):
            raise Mismatch(
                f"on the Ray node {node} the encoder {asked.name} is another one ({difference}). {REACHABLE}"
            )
        return encoder


def versions() -> dict[str, str]:
    return {"flow-retriever": made_by(), **{name: version(name) for name in PACKAGES}}


class Worker:
    """One encoder, in a process of its own with a core or a GPU of its own."""

    def __init__(self) -> None:
        self._encoder: Encoder | None = None

    def prepare(self, spec: EncoderSpec | None) -> dict[str, Any] | RetrieverError:
        """Load the encoder, if there is one to load; says where it is, and what there is to say of it."""
        try:
            if spec is not None:
                encoder = spec.made()
                with _alone(encoder):  # else every worker of a machine would export it at the same time
                    encoder.load()
                self._encoder = encoder
        except RetrieverError as error:
            return error
        note = self._encoder.note if self._encoder else ""
        return {"host": socket.gethostname(), "pid": os.getpid(), "note": note}

    def encode(self, tokens: list[list[int]], half: bool) -> NDArray[np.floating[Any]] | RetrieverError:
        """The vectors of a batch; as they are stored, if `half`."""
        assert self._encoder is not None
        try:
            vectors = self._encoder.encode_batch(tokens)
        except RetrieverError as error:
            return error
        if not half:
            return vectors
        with np.errstate(over="ignore"):  # what is too large is found by who stores it
            return vectors.astype(VECTOR_TYPE)

    def apply(self, transform: Transform, raw: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """A block of vectors through the transform."""
        return transform.apply(raw.astype(np.float32))


@contextlib.contextmanager
def _alone(encoder: Encoder) -> Iterator[None]:
    """While no other process of this machine prepares the same encoder; where there can be no lock, at once."""
    folder = export_folder(encoder.identity)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, NotImplementedError):
            folder.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(folder.with_suffix(".lock")))
        yield
