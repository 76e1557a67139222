"""An engine does the heavy work of an ingestion. `Engine` uses the threads of this process, a subclass other machines.

All engines make the same collection from a source. They return documents in the order of the source. They make the
same batches and blocks, return them in the same order, and compute them with the same arithmetic.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from retriever.corpus.passages import encoded_passages
from retriever.encoder.batches import Batch

if TYPE_CHECKING:
    from retriever.corpus import Document
    from retriever.corpus.files import Item
    from retriever.corpus.source import Source
    from retriever.encoder.base import AnyEncoder
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


class Engine:
    """The engine of this process. One thread per core encodes. The thread of the caller does everything else."""

    def documents(self, source: "Source", encoder: "AnyEncoder") -> "Iterable[Item]":
        """Read a source. The result has the attribute `fraction_read` if that is known."""
        return source

    def passages(self, document: "Document", encoder: "AnyEncoder") -> Iterator[tuple[int, int, str]]:
        """Yield the start, the end and the encoder input of each passage of a document."""
        return encoded_passages(document, encoder)

    def encoding(self, texts: Sequence[str], encoder: "AnyEncoder") -> Encodes:
        """Prepare to encode texts. The vectors have at least the precision in which vectors are stored."""
        return encoder.encoding(texts)

    def encode_queries(self, texts: Sequence[str], encoder: "AnyEncoder") -> NDArray[np.float32]:
        """Encode queries, or short texts that stand for queries, in full precision. Return one row per text."""
        return encoder.encode_queries(texts)

    def mapped(self, transform: "Transform", blocks: Blocks) -> Blocks:
        """Apply a transform to every block, and yield the results in order."""
        return ((numbers, transform.apply(raw)) for numbers, raw in blocks)

    @property
    def gpus(self) -> int:
        """The number of GPUs of other machines that the engine can encode on."""
        return 0

    def notes(self) -> list[str]:
        """Return warnings, e.g. about workers that died and were replaced."""
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass
