"""FAISS indexes of different sizes: the index types, their bytes, and the candidates that their codes find.

The types range from half a bit per dimension to float32, without PQ of 8 bits, which FAISS trains for minutes. SQ and
RaBitQ code single dimensions. Without a random rotation raw vectors would be at a disadvantage, so both are measured.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import first_line
from indexes.faiss.vectors import depends_on_k, import_faiss
from retriever.errors import Misuse

FLAT = "Flat"
NEAREST = 10
# Graphs and inverted lists trade recall for time. With these settings, a query takes about a millisecond.
EF_SEARCH = 64
KINDS = ("PQ", "RaBitQ", "SQ")
LISTS_PROBED = 8  # one in this many lists is searched, and at least this many

Vectors = NDArray[np.float32]
Positions = NDArray[np.int64]


def ladder(dimension: int, count: int) -> list[str]:
    """Return the default index types for `count` vectors of this dimension, smallest first."""
    quantizers = [f"PQ{dimension // size}x4fs" for size in (8, 4, 2) if dimension % size == 0]
    bits = ["RaBitQ", "RaBitQ2", "RaBitQ3", "RaBitQ4", "SQ4", "SQ6", "SQ8", "SQfp16"]
    rotated = [f"RR{dimension},{code}" for code in ("RaBitQ", "RaBitQ2", "SQ4", "SQ6")]
    lists = 2 ** max(1, int(math.log2(math.sqrt(count))))
    return [*quantizers, *bits, *rotated, FLAT, f"IVF{lists},Flat", "HNSW32,SQ8", "HNSW32"]


def exhaustive(index_type: str) -> bool:
    """Return whether the index compares a query with every code."""
    return not index_type.startswith(("IVF", "HNSW"))


def kind(index_type: str) -> str:
    """Return the kind of code that an exhaustive index uses. For all other indexes, return "HNSW, IVF"."""
    if not exhaustive(index_type):
        return "HNSW, IVF"
    code = index_type.rpartition(",")[2]
    return next((name for name in KINDS if code.startswith(name)), code)


def empty_index(index_type: str, dimension: int) -> Any:
    """Return an empty index that compares by inner product. Raise Misuse if FAISS lacks the type for this dimension."""
    faiss = import_faiss()
    try:
        index = faiss.index_factory(dimension, index_type, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        none = f"FAISS has no index type {index_type!r} for the cosine of {dimension} dimensions"
        needed = "--index-type needs a factory string such as SQ8, RaBitQ4 or IVF256,Flat"
        raise Misuse(f"{none}; {needed}.") from error
    inverted = faiss.try_extract_index_ivf(index)
    if inverted is not None:
        inverted.nprobe = max(LISTS_PROBED, inverted.nlist // LISTS_PROBED)
    if graph := _graph(index):
        graph.hnsw.efSearch = EF_SEARCH
    return index


def _graph(index: Any) -> Any:
    faiss = import_faiss()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        return _graph(index.index)
    return index if isinstance(index, faiss.IndexHNSW) else None


def build(index_type: str, vectors: Vectors) -> Any:
    """Build an index of unit vectors. Raise Misuse if there are too few vectors to train it."""
    index = empty_index(index_type, vectors.shape[1])
    try:
        index.train(vectors)
        index.add(vectors)
    except RuntimeError as error:
        raise Misuse(f"{index_type} cannot be built from {len(vectors):,} vectors ({first_line(error)})") from error
    return index


def code_bytes(index: Any) -> int:
    """Return the bytes of one vector's code, without the graph, the lists and the trained parameters."""
    graph = _graph(index)
    return int((graph.storage if graph else index).sa_code_size())


def file_bytes(index: Any) -> int:
    """Return the bytes of the index on disk. It needs about as many in memory."""
    return int(import_faiss().serialize_index(index).nbytes)


def candidates(index: Any, queries: Vectors, depths: Iterable[int]) -> dict[int, Positions]:
    """Return every query's candidates for each depth, best first. The position -1 means that there is none."""
    depths = sorted({min(depth, index.ntotal) for depth in depths})
    if depends_on_k(index):
        return {depth: index.search(queries, depth)[1] for depth in depths}
    found = index.search(queries, depths[-1])[1]
    return {depth: found[:, :depth] for depth in depths}


def shares_found(nearest: Positions, found: Positions) -> NDArray[np.float64]:
    """Return the share of each query's nearest vectors that were found. This is also the recall after re-scoring."""
    there = [np.isin(own, others).mean() for own, others in zip(nearest, found, strict=True)]
    return np.array(there, np.float64)


def rescored(vectors: Vectors, queries: Vectors, found: Positions) -> Iterator[Positions]:
    """Yield the candidates of each query, sorted by the scores of their full vectors, best first."""
    for query, own in zip(queries, found, strict=True):
        kept = own[own >= 0]
        yield kept[np.argsort(-(vectors[kept] @ query), kind="stable")]
