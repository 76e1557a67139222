"""The map of a collection, in memory and on disk. It has a point for each document, and labelled clusters.

The cache folder has one map per generation, as an .npz file without pickles. A file that is damaged or has another
format is treated as missing, because a map can always be rebuilt.
"""

import contextlib
import hashlib
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.files import atomic_write, cache_folder

FORMAT = 2
MOST_CACHED = 50
ARRAYS = {"numbers": "<i8", "signatures": "<u8", "x": "<u2", "y": "<u2", "cluster": "|u1"}


@dataclass(frozen=True)
class Cluster:
    """A group of documents, labelled with its most characteristic words."""

    number: int
    label: str
    documents: int


@dataclass(frozen=True)
class Preserved:
    """How well a map preserves neighbourhoods: the mean share of a document's ten nearest neighbours that are among its
    10 (or 50) nearest points on the map."""

    within_10: float | None
    within_50: float | None
    measured_on: int
    """Number of documents that were measured; 0 if the collection has too few."""


@dataclass(frozen=True)
class Map:
    """A map with one point per document. The points are in ascending order of the documents' numbers."""

    generation: str
    """The hash of the generation that the map was made for."""
    numbers: NDArray[np.int64]
    signatures: NDArray[np.uint64]
    """For each document, a hash of its vectors at the time when it was placed on the map."""
    x: NDArray[np.uint16]
    y: NDArray[np.uint16]
    cluster: NDArray[np.uint8]
    clusters: tuple[Cluster, ...]
    kept: Preserved
    placed: int
    """Number of documents that were placed near their neighbours, because they were not part of the layout."""

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def key(self) -> str:
        """A hash over the generation and all points, which identifies the map."""
        parts = (getattr(self, name).tobytes() for name in ARRAYS)
        return hashlib.sha256(b"".join([self.generation.encode(), *parts])).hexdigest()[:32]

    def point_of(self, number: int) -> int | None:
        """Return the number of a document's point, or None if the document is not on the map."""
        point = int(np.searchsorted(self.numbers, number))
        return point if point < len(self.numbers) and self.numbers[point] == number else None

    def shows(self, numbers: NDArray[np.int64], signatures: NDArray[np.uint64]) -> bool:
        """Return whether the map shows exactly these documents with these vectors."""
        return np.array_equal(self.numbers, numbers) and np.array_equal(self.signatures, signatures)


def save(made: Map, path: Path) -> None:
    """Write a map atomically."""
    facts = {
        "format": FORMAT,
        "generation": made.generation,
        "clusters": [asdict(one) for one in made.clusters],
        "kept": asdict(made.kept),
        "placed": made.placed,
    }
    arrays: dict[str, Any] = {name: getattr(made, name).astype(kind) for name, kind in ARRAYS.items()}
    data = io.BytesIO()
    np.savez_compressed(data, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
    with atomic_write(path) as temporary:
        temporary.write_bytes(data.getbuffer())


def load(path: Path) -> Map | None:
    """Read a map. Return None if the file is missing, damaged, or has another format."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ARRAYS}
            facts = json.loads(file["facts"].tobytes())
        clusters = tuple(Cluster(**one) for one in facts["clusters"])
        count = len(arrays["numbers"])
        valid = (
            facts.pop("format") == FORMAT
            and all(array.dtype == ARRAYS[name] and array.shape == (count,) for name, array in arrays.items())
            and (np.diff(arrays["numbers"]) > 0).all()
            and [one.number for one in clusters] == list(range(len(clusters)))
            and (arrays["cluster"] < max(len(clusters), 1)).all()
        )
        return Map(**{**facts, "clusters": clusters, "kept": Preserved(**facts["kept"])}, **arrays) if valid else None
    except Exception:  # NumPy and zipfile raise many types of errors for damaged files
        return None


def cached(generation: str) -> Map | None:
    """Read the map of a generation from the cache. Return None if the cache does not have it."""
    found = load(_cache_path(generation))
    return found if found is not None and found.generation == generation else None


def cache(made: Map) -> None:
    """Write a map to the cache, and delete the oldest maps if there are too many."""
    with contextlib.suppress(OSError):  # without the cache, the map is made again next time
        path = _cache_path(made.generation)
        save(made, path)
        files = sorted(path.parent.glob("*.npz"), key=lambda file: file.stat().st_mtime)
        for old in files[:-MOST_CACHED]:
            old.unlink()


def _cache_path(generation: str) -> Path:
    return cache_folder() / "maps" / f"{generation}.npz"
