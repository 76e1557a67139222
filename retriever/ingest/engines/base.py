"""The interface of an engine, which does the heavy work of an ingestion in this process or elsewhere.

Every engine returns documents in the order of the source, and the same batches and blocks in the same order, computed
by the same arithmetic. Therefore every engine makes the same collection.
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
"""Vectors with their numbers, some thousands at a time."""


class Encodes(Protocol):
    """Texts that are being encoded, e.g. `retriever.encoder.batches.Encoding`."""

    def start(self) -> None:
        """Start encoding."""

    def finished(self) -> list[Batch]:
        """Wait for at least one batch and return those that are done, in order; an empty list ends them."""

    def close(self) -> None:
        """Start no further batch; `finished` still returns those that were started."""


class Engine(Protocol):
    """Reads and splits documents, encodes texts and applies transforms."""

    @property
    def gpus(self) -> int:
        """How many GPUs of other machines it encodes on."""

    def documents(self, source: "Source", encoder: "Encoder") -> "Iterable[Document | Skipped]":
        """Read a source; the result has `fraction_read` if that is known."""

    def passages(self, document: "Document", encoder: "Encoder") -> Iterator[tuple[int, int, str]]:
        """Yield start, end and encoder input of each passage of a document."""

    def encoding(self, texts: Sequence[str], encoder: "Encoder") -> Encodes:
        """Prepare to encode texts, at least in the precision in which vectors are stored."""

    def encode(self, texts: Sequence[str], encoder: "Encoder") -> NDArray[np.float32]:
        """Encode texts in full precision, one row per text."""

    def mapped(self, transform: "Transform", blocks: Blocks) -> Blocks:
        """Apply a transform to every block, in order."""

    def notes(self) -> list[str]:
        """Return warnings, e.g. about workers that died and were replaced."""
