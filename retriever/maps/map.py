"""The map of a collection: the points of its documents, and named clusters of them."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Cluster:
    """A group of documents, labelled with its most characteristic words."""

    number: int
    label: str
    documents: int


@dataclass(frozen=True)
class Preserved:
    """How faithful a map is: the share of a document's ten nearest neighbours that are among its 10 and 50 nearest
    points on the map."""

    within_10: float | None
    within_50: float | None
    measured_on: int
    """Number of documents measured; 0 if there are too few."""


@dataclass(frozen=True)
class Map:
    """Points, one per document, in the order of the documents' numbers in the collection."""

    generation: str
    """The hash of the generation that the map was made for."""
    numbers: NDArray[np.int64]
    signatures: NDArray[np.uint64]
    """A hash of each document's vectors at the time it was placed."""
    x: NDArray[np.uint16]
    y: NDArray[np.uint16]
    cluster: NDArray[np.uint8]
    clusters: tuple[Cluster, ...]
    kept: Preserved
    placed: int
    """Number of documents that were placed next to their neighbours instead of being laid out with all others."""

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def key(self) -> str:
        """A hash that changes with any point."""
        parts = (self.numbers, self.signatures, self.x, self.y, self.cluster)
        return hashlib.sha256(b"".join([self.generation.encode(), *(p.tobytes() for p in parts)])).hexdigest()[:32]

    def point_of(self, number: int) -> int | None:
        """Return the point of a document, or None if it is not on the map."""
        point = int(np.searchsorted(self.numbers, number))
        return point if point < len(self.numbers) and self.numbers[point] == number else None

    def shows(self, numbers: NDArray[np.int64], signatures: NDArray[np.uint64]) -> bool:
        """Tell whether the map shows exactly these documents with these vectors."""
        return np.array_equal(self.numbers, numbers) and np.array_equal(self.signatures, signatures)
