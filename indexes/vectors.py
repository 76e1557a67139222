"""FAISS: unit vectors in, the nearest by cosine out, each known by the number SQLite gave it.

FAISS itself only counts positions; the numbers stand beside it in a rising array. That works for every index
type, where FAISS's own ID maps do not.
"""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import Damaged, Misuse, RetrieverError, first_line

INDEX_TYPES = {"flat": "Flat", "sq8": "SQ8", "hnsw": "HNSW32"}
# How many more than asked are fetched, so that a last-bit difference in FAISS's float32 scores cannot change
# which ones are the best once they are scored again in float64.
SPARE = 16
TIE = 1e-6
TRAINING_SAMPLE = 65_536

Numbers = NDArray[np.int64]
Matrix = NDArray[np.float32]


def import_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise RetrieverError(
            "FAISS is not installed. Install one of: pip install 'flow-retriever[cpu]' (any machine), "
            "pip install 'flow-retriever[gpu]' (NVIDIA, CUDA 12)."
        ) from error
    return faiss


def factory_string(index_type: str) -> str:
    """The FAISS factory string of a short name; any factory string stands for itself."""
    return INDEX_TYPES.get(index_type, index_type)


def unit_rows(vectors: NDArray[np.floating[Any]]) -> Matrix:
    """Rows scaled to length one; a row of zeros stays as it is and is near nothing."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.where(norms > 0, norms, 1), dtype=np.float32)


def empty_index(factory: str, dimension: int) -> Any:
    """A FAISS index with nothing in it; refuses a factory string that FAISS does not know."""
    faiss = import_faiss()
    if "IDMap" in factory:
        raise Misuse(f"the index type {factory!r} keeps ids of its own; leave IDMap out, the collection has them.")
    try:
        index = faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise Misuse(
            f"FAISS knows no index type {factory!r} for {dimension} dimensions. "
            f"Take one of {', '.join(INDEX_TYPES)} or a FAISS factory string such as 'IVF256,Flat'."
        ) from error
    inverted = faiss.try_extract_index_ivf(index)
    if inverted is not None:
        inverted.nprobe = max(8, inverted.nlist // 8)
    return index


def build(
    factory: str, dimension: int, count: int, blocks: Callable[[], Iterator[tuple[Numbers, Matrix]]]
) -> tuple["VectorIndex", str]:
    """An index over `count` unit vectors that `blocks()` gives anew each time it is called.

    Where the type asked for cannot be trained on so few, the index is exact instead, and the second value says so.
    """
    index, note = empty_index(factory if count else "Flat", dimension), ""
    if not index.is_trained:
        try:
            index.train(_training_sample(count, blocks()))
        except RuntimeError:
            note = f"{factory} cannot be trained on {count:,} vectors; the index is exact (Flat) instead"
            index = empty_index("Flat", dimension)
    _reserve(index, count)
    numbers = [np.zeros(0, np.int64)]
    for block, vectors in blocks():
        numbers.append(block)
        index.add(vectors)
    return VectorIndex(index, np.concatenate(numbers)), note


def _training_sample(count: int, blocks: Iterator[tuple[Numbers, Matrix]]) -> Matrix:
    rng = np.random.default_rng(0)
    share = min(1.0, TRAINING_SAMPLE / max(count, 1))
    return np.concatenate([vectors[rng.random(len(vectors)) < share] for _, vectors in blocks])


def _reserve(index: Any, count: int) -> None:
    """Make room once: grown block by block, the codes would be copied and held twice at the peak."""
    faiss = import_faiss()
    if isinstance(index, faiss.IndexFlatCodes):
        index.codes.resize(count * index.code_size)


class VectorIndex:
    """A FAISS index and the number of the vector at each of its positions (rising)."""

    def __init__(self, index: Any, numbers: Numbers) -> None:
        if index.ntotal != len(numbers):
            raise Damaged(f"index holds {index.ntotal:,} vectors, its list of numbers {len(numbers):,}.")
        self.index = index
        self.numbers = numbers

    @property
    def exact(self) -> bool:
        """Whether it holds every vector whole and compares the query with all of them."""
        return isinstance(self.index, import_faiss().IndexFlat)

    def __len__(self) -> int:
        return len(self.numbers)

    def search(self, queries: Matrix, k: int, excluded: Numbers) -> list[Numbers]:
        """For each query the numbers of at least the k nearest, without the excluded ones, and of all that tie
        with the last of them; of an approximate index, those it finds."""
        wanted = k + SPARE + len(excluded)
        while wanted < len(self):
            scores, positions = self.index.search(queries, wanted)
            cut = scores[:, min(k + len(excluded), wanted) - 1]
            if not (cut - scores[:, -1] < TIE).any():
                found = [self.numbers[row[row >= 0]] for row in positions]
                return [numbers[~np.isin(numbers, excluded)] for numbers in found] if len(excluded) else found
            wanted *= 4
        everything = self.numbers[~np.isin(self.numbers, excluded)]
        return [everything] * len(queries)

    def vectors(self, numbers: Numbers) -> Matrix:
        """The vectors as the index holds them (whole only in an exact index)."""
        positions = np.searchsorted(self.numbers, numbers)
        return np.asarray(self.index.reconstruct_batch(positions), np.float32)

    def save(self, index_path: Path, numbers_path: Path) -> None:
        try:
            import_faiss().write_index(self.index, str(index_path))
        except RuntimeError as error:
            if _disk_full(index_path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(index_path)) from error
            raise RetrieverError(f"FAISS could not write {index_path}: {first_line(error)}") from error
        np.save(numbers_path, self.numbers, allow_pickle=False)

    @classmethod
    def load(cls, index_path: Path, numbers_path: Path) -> "VectorIndex":
        try:
            index = import_faiss().read_index(str(index_path))
            numbers = np.load(numbers_path, allow_pickle=False)
        except (RuntimeError, ValueError, EOFError, FileNotFoundError) as error:
            raise Damaged(f"{index_path} cannot be read as a FAISS index: {first_line(error)}") from error
        return cls(index, numbers)


def _disk_full(path: Path) -> bool:
    status = os.statvfs(path.parent)
    return status.f_bavail * status.f_frsize < 1 << 20
