"""The plain types that every part of a collection shares: stored rows, search results, blocks of vectors."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Matrix = NDArray[np.float32]
Blocks = Iterator[tuple[Numbers, Matrix]]
"""Numbered vectors in blocks."""
Apply = Callable[[Matrix], Matrix]
"""A transform of raw vectors."""
ApplyEach = Callable[[Blocks], Blocks]

VECTOR_TYPE = np.dtype("<f2")
"""The type that raw vectors are stored in."""
LOOKED_AT = 2
"""How many vectors are fetched per document, because several may be passages of one."""


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
    """A document found, by its best passage, with its fields."""

    passage: PassageRow
    score: float
    document: dict[str, Any]
    places: tuple[int, ...] = ()
    """Where words of the query begin in the document's text, if it was found by words."""
