"""A FAISS index over unit vectors, searched by cosine. Each vector has the number that it has in the database.

FAISS identifies a vector only by its position. A separate array in ascending order holds the numbers. This works for
every index type, unlike the ID maps of FAISS.
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import is_unicode
from indexes.errors import Damaged, Misuse, RetrieverError, first_line
from indexes.faiss.types import NAMES
from indexes.mapped import MappedFile
from indexes.rows import Matrix, Numbers

# The number of vectors that are fetched in addition to the requested ones. FAISS's scores in float32 may differ in the
# last bit. With spare candidates, this does not change which vectors are the best when they are scored in float64.
SPARE = 16
TIE = 1e-6
# Up to this number of vectors, scoring all of them is cheap, and it is exact for every index type.
SCANNED = 8192
# Up to this number of excluded vectors are fetched and dropped, which is faster than a FAISS selector.
FETCHED_BEYOND = 256
# Up to this number of queries, NumPy needs less CPU time than FAISS, which uses one thread per query.
FEW_QUERIES = 8
# Maximum number of results that FAISS returns on a GPU.
MOST_FROM_GPU = 2048

WRITTEN_TOGETHER = 1 << 20

LARGEST_NUMBER = 1 << 22
"""The largest number in a factory string. That many lists are recommended for more than a billion vectors."""
MOST_BITS = 16
"""The largest number of bits of a code. With more, FAISS would train on millions of vectors."""

FLAT_HEADERS = (b"IxFI", b"IxF2", b"IxFl")

Settings = dict[str, int]
"""Search settings: `nprobe` or `efSearch`, if the type has one of them, and `fetch`.

`fetch` is the number of candidates that are scored exactly for each result.
"""


def import_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise RetrieverError(
            "FAISS is not installed. Install one of: pip install 'flow-retriever[cpu]' (any machine), "
            "pip install 'flow-retriever[gpu]' (NVIDIA, CUDA 12)."
        ) from error
    return faiss


def gpu_count() -> int:
    """Count the GPUs that FAISS can use here. The CPU package of FAISS has no GPU functions."""
    faiss = import_faiss()
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def _single_thread_in_child() -> None:
    """Let FAISS use a single thread in a forked child.

    The child does not have the threads of the parent, and FAISS would wait for them forever.
    """
    if "faiss" in sys.modules:
        sys.modules["faiss"].omp_set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_single_thread_in_child)


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array as .npy. If the disk is full, this raises an error, unlike `np.save` with a path."""
    data = io.BytesIO()
    np.save(data, array, allow_pickle=False)
    path.write_bytes(data.getbuffer())


