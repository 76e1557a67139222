"""The systems that `python -m benchmarks speed` compares, and their inputs: documents, queries and vectors.

Each system has one file, and is used as its own documentation shows. Its packages are imported when they are needed.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from retriever.errors import Misuse

OURS = "retriever"
REFERENCE = "sentence-transformers + FAISS"

Matrix = NDArray[np.float32]


class Found(NamedTuple):
    """A hit with its text. Every system must be able to return the text of a hit."""

    id: str
    text: str


@dataclass(frozen=True)
class Queries:
    """Texts to search for. If vectors are given, they are used instead of the encoder."""

    texts: Sequence[str]
    vectors: Matrix | None = None


class Documents:
    """The first `count` lines of a file, read anew by each iteration. A document's id is the number of its line."""

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = path, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[str, str]]:
        with self.path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(islice(file, self.count)):
                yield str(number), line.rstrip("\n")

    def batches(self, size: int) -> Iterator[tuple[list[str], list[str]]]:
        every = iter(self)
        while batch := list(islice(every, size)):
            yield [id_ for id_, _ in batch], [text for _, text in batch]


class StoredVectors:
    """Float16 rows that are read from a file. A memory-mapped file would count as memory of the process."""

    def __init__(self, path: Path, dimension: int) -> None:
        self.dimension = dimension
        self._row_bytes = 2 * dimension
        self._file = path.open("rb", buffering=0)

    def rows(self, first: int, last: int) -> Matrix:
        data = os.pread(self._file.fileno(), (last - first) * self._row_bytes, first * self._row_bytes)
        return np.frombuffer(data, np.float16).reshape(last - first, self.dimension).astype(np.float32)


class Rival:
    """A system with its store in a folder. By default, queries are embedded with sentence-transformers' `encode`."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.model = folder, model

    def ingest(self, documents: Documents, vectors: StoredVectors | None) -> None:
        """Make a store on disk. If no vectors are given, the system's own encoder embeds the documents."""
        raise NotImplementedError

    def open(self) -> None:
        """Open the store for searching."""
        raise NotImplementedError

    def search(self, queries: Queries, k: int) -> list[list[Found]]:
        """Return the k documents nearest to each query by cosine, best first."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Embed queries in the same way as a search by text."""
        return self.encoder.encode(texts)

    def close(self) -> None: ...

    @cached_property
    def encoder(self) -> "SentenceTransformersEncoder":
        return SentenceTransformersEncoder(self.model)


class SentenceTransformersEncoder:
    """Embed with sentence-transformers' `encode`, as users of other systems do. The model is loaded lazily."""

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


@dataclass(frozen=True)
class System:
    """A compared system: our module for it, the package it needs, and the name to install."""

    module: str
    package: str
    pip: str = "'flow-retriever[speed]'"

    @property
    def installed(self) -> bool:
        return find_spec(self.package) is not None


SYSTEMS = {
    OURS: System("benchmarks.speed.rivals.ours", "retriever"),
    REFERENCE: System("benchmarks.speed.rivals.plain", "sentence_transformers", "'flow-retriever[bench]'"),
    "txtai": System("benchmarks.speed.rivals.txtai", "txtai"),
    "chroma": System("benchmarks.speed.rivals.chroma", "chromadb"),
    "lancedb": System("benchmarks.speed.rivals.lance", "lancedb"),
    "sqlite-vec": System("benchmarks.speed.rivals.sqlite_vec", "sqlite_vec"),
    "usearch": System("benchmarks.speed.rivals.usearch", "usearch"),
}


def rival(name: str, folder: Path, model: str) -> Rival:
    found: Rival = import_module(SYSTEMS[name].module).System(folder, model)
    return found


def chosen_systems(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the installed ones among the named systems (by default all), and a note about each other one."""
    if unknown := [name for name in names if name not in SYSTEMS]:
        raise Misuse(f"unknown system {', '.join(map(repr, unknown))}; known: {', '.join(SYSTEMS)}.")
    wanted = [name for name in SYSTEMS if name in (names or SYSTEMS)]
    missing = [name for name in wanted if not SYSTEMS[name].installed]
    note = "{} is left out, because it is not installed; install it with: pip install {}"
    return [name for name in wanted if name not in missing], [note.format(name, SYSTEMS[name].pip) for name in missing]
