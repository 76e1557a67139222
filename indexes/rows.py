"""The plain types that every part of a collection shares: stored rows, search results, blocks of vectors."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Matrix = NDArray[np.float32]
Blocks = Iterator[tuple[Numbers, Matrix]]
"""An iterator of blocks of vectors: the numbers of the vectors, and one row per vector."""
Apply = Callable[[Matrix], Matrix]
"""A function that transforms raw vectors."""
ApplyEach = Callable[[Blocks], Blocks]

VECTOR_TYPE = np.dtype("<f2")
"""The data type in which raw vectors are stored."""
LOOKED_AT = 2
"""The number of vectors to fetch per requested document, because several vectors may belong to one document."""


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document as it is stored, with the offsets of its passages and the hash of each passage's encoded text."""

    id: str
    title: str
    text: str
    metadata: dict[str, Any]
    content_hash: bytes
    source: str
    passages: Sequence[tuple[int, int, bytes]]


@dataclass(frozen=True, slots=True)
class PassageRow:
    """One passage of a stored document, with the number of its vector."""

    document: int
    position: int
    start: int
    end: int
    vector: int


Nearest = tuple[PassageRow, float]
"""The passage of a document that is nearest to a query, and its cosine."""
NumberedVector = tuple[int, bytes, NDArray[np.float16]]
"""A vector's number, the hash of its text, and the raw vector as it is stored."""
NumberedDocument = tuple[int, DocumentRow]


@dataclass(frozen=True, slots=True)
class Match:
    """A document that a search has found: its best passage, its score and its fields."""

    passage: PassageRow
    score: float
    document: dict[str, Any]