def unit_rows(vectors: NDArray[np.floating[Any]]) -> Matrix:
    """Scale rows to length one. A row of zeros stays unchanged."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.where(norms > 0, norms, 1), dtype=np.float32)


def empty_index(factory: str, dimension: int) -> Any:
    """Return an empty FAISS index. Refuse a factory string that FAISS does not support."""
    faiss = import_faiss()
    if re.search(r"[A-Za-z_]0+(?!\d)", factory):
        raise Misuse(f"the index type {factory!r} has a size of zero.")
    if "IDMap" in factory:
        raise Misuse(
            f"the index type {factory!r} stores its own ids; remove IDMap, because the collection stores the ids."
        )
    _refuse_absurd(factory)
    try:
        return faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
    except MemoryError:
        raise RetrieverError(
            f"there is too little memory for the index type {factory!r}; use smaller numbers."
        ) from None
    except RuntimeError as error:
        raise Misuse(
            f"FAISS has no index type {factory!r} for {dimension} dimensions. "
            f"Use one of {', '.join(NAMES)} or a FAISS factory string such as 'IVF256,Flat'."
        ) from error


def _refuse_absurd(factory: str) -> None:
    """Refuse numbers for which FAISS would compute for minutes or use all memory before it has seen a vector."""

    def numbers_of(pattern: str) -> list[int]:
        # Python converts at most 4,300 digits. The first nine tell enough.
        return [int(digits.lstrip("0")[:9] or 0) for digits in re.findall(pattern, factory)]

    numbers = numbers_of(r"[0-9]+")
    bits = numbers_of(r"(?:PQ|RQ|LSQ|IMI|SQ|Q)[0-9]+x([0-9]+)")
    lists = numbers_of(r"IMI[0-9]*x([0-9]+)")
    if max(numbers, default=0) > LARGEST_NUMBER or max(bits, default=0) > MOST_BITS or max(lists, default=0) > 11:
        raise Misuse(
            f"the index type {factory[:100]!r} has a number that is too large: a count may be at most "
            f"{LARGEST_NUMBER:,}, bits at most {MOST_BITS}, and bits of IMI at most 11."
        )


def exact_index(dimension: int, blocks: Sequence[tuple[Numbers, Matrix]]) -> "VectorIndex":
    """Return an exact index over vectors that are in memory."""
    index = empty_index("Flat", dimension)
    reserve(index, sum(len(numbers) for numbers, _ in blocks))
    for _, rows in blocks:
        index.add(rows)
    return VectorIndex(index, np.concatenate([np.zeros(0, np.int64), *(numbers for numbers, _ in blocks)]))


def reserve(index: Any, count: int) -> None:
    """Reserve the memory for all vectors at once.

    Otherwise FAISS would copy the codes whenever the index grows, and hold them twice at the peak.
    """
    if isinstance(index, import_faiss().IndexFlatCodes):
        index.codes.resize(count * index.code_size)


def effort_of(index: Any) -> tuple[str, Any] | None:
    """Return the name of the setting that trades time for recall, and the FAISS object that has it.

    Return None if the index type has no such setting.
    """
    faiss = import_faiss()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        return effort_of(index.index)
    if isinstance(index, faiss.IndexRefine):
        return effort_of(index.base_index)
    if isinstance(index, faiss.IndexIVF):
        return "nprobe", index
    if isinstance(index, faiss.IndexHNSW):
        return "efSearch", index.hnsw
    return None


def depends_on_k(index: Any) -> bool:
    """Return whether the first results of a search depend on the number of requested results, as with HNSW."""
    faiss = import_faiss()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        return depends_on_k(index.index)
    return isinstance(index, faiss.IndexHNSW | faiss.IndexNSG | faiss.IndexRefine)


def search_parameters(index: Any, selector: Any, share: float, wanted: int) -> Any:
    """Return the search parameters with which an index finds only vectors that the selector allows.

    `share` is the share of the allowed vectors in all vectors.
    """
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
        # The search also visits vectors that are not allowed, so it must visit more vectors.
        return faiss.SearchParametersHNSW(sel=selector, efSearch=int(max(index.hnsw.efSearch, wanted) / share))
    return faiss.SearchParameters(sel=selector)


class VectorIndex:
    """A FAISS index, the number of the vector at each position in ascending order, and the search settings."""

    def __init__(self, index: Any, numbers: Numbers, settings: Settings | None = None) -> None:
        if index.ntotal != len(numbers):
            raise Damaged(
                f"the index holds {index.ntotal:,} vectors, but its list of numbers has {len(numbers):,} entries."
            )
        self.index = index
        self.numbers = numbers
        self.exact = isinstance(index, import_faiss().IndexFlat)
        """True if the index holds every vector uncompressed and compares each query with all of them."""
        self.read_lock: object = None
        """A lock that prevents the removal of the files that the index is mapped from."""
        self.raw: NDArray[np.float16] | None = None
        """The raw vectors in the order of the numbers. Candidates of a lossy index are scored with them."""
        self.mapped: list[MappedFile] = []
        """The files that the index reads from, as long as it is used."""
        self.gpu_copy: Any = None
        """A copy of the index on a GPU. It is searched instead of the index if possible."""
        self._whole = _rows(index) if self.exact else None
        self.settings: Settings = {}
        self.apply(settings or {})

    def __len__(self) -> int:
        return len(self.numbers)

    def apply(self, settings: Settings) -> None:
        """Use these search settings from now on."""
        self.settings = settings
        effort = effort_of(self.index)
        if effort and effort[0] in settings:
            setattr(effort[1], effort[0], settings[effort[0]])

    def search(self, queries: Matrix, k: int, excluded: Numbers, allowed: Numbers | None = None) -> list[Numbers]:
        """Return the numbers of at least the k nearest vectors of each query, with all that tie with the last of them.

        Vectors in `excluded` are left out. If `allowed` is given, only these vectors are found. An exact index returns
        the true nearest vectors. If vectors are left out and at most SCANNED remain, any index returns all of these,
        and the caller scores them. Otherwise an approximate index returns what it finds, but never fewer than k. Its
        recall is lower if the allowed vectors are far from the query.
        """
        searched = self._searched(excluded, allowed)
        candidates = self.numbers if searched is None else self.numbers[searched]
        found = [candidates] * len(queries)
        if len(candidates) < len(self) and len(candidates) <= SCANNED:
            return found
        open_queries, wanted = list(range(len(queries))), max(k + SPARE, self.settings.get("fetch", 0) * k)
        while open_queries and wanted < len(candidates):
            fetched = self._fetch(queries[open_queries], wanted, searched, len(candidates))
            for place, (scores, positions) in zip(open_queries, fetched, strict=True):
                tied = len(scores) == wanted and scores[k - 1] - scores[-1] < TIE
                if len(scores) >= k and not tied:
                    found[place] = self.numbers[positions]
            open_queries = [place for place in open_queries if found[place] is candidates]
            wanted *= 4
        return found

    def _searched(self, excluded: Numbers, allowed: Numbers | None) -> NDArray[np.bool_] | None:
        """Return a mask of the positions to search, or None for all positions."""
        if allowed is None and not len(excluded):
            return None
        if allowed is None:
            searched = np.ones(len(self), bool)
            places = np.searchsorted(self.numbers, excluded)
            places = places[places < len(self)]
            searched[places[np.isin(self.numbers[places], excluded)]] = False
        else:
            searched = np.isin(self.numbers, allowed)
            if len(excluded):
                searched &= ~np.isin(self.numbers, excluded)
        return None if searched.all() else searched

    def _fetch(
        self, queries: Matrix, wanted: int, searched: NDArray[np.bool_] | None, count: int
    ) -> Iterator[tuple[Matrix, Numbers]]:
        """Yield the scores and positions of up to `wanted` of the `count` vectors to search, best first."""
        if self._whole is not None and self.gpu_copy is None and len(queries) <= FEW_QUERIES:
            yield from self._compared(self._whole, queries, wanted, searched)
            return
        left_out = len(self) - count
        scores = None
        if searched is not None and left_out > FETCHED_BEYOND:
            selector = import_faiss().IDSelectorBitmap(np.packbits(searched, bitorder="little"))
            # For some index types, FAISS has no selector and raises an error.
            with contextlib.suppress(RuntimeError):
                parameters = search_parameters(self.index, selector, count / len(self), wanted)
                scores, positions = self.index.search(queries, wanted, params=parameters)
        if scores is None:
            scores, positions = self._nearest(queries, min(len(self), self._beyond(wanted, left_out, count)))
        for own_scores, own_positions in zip(scores, positions, strict=True):
            kept = own_positions >= 0
            if searched is not None:
                kept &= searched[own_positions]
            elif kept.all():
                yield own_scores, own_positions
                continue
            yield own_scores[kept][:wanted], own_positions[kept][:wanted]

    def _beyond(self, wanted: int, left_out: int, count: int) -> int:
        """Return how many vectors to fetch if FAISS cannot exclude vectors itself. If few vectors are excluded, the
        result leaves room for all of them. Otherwise it is twice the expected number, and the caller fetches more if
        that is not enough.
        """
        if self.exact or left_out <= FETCHED_BEYOND:
            return wanted + left_out
        return min(wanted + left_out, 2 * wanted * -(-len(self) // count))

    def _compared(
        self, whole: Matrix, queries: Matrix, wanted: int, searched: NDArray[np.bool_] | None
    ) -> Iterator[tuple[Matrix, Numbers]]:
        """Compare each query with every vector."""
        positions = None if searched is None else np.flatnonzero(searched)
        for query in queries:
            scores = whole @ query
            own = scores if positions is None else scores[positions]
            best = np.argpartition(own, len(own) - wanted)[len(own) - wanted :]
            best = best[np.argsort(-own[best], kind="stable")]
            yield own[best], best if positions is None else positions[best]

    def ranked(self, queries: Matrix, count: int) -> Numbers:
        """Return the numbers of the nearest vectors as the index ranks them, one row per query.

        A number is -1 if the index finds no more vectors.
        """
        positions = self._nearest(queries, count)[1]
        return np.where(positions >= 0, self.numbers[positions], -1)

    def _nearest(self, queries: Matrix, count: int) -> tuple[Matrix, Numbers]:
        answering = self.gpu_copy if self.gpu_copy is not None and count <= MOST_FROM_GPU else self.index
        scores, positions = answering.search(queries, count)
        return scores, positions

    def vectors(self, numbers: Numbers) -> Matrix:
        """Return the vectors as the index holds them. Only an exact index holds them uncompressed."""
        positions = np.searchsorted(self.numbers, numbers)
        if self._whole is not None:
            return self._whole[positions]
        return np.asarray(self.index.reconstruct_batch(positions), np.float32)

    def raw_vectors(self, numbers: Numbers) -> Matrix | None:
        """Return raw vectors. Return None if this index does not have all of them."""
        if self.raw is None:
            return None
        positions = np.minimum(np.searchsorted(self.numbers, numbers), len(self) - 1)
        return self.raw[positions].astype(np.float32) if np.array_equal(self.numbers[positions], numbers) else None

    def save(self, index_path: Path, numbers_path: Path) -> None:
        faiss = import_faiss()
        try:
            # FAISS's own writer ignores errors when it closes the file.
            with index_path.open("wb") as file:
                faiss.write_index(self.index, faiss.PyCallbackIOWriter(file.write, WRITTEN_TOGETHER))
        except RuntimeError as error:
            raise RetrieverError(f"FAISS could not write {index_path}: {first_line(error)}") from error
        save_array(numbers_path, self.numbers)

    @classmethod
    def load(cls, index_path: Path, numbers_path: Path, settings: Settings | None = None) -> "VectorIndex":
        """Map the files into memory, so that only a small part is read. FAISS reads files that it cannot map."""
        faiss = import_faiss()
        try:
            mapped = [MappedFile(numbers_path)]
            with index_path.open("rb") as file:
                # The vectors of an exact index are unaligned in its file, and NumPy would copy them for every query.
                how = 0 if file.read(4) in FLAT_HEADERS else faiss.IO_FLAG_MMAP_IFC
                if how:
                    mapped.append(MappedFile(index_path))
                # FAISS takes a path as UTF-8, so a path that is not is given by the number of the open file.
                path = str(index_path) if is_unicode(str(index_path)) else f"/dev/fd/{file.fileno()}"
                index = faiss.read_index(path, how)
            numbers = np.load(numbers_path, mmap_mode="r", allow_pickle=False)
        except (RuntimeError, ValueError, EOFError, FileNotFoundError) as error:
            raise Damaged(f"{index_path} cannot be read as a FAISS index: {first_line(error)}") from error
        if numbers.ndim != 1 or numbers.dtype != np.int64:
            raise Damaged(f"{numbers_path} is not a list of vector numbers.")
        found = cls(index, np.asarray(numbers), settings)
        found.mapped = mapped
        return found


def _rows(index: Any) -> Matrix | None:
    """Return a view of the vectors of an exact index, or None if it is empty."""
    if not index.ntotal:
        return None
    flat: Matrix = import_faiss().rev_swig_ptr(index.get_xb(), index.ntotal * index.d)
    return flat.reshape(index.ntotal, index.d)
