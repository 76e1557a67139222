"""FAISS indexes by their size: the index types, the bytes of each, and the candidates that its codes find.

The types range from half a bit a dimension to float32. SQ and RaBitQ, which code single dimensions, are also measured
after a random rotation, because without it the raw vectors would be at a disadvantage. PQ of 8 bits is left out because
FAISS takes minutes to train it at 768 dimensions.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import first_line
from indexes.faiss.vectors import depends_on_k, import_faiss
from retriever.errors import Misuse

FLAT = "Flat"
NEAREST = 10
# Graphs and inverted lists trade recall for time; both settings take about a millisecond.
EF_SEARCH = 64
KINDS = ("PQ", "RaBitQ", "SQ")
LISTS_PROBED = 8  # of so many lists, one is looked into

Vectors = NDArray[np.float32]
Positions = NDArray[np.int64]


def ladder(dimension: int, count: int) -> list[str]:
    """The default index types for `count` vectors of this dimension, smallest first."""
    quantizers = [f"PQ{dimension // size}x4fs" for size in (8, 4, 2) if dimension % size == 0]
    bits = ["RaBitQ", "RaBitQ2", "RaBitQ3", "RaBitQ4", "SQ4", "SQ6", "SQ8", "SQfp16"]
    rotated = [f"RR{dimension},{code}" for code in ("RaBitQ", "RaBitQ2", "SQ4", "SQ6")]
    lists = 2 ** max(1, int(math.log2(math.sqrt(count))))
    return [*quantizers, *bits, *rotated, FLAT, f"IVF{lists},Flat", "HNSW32,SQ8", "HNSW32"]


def exhaustive(index_type: str) -> bool:
    """True if the index compares a query with every code."""
    return not index_type.startswith(("IVF", "HNSW"))


def kind(index_type: str) -> str:
    """The kind of code of an exhaustive index, else "HNSW, IVF"."""
    if not exhaustive(index_type):
        return "HNSW, IVF"
    code = index_type.rpartition(",")[2]
    return next((name for name in KINDS if code.startswith(name)), code)


def empty_index(index_type: str, dimension: int) -> Any:
    """An index by inner product; raises Misuse if FAISS does not know the type for this dimension."""
    faiss = import_faiss()
    try:
        index = faiss.index_factory(dimension, index_type, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise Misuse(
            f"FAISS has no index type {index_type!r} for the cosine of {dimension} dimensions; --index-type takes a "
            "factory string such as SQ8, RaBitQ4 or IVF256,Flat."
        ) from error
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
    """Build an index of unit vectors; raises Misuse if there are too few to train it."""
    index = empty_index(index_type, vectors.shape[1])
    try:
        index.train(vectors)
        index.add(vectors)
    except RuntimeError as error:
        raise Misuse(f"{index_type} cannot be built of {len(vectors):,} vectors ({first_line(error)})") from error
    return index


def code_bytes(index: Any) -> int:
    """Bytes of one vector's code, without the graph, the lists and the trained parameters."""
    graph = _graph(index)
    return int((graph.storage if graph else index).sa_code_size())


def file_bytes(index: Any) -> int:
    """Bytes of the index on disk, and about as many in memory."""
    return int(import_faiss().serialize_index(index).nbytes)


def candidates(index: Any, queries: Vectors, depths: Iterable[int]) -> dict[int, Positions]:
    """For each depth, the positions of that many candidates of every query, best first; -1 for none."""
    depths = sorted({min(depth, index.ntotal) for depth in depths})
    if depends_on_k(index):
        return {depth: index.search(queries, depth)[1] for depth in depths}
    found = index.search(queries, depths[-1])[1]
    return {depth: found[:, :depth] for depth in depths}


def exact_nearest(vectors: Vectors, queries: Vectors) -> Positions:
    return candidates(build(FLAT, vectors), queries, [NEAREST])[min(NEAREST, len(vectors))]


def shares_found(nearest: Positions, found: Positions) -> NDArray[np.float64]:
    """For each query, the share of its nearest among the found.

    If the candidates are re-scored by their vectors, this is the recall of the best of them.
    """
    there = [np.isin(own, others).mean() for own, others in zip(nearest, found, strict=True)]
    return np.array(there, np.float64)


def rescored(vectors: Vectors, queries: Vectors, found: Positions) -> Iterator[Positions]:
    """For each query its candidates, best first by their vectors."""
    for query, own in zip(queries, found, strict=True):
        kept = own[own >= 0]
        yield kept[np.argsort(-(vectors[kept] @ query), kind="stable")]


def types_for(given: Sequence[str], dimension: int, count: int) -> list[str]:
    """The given index types, else the ladder; Flat is always among them, because it is the baseline."""
    return list(dict.fromkeys([*given, FLAT] if given else ladder(dimension, count)))
