"""What an ingestion needs that may be done elsewhere.

Whatever does it, documents come in the order of the source, batches are the same and come in their order, and blocks
are mapped by the same arithmetic: so the one code that stores them writes the same collection.
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
    """Texts on their way through an encoder, as `retriever.encoder.batches.Encoding` has it."""

    def start(self) -> None:
        """Begin."""

    def finished(self) -> list[Batch]:
        """The batches done by now, in order, at least one, unless all have been given."""

    def close(self) -> None:
        """Take no further batch; `finished` still gives those that were taken."""


class Engine(Protocol):
    """Reads, splits, encodes and transforms."""

    @property
    def gpus(self) -> int:
        """How many GPUs elsewhere it would encode on."""

    def documents(self, source: "Source", encoder: "Encoder") -> "Iterable[Document | Skipped]":
        """All that a source has; it has `fraction_read` where that can be known."""

    def passages(self, document: "Document", encoder: "Encoder") -> Iterator[tuple[int, int, str]]:
        """Where the passages of a document begin and end, and what the encoder is given for each."""

    def encoding(self, texts: Sequence[str], encoder: "Encoder") -> Encodes:
        """To encode these texts once it is started; their vectors are at least as fine as they will be stored."""

    def encode(self, texts: Sequence[str], encoder: "Encoder") -> NDArray[np.float32]:
        """One row a text, in the order given."""

    def mapped(self, transform: "Transform", blocks: Blocks) -> Blocks:
        """The blocks through the transform, in order."""

    def notes(self) -> list[str]:
        """What went otherwise than it should, and was made good."""
