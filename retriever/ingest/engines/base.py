"""The interface of an engine, which does the heavy work of an ingestion in this process or elsewhere.

All engines make the same collection from a source. They return documents in the order of the source. They make the
same batches and blocks, return them in the same order, and compute them with the same arithmetic.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from retriever.encoder.batches import Batch

if TYPE_CHECKING:
    from retriever.corpus import Document, Skipped
    from retriever.corpus.source import Source
    from retriever.encoder.encoder import Encoder
    from retriever.transforms import Transform

Blocks = Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]
"""Yields blocks of a few thousand vectors, each with the numbers of its vectors."""


class Encodes(Protocol):
    """Texts that are being encoded, e.g. `retriever.encoder.batches.Encoding`."""

    def start(self) -> None:
        """Start encoding."""

    def finished(self) -> list[Batch]:
        """Wait for at least one batch, and return the finished batches in order. Return an empty list at the end."""

    def close(self) -> None:
        """Stop starting batches. `finished` still returns the batches that were already started."""


class Engine(Protocol):
    """Reads and splits documents, encodes texts and applies transforms."""

    @property
    def gpus(self) -> int:
        """The number of GPUs of other machines that the engine can encode on."""

    def documents(self, source: "Source", encoder: "Encoder") -> "Iterable[Document | Skipped]":
        """Read a source. The result has the attribute `fraction_read` if that is known."""

    def passages(self, document: "Document", encoder: "Encoder") -> Iterator[tuple[int, int, str]]:
        """Yield the start, the end and the encoder input of each passage of a document."""

    def encoding(self, texts: Sequence[str], encoder: "Encoder") -> Encodes:
        """Prepare to encode texts. The vectors have at least the precision in which vectors are stored."""

    def encode_queries(self, texts: Sequence[str], encoder: "Encoder") -> NDArray[np.float32]:
        """Encode queries, or short texts that stand for queries, in full precision. Return one row per text."""

    def mapped(self, transform: "Transform", blocks: Blocks) -> Blocks:
        """Apply a transform to every block, and yield the results in order."""

    def notes(self) -> list[str]:
        """Return warnings, e.g. about workers that died and were replaced."""
