"""The engine of this process: the encoder uses one thread per core, the caller's thread does the rest."""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from retriever.corpus.passages import encoded_passages
from retriever.ingest.engines.base import Blocks, Encodes

if TYPE_CHECKING:
    from retriever.corpus import Document
    from retriever.corpus.source import Source
    from retriever.encoder.encoder import Encoder
    from retriever.transforms import Transform


class Local:
    """Calls source, encoder and transform directly."""

    gpus = 0

    def documents(self, source: "Source", encoder: "Encoder") -> "Source":
        return source

    def passages(self, document: "Document", encoder: "Encoder") -> Iterator[tuple[int, int, str]]:
        return encoded_passages(document, encoder)

    def encoding(self, texts: Sequence[str], encoder: "Encoder") -> Encodes:
        return encoder.encoding(texts)

    def encode(self, texts: Sequence[str], encoder: "Encoder") -> NDArray[np.float32]:
        return encoder.encode(texts)

    def mapped(self, transform: "Transform", blocks: Blocks) -> Blocks:
        return ((numbers, transform.apply(raw)) for numbers, raw in blocks)

    def notes(self) -> list[str]:
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
