"""The interface of every compared system, and its input: a stream of documents, vectors from a file."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]


class Found(NamedTuple):
    """A hit: a system that cannot show the text has not answered."""

    id: str
    text: str


@dataclass(frozen=True)
class Queries:
    """Texts to search for; where vectors are given, no encoder is to be asked."""

    texts: Sequence[str]
    vectors: Matrix | None = None


class Documents:
    """The first `count` lines of a file, each a document that goes by its number. Read anew each time, never held."""

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = path, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[str, str]]:
        with self.path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(islice(file, self.count)):
                yield str(number), line.rstrip("\n")

    def batches(self, size: int) -> Iterator[tuple[list[str], list[str]]]:
        """Ids and texts, some at a time."""
        every = iter(self)
        while batch := list(islice(every, size)):
            yield [id_ for id_, _ in batch], [text for _, text in batch]


class StoredVectors:
    """Rows of halves in a plain file, read when asked for: a mapped file would count as the memory of who reads it."""

    def __init__(self, path: Path, dimension: int) -> None:
        self.dimension = dimension
        self._row_bytes = 2 * dimension
        self._file = path.open("rb", buffering=0)

    def rows(self, first: int, last: int) -> Matrix:
        data = os.pread(self._file.fileno(), (last - first) * self._row_bytes, first * self._row_bytes)
        return np.frombuffer(data, np.float16).reshape(last - first, self.dimension).astype(np.float32)


class Rival(Protocol):
    """A system with its store in one folder."""

    def ingest(self, documents: Documents, vectors: StoredVectors | None) -> None:
        """Make a store, whole and on disk at the end; without vectors, with those of its own encoder."""

    def open(self) -> None:
        """Be ready to search the store that is there."""

    def search(self, queries: Queries, k: int) -> list[list[Found]]:
        """The k documents nearest to each query by cosine, best first."""

    def encode(self, texts: Sequence[str]) -> Matrix:
        """What its encoder alone does of a search by text."""

    def close(self) -> None: ...


class SentenceTransformersEncoder:
    """How the users of other systems embed: sentence-transformers' `encode`, loaded when it is first needed."""

    def __init__(self, model: str) -> None:
        self.folder = model

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(self.folder, device="cpu")

    def encode(self, texts: Sequence[str]) -> Matrix:
        vectors: Matrix = self._model.encode(list(texts), show_progress_bar=False)
        return vectors

    def vectors_of(self, queries: Queries) -> Matrix:
        return self.encode(queries.texts) if queries.vectors is None else queries.vectors
