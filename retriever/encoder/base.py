"""What every encoder can do: a BERT, a function of the caller, and an endpoint."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoder.batches import Encoding
from retriever.encoder.model_files import EncoderIdentity
from retriever.errors import TextTooLong

VectorBatches = Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]


class AnyEncoder(ABC):
    """Turns text into sentence vectors."""

    identity: EncoderIdentity
    note: str = ""
    """A warning about degraded operation, e.g. torch is used because the ONNX export failed. Set by `load`."""

    def load(self) -> None:  # noqa: B027 - most encoders have nothing to load
        """Load the model now. Otherwise the first batch loads it."""

    @abstractmethod
    def refuse_too_long(self, where: object) -> None:
        """Refuse a collection whose maximum input length is larger than that of the model."""

    # ---- vectors -----------------------------------------------------------------------------------------

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a matrix with one vector per text. The texts are passages, or other parts of documents."""
        return self._matrix(len(texts), self.encode_batches(texts))

    @abstractmethod
    def encode_queries(self, queries: Sequence[str], *, here: bool = False) -> NDArray[np.float32]:
        """Return a matrix with one vector per query.

        If `here` is True, encode in the caller's thread. Use this if the caller has several threads that encode.
        """

    def encode_whole(
        self, texts: Sequence[str], *, queries: bool = False
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return one vector per text, and the number of its tokens. A text is never cut: `TextTooLong` is raised."""
        lengths = np.array(self.count_tokens(list(texts)), np.int64)
        for place in np.flatnonzero(lengths > self.identity.max_length).tolist():
            raise TextTooLong(place, int(lengths[place]), self.identity.max_length)
        return (self.encode_queries(texts, here=True) if queries else self.encode(texts)), lengths

    def encode_batches(self, texts: Sequence[str], *, queries: bool = False) -> VectorBatches:
        """Yield batches of vectors in any order, as (positions in `texts`, vectors of these texts)."""
        encoding = self.encoding(texts, queries=queries)
        try:
            encoding.start()
            while done := encoding.finished():
                for batch in done:
                    yield batch.positions, batch.vectors
        finally:
            encoding.close()

    @abstractmethod
    def encoding(self, texts: Sequence[str], *, queries: bool = False) -> Encoding[Any]:
        """Return an object that encodes the texts in threads.

        Call its `start`, then `finished` until it returns an empty list. Always call `close` at the end.
        """

    def _matrix(self, count: int, batches: VectorBatches) -> NDArray[np.float32]:
        rows = np.empty((count, self.identity.dimension), np.float32)
        for positions, vectors in batches:
            rows[positions] = vectors
        return rows

    # ---- tokens ------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def token_budget(self) -> int:
        """The number of tokens of a passage that fit into one input, with the special tokens and the prompt."""

    @abstractmethod
    def count_tokens(self, texts: list[str]) -> list[int]:
        """Return the number of tokens of each text, without special tokens and without a prompt."""

    @property
    def distinguishes_case(self) -> bool:
        """Whether a text in capitals gets different tokens from the same text in lower case."""
        return True

    @property
    def distinguishes_marks(self) -> bool:
        """Whether a text without diacritics gets different tokens from the same text with them."""
        return True

    @property
    def is_in_place(self) -> bool:
        """Whether the files of the encoder are still where it was loaded from. Some of them are read later."""
        return True
