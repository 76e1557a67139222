"""FAISS indexes by their bytes: a ladder of types, what each takes on disk, and the candidates its codes put forward.

The ladder runs from half a bit a dimension to the vectors themselves. Codes that follow single dimensions (SQ, RaBitQ)
also stand behind a random rotation, which spares an uneven space much of its loss: without it, raw vectors would be
compared at less than their best. PQ of 8 bits is not in it: FAISS takes minutes to train it at 768 dimensions.
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
# A walk through a graph and a look into lists trade recall for time: about a millisecond either way.
EF_SEARCH = 64
KINDS = ("PQ", "RaBitQ", "SQ")
LISTS_PROBED = 8  # of so many lists, one is looked into

Vectors = NDArray[np.float32]
Positions = NDArray[np.int64]


def ladder(dimension: int, count: int) -> list[str]:
    """The types measured unless told otherwise, few bytes first, for so many vectors of this dimension."""
    quantizers = [f"PQ{dimension // size}x4fs" for size in (8, 4, 2) if dimension % size == 0]
    bits = ["RaBitQ", "RaBitQ2", "RaBitQ3", "RaBitQ4", "SQ4", "SQ6", "SQ8", "SQfp16"]
    rotated = [f"RR{dimension},{code}" for code in ("RaBitQ", "RaBitQ2", "SQ4", "SQ6")]
    lists = 2 ** max(1, int(math.log2(math.sqrt(count))))
    return [*quantizers, *bits, *rotated, FLAT, f"IVF{lists},Flat", "HNSW32,SQ8", "HNSW32"]


def exhaustive(index_type: str) -> bool:
    """Whether it compares a query with every code, so that its bytes alone decide what it keeps."""
    return not index_type.startswith(("IVF", "HNSW"))


def kind(index_type: str) -> str:
    """The kind of code that is compared with every query, or that not every code is."""
    if not exhaustive(index_type):
        return "HNSW, IVF"
    code = index_type.rpartition(",")[2]
    return next((name for name in KINDS if code.startswith(name)), code)


def empty_index(index_type: str, dimension: int) -> Any:
    """Refuses a type that FAISS does not know for vectors of this dimension, compared by inner product."""
    faiss = import_faiss()
    try:
        index = faiss.index_factory(dimension, index_type, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise Misuse(
            f"FAISS knows no index type {index_type!r} for the cosine of {dimension} dimensions; --index-type takes a "
            "factory string such as SQ8, RaBitQ4 or IVF256,Flat."
        ) from error
    inverted = faiss.try_extract_index_ivf(index)
    if inverted is not None:
        inverted.nprobe = max(LISTS_PROBED, inverted.nlist // LISTS_PROBED)
    if graph := _graph(index):
        graph.hnsw.efSearch = EF_SEARCH
    return index


def _graph(index: Any) -> Any:
    """The graph of an index that has one, else None."""
    faiss = import_faiss()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        return _graph(index.index)
    return index if isinstance(index, faiss.IndexHNSW) else None


def build(index_type: str, vectors: Vectors) -> Any:
    """An index over these unit vectors, refused where they are too few to train it."""
    index = empty_index(index_type, vectors.shape[1])
    try:
        index.train(vectors)
        index.add(vectors)
    except RuntimeError as error:
        raise Misuse(f"{index_type} cannot be built of {len(vectors):,} vectors ({first_line(error)})") from error
    return index


def code_bytes(index: Any) -> int:
    """What the code of one vector takes, without the graph, the lists and what was trained."""
    graph = _graph(index)
    return int((graph.storage if graph else index).sa_code_size())


def file_bytes(index: Any) -> int:
    """What the index takes on disk, and about as much in memory."""
    return int(import_faiss().serialize_index(index).nbytes)


def candidates(index: Any, queries: Vectors, depths: Iterable[int]) -> dict[int, Positions]:
    """For each depth, the positions of so many candidates of every query, best first by their codes; -1 for none."""
    depths = sorted({min(depth, index.ntotal) for depth in depths})
    if depends_on_k(index):
        return {depth: index.search(queries, depth)[1] for depth in depths}
    found = index.search(queries, depths[-1])[1]
    return {depth: found[:, :depth] for depth in depths}


def exact_nearest(vectors: Vectors, queries: Vectors) -> Positions:
    """The positions of the nearest of every query, best first."""
    return candidates(build(FLAT, vectors), queries, [NEAREST])[min(NEAREST, len(vectors))]


def shares_found(nearest: Positions, found: Positions) -> NDArray[np.float64]:
    """For each query, the share of its nearest among what was found.

    Of candidates that are re-scored by the vectors themselves this is the recall of the best ones: whichever of the
    nearest is among the candidates is then put first.
    """
    there = [np.isin(own, others).mean() for own, others in zip(nearest, found, strict=True)]
    return np.array(there, np.float64)


def rescored(vectors: Vectors, queries: Vectors, found: Positions) -> Iterator[Positions]:
    """For each query its candidates again, best first by the vectors themselves."""
    for query, own in zip(queries, found, strict=True):
        kept = own[own >= 0]
        yield kept[np.argsort(-(vectors[kept] @ query), kind="stable")]


def types_for(asked: Sequence[str], dimension: int, count: int) -> list[str]:
    """What is asked for, each once, or the ladder; the exact one always, because all others are compared with it."""
    return list(dict.fromkeys([*asked, FLAT] if asked else ladder(dimension, count)))
