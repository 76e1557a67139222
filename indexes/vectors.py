"""FAISS: unit vectors in, the nearest by cosine out, each known by the number SQLite gave it.

FAISS itself only counts positions; the numbers stand beside it in a rising array. That works for every index
type, where FAISS's own ID maps do not.
"""

import contextlib
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
# Up to so many vectors, scoring all of them costs little and is exact whatever the index type.
SCANNED = 8192
# Up to so many more are fetched and dropped, which is quicker than asking FAISS to pass over them.
FETCHED_BEYOND = 256
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


def search_parameters(index: Any, selector: Any, share: float, wanted: int) -> Any:
    """What tells an index of this type to find only what the selector lets through, a `share` of all it holds."""
    faiss = import_faiss()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        inner = search_parameters(index.index, selector, share, wanted)
        return faiss.SearchParametersPreTransform(index_params=inner)
    if isinstance(index, faiss.IndexRefine):
        inner = search_parameters(index.base_index, selector, share, int(wanted * index.k_factor))
        return faiss.IndexRefineSearchParameters(k_factor=index.k_factor, base_index_params=inner)
    if isinstance(index, faiss.IndexIVF):
        return faiss.SearchParametersIVF(sel=selector, nprobe=index.nprobe)
    if isinstance(index, faiss.IndexHNSW):
        # The walk also passes those it may not return: it must be longer to meet as many that it may.
        return faiss.SearchParametersHNSW(sel=selector, efSearch=int(max(index.hnsw.efSearch, wanted) / share))
    return faiss.SearchParameters(sel=selector)


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

    def search(self, queries: Matrix, k: int, excluded: Numbers, allowed: Numbers | None = None) -> list[Numbers]:
        """For each query the numbers of at least the k nearest, without the excluded ones and only of the allowed
        ones, and of all that tie with the last of them.

        An exact index gives exactly these. Where no more than SCANNED are left to search, any index gives them all,
        for the caller to score. Beyond that an approximate index gives those it finds, never fewer than k: about as
        many of the nearest as it finds among all, but less where what is allowed lies far from the query.
        """
        searched = self._searched(excluded, allowed)
        candidates = self.numbers if searched.all() else self.numbers[searched]
        found = [candidates] * len(queries)
        if len(candidates) < len(self) and len(candidates) <= SCANNED:
            return found
        open_queries, wanted = list(range(len(queries))), k + SPARE
        while open_queries and wanted < len(candidates):
            fetched = self._fetch(queries[open_queries], wanted, searched, len(candidates))
            for place, (scores, positions) in zip(open_queries, fetched, strict=True):
                tied = len(scores) == wanted and scores[k - 1] - scores[-1] < TIE
                if len(scores) >= k and not tied:
                    found[place] = self.numbers[positions]
            open_queries = [place for place in open_queries if found[place] is candidates]
            wanted *= 4
        return found

    def _searched(self, excluded: Numbers, allowed: Numbers | None) -> NDArray[np.bool_]:
        """Which positions are to be searched."""
        searched = np.ones(len(self), bool) if allowed is None else np.isin(self.numbers, allowed)
        return searched & ~np.isin(self.numbers, excluded) if len(excluded) else searched

    def _fetch(
        self, queries: Matrix, wanted: int, searched: NDArray[np.bool_], count: int
    ) -> Iterator[tuple[NDArray[np.float32], Numbers]]:
        """Scores and positions, best first, of as many as are wanted of the `count` to be searched, or of those that
        an approximate index finds."""
        left_out = len(self) - count
        scores = None
        if left_out > FETCHED_BEYOND:
            selector = import_faiss().IDSelectorBitmap(np.packbits(searched, bitorder="little"))
            # FAISS has no selector for some types, and says so before it begins.
            with contextlib.suppress(RuntimeError):
                parameters = search_parameters(self.index, selector, count / len(self), wanted)
                scores, positions = self.index.search(queries, wanted, params=parameters)
        if scores is None:
            scores, positions = self.index.search(queries, wanted + left_out)
        for own_scores, own_positions in zip(scores, positions, strict=True):
            kept = np.flatnonzero((own_positions >= 0) & searched[own_positions])[:wanted]
            yield own_scores[kept], own_positions[kept]

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
