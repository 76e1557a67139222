"""Index types: short names, the FAISS factory strings they stand for, and the memory they need.

`auto` is not a type. It requests the cheapest index that reaches a recall within a memory limit
(indexes/faiss/auto.py).
"""

import math
import re
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from indexes.errors import Misuse, require_type

AUTO = "auto"
NAMES = (AUTO, "flat", "sq8", "ivf", "hnsw", "pq", "rabitq")
DEFAULT_RECALL = 0.95
# k-means needs at least this many vectors per list.
VECTORS_A_LIST = 32
MOST_MEMORY = 1 << 60
# From this number of vectors on, pq and rabitq have lists.
WITH_LISTS = 50_000
# Up to this number of bytes of vectors, `auto` is exact. One core compares a query with about 10 GB of them a second,
# so a query takes less than 10 ms.
SCANNED_EXACTLY = 100_000_000


@dataclass(frozen=True)
class IndexRequest:
    """The index that a user requests. `recall` and `memory` apply only to `auto`."""

    type: str
    recall: float | None = None
    memory: int | None = None
    """Maximum number of bytes that the index may use in memory."""

    def __post_init__(self) -> None:
        require_type("index_type", self.type, "a text", str)
        if self.recall is not None:
            require_type("recall", self.recall, "a number above 0 and at most 1", Real)
            object.__setattr__(self, "recall", float(self.recall))
        if self.memory is not None:
            require_type("memory", self.memory, "a whole number of bytes", Integral)
            object.__setattr__(self, "memory", int(self.memory))
        if not self.type.strip():
            raise Misuse(f"`index_type` is empty; use {', '.join(NAMES)} or a FAISS factory string.")
        if self.type != AUTO and (self.recall is not None or self.memory is not None):
            name = "recall" if self.recall is not None else "memory"
            raise Misuse(f'`{name}` can only be used with `index_type="auto"`, but the index type is {self.type}.')
        if self.type == AUTO and self.recall is None:
            object.__setattr__(self, "recall", DEFAULT_RECALL)
        if self.recall is not None and not 0 < self.recall <= 1:
            raise Misuse(f"`recall` must be above 0 and at most 1, not {self.recall:g}.")
        if self.memory is not None and not 1 <= self.memory <= MOST_MEMORY:
            raise Misuse(f"`memory` must be at least one byte and at most {MOST_MEMORY:,} bytes.")

    @property
    def target(self) -> float:
        """The recall that the search settings must reach."""
        return DEFAULT_RECALL if self.recall is None else self.recall


def parse_bytes(text: str) -> int:
    """Parse a number of bytes such as 500MB, 2GB, 1.5GiB or 1000000."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([KMGT]?)(I?)B|([KMGT])|)\s*", text.upper())
    if match is None or (match[3] and not match[2]):
        raise Misuse(f"`memory` {text!r} is not a number of bytes; write it as 500MB, 2GB or 1.5GiB.")
    power = " KMGT".index(match[2] or match[4] or " ")
    return int(min(float(match[1]) * (1024 if match[3] else 1000) ** power, MOST_MEMORY + 1))


def factory_string(index_type: str, count: int, dimension: int) -> str:
    """Return the FAISS factory string of a short name for this number of vectors.

    A text that is not a short name is returned unchanged, because it is a factory string.
    """
    lists = f"IVF{list_count(count)}," if count >= WITH_LISTS else ""
    resolved = {
        "flat": "Flat",
        "sq8": "SQ8",
        "ivf": f"IVF{list_count(count)},SQ8",
        "hnsw": "HNSW32",
        "pq": f"{lists}{_product_codes(dimension, 4)}",
        "rabitq": f"{lists}RaBitQfs",
    }
    return resolved.get(index_type, index_type)


def is_scanned_fast(count: int, dimension: int) -> bool:
    """Return whether an exact index of this size is so fast that `auto` looks no further."""
    return 4 * count * dimension <= SCANNED_EXACTLY


def list_count(count: int) -> int:
    """Return the number of lists: a power of two near twice the square root of the number of vectors.

    Choosing a list then costs about as much as scanning it.
    """
    wanted = min(2 * math.sqrt(max(count, 1)), count / VECTORS_A_LIST)
    return 1 << max(0, round(math.log2(max(wanted, 1))))


def candidates(count: int, dimension: int) -> list[str]:
    """List the factory strings that `auto` tries, starting with those that are built fastest."""
    codes = ["SQ8", _product_codes(dimension, 4), _product_codes(dimension, 8), "RaBitQfs"]
    lists = [f"IVF{list_count(count)},{code}" for code in codes if count >= 32 * VECTORS_A_LIST]
    return list(dict.fromkeys(["Flat", *codes, *lists]))


def _product_codes(dimension: int, width: int) -> str:
    """Return the factory string of product quantization with four bits per group of about `width` dimensions.

    FAISS scans codes of four bits fastest.
    """
    parts = max(1, dimension // width)
    while dimension % parts:
        parts -= 1
    return f"PQ{parts}x4fs"


def estimated_bytes(faiss: Any, index: Any, count: int) -> int:
    """Estimate the bytes that an index will use in memory and on disk once it holds `count` vectors.

    The given index is empty.
    """
    kind = faiss.downcast_index(index)  # a view: the caller must keep `index`
    if isinstance(kind, faiss.IndexHNSW):
        links = 2 * kind.hnsw.nb_neighbors(1) * 4 + 16
        return int(count * links) + estimated_bytes(faiss, kind.storage, count)
    if isinstance(kind, faiss.IndexIVF):
        blocks = kind.nlist * kind.code_size * 16 if isinstance(kind, faiss.IndexIVFFastScan) else 0  # half full
        return int(count * (kind.code_size + 8) + kind.nlist * kind.d * 4 + blocks) + _codebooks(kind)
    return int(count * kind.code_size) + _codebooks(kind)


def _codebooks(kind: Any) -> int:
    """Return the bytes of the centroids of product codes."""
    return int(kind.pq.ksub * kind.d * 4) if hasattr(kind, "pq") else 0
