"""The engines that do the work of an ingestion: the threads of this process, or the workers of a Ray cluster."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from retriever.corpus.passages import encoded_passages
from retriever.errors import Misuse
from retriever.ingest.engines.base import Blocks, Encodes, Engine

if TYPE_CHECKING:
    from retriever.corpus import Document
    from retriever.corpus.source import Source
    from retriever.encoder.encoder import Encoder
    from retriever.transforms import Transform

__all__ = ["ENGINES", "Encodes", "Engine", "Local", "check", "opened"]

ENGINES = ("local", "ray")


class Local:
    """The engine of this process. One thread per core encodes; the thread of the caller does everything else."""

    gpus = 0

    def documents(self, source: "Source", encoder: "Encoder") -> "Source":
        return source

    def passages(self, document: "Document", encoder: "Encoder") -> Iterator[tuple[int, int, str]]:
        return encoded_passages(document, encoder)

    def encoding(self, texts: Sequence[str], encoder: "Encoder") -> Encodes:
        return encoder.encoding(texts)

    def encode_queries(self, texts: Sequence[str], encoder: "Encoder") -> NDArray[np.float32]:
        return encoder.encode_queries(texts)

    def mapped(self, transform: "Transform", blocks: Blocks) -> Blocks:
        return ((numbers, transform.apply(raw)) for numbers, raw in blocks)

    def notes(self) -> list[str]:
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def check(name: str, address: str | None) -> None:
    """Raise an error if the engine is unknown, or if the address is not valid for the engine."""
    if name not in ENGINES:
        raise Misuse(f"unknown engine {name!r}; known: {', '.join(ENGINES)}.")
    if name == "local" and address is not None:
        raise Misuse('`address` is the address of a Ray cluster; it needs `engine="ray"`.')
    if name == "ray":
        from retriever.ingest.engines.ray.probe import check as check_ray

        check_ray(address)


def opened(name: str, address: str | None = None) -> AbstractContextManager[Engine]:
    """Return a context manager that starts the engine on entry and stops it on exit."""
    check(name, address)
    if name == "local":
        return Local()
    from retriever.ingest.engines.ray.engine import Ray

    return Ray(address)
