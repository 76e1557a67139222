"""Index types tried: their CPU on vectors made up for that, their recall and settings on the sample's own vectors."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from indexes.errors import Misuse
from indexes.faiss.building import Vectors, build, build_tuned
from indexes.faiss.recall import WANTED, Nearest, Queries
from indexes.faiss.types import NAMES, VECTORS_A_LIST, factory_string, list_count
from indexes.faiss.vectors import Matrix, Numbers, VectorIndex, import_faiss
from retriever.plan.rates import Trial
from retriever.plan.usage import cpu_ms_between, cpu_seconds

TYPES = tuple(name for name in NAMES if name != "auto")
NOTHING = np.zeros(0, np.int64)
TRIED_ON, FEWEST_TRIED_ON = 16_384, 1024

Find = Callable[[VectorIndex, Matrix], Sequence[tuple[Numbers, NDArray[np.float64]]]]
MakeUp = Callable[[int], Matrix]
"""Unit vectors like those that are indexed, as many as are asked for."""


def lists_of(factory: str) -> int:
    """The lists of an IVF index, 0 where it is none."""
    found = re.search(r"IVF(\d+)", factory)
    return int(found[1]) if found else 0


def tried(target: float, real: Matrix, queries: Matrix, made_up: MakeUp, planned: int) -> Iterator[tuple[str, Trial]]:
    """Every type as it will be with as many vectors as are planned, one after the other."""
    dimension = real.shape[1]
    for name in TYPES:
        count = min(TRIED_ON, max(planned, FEWEST_TRIED_ON))
        factory = _shaped(factory_string(name, planned, dimension), count)
        try:
            settings, judged = _judged(factory, target, real, queries)
            yield name, _cost(factory, made_up(count), queries, settings, judged)
        except (Misuse, RuntimeError):  # more codes than so small a sample or dimension can have
            continue


def _shaped(factory: str, count: int) -> str:
    """The type with as many lists as it would have for so few vectors."""
    return re.sub(r"IVF\d+", f"IVF{list_count(count)}", factory)


def _judged(factory: str, target: float, real: Matrix, queries: Matrix) -> tuple[dict[str, int], dict[str, float]]:
    """Settings that reach the recall among the sample's own vectors, and the recall on queries that did not tune."""
    if len(real) < 2 * VECTORS_A_LIST or not len(queries):
        return {}, {}
    numbers = np.arange(len(real), dtype=np.int64)
    asking = Queries(queries, "short texts")
    built = build_tuned(_shaped(factory, len(real)), target, Vectors.of(numbers, real), asking, _find_in(real))
    facts = built.facts
    judged = {"recall": facts["recall"], "low": facts.get("low", 1.0), "high": facts.get("high", 1.0)}
    return dict(built.tuned.settings), {**judged, "reaches": built.tuned.reaches, "judged_on": len(real)}


def _find_in(rows: Matrix) -> Find:
    """A search that scores candidates exactly from vectors in memory."""

    def find(index: VectorIndex, queries: Matrix) -> list[tuple[Numbers, NDArray[np.float64]]]:
        found = []
        for query, own in zip(queries, index.search(queries, WANTED, NOTHING), strict=True):
            scores = (rows[own] @ query).astype(np.float64)
            order = np.argsort(-scores)[:WANTED]
            found.append((own[order], scores[order]))
        return found

    return find


def _cost(factory: str, rows: Matrix, queries: Matrix, settings: dict[str, int], judged: dict[str, float]) -> Trial:
    vectors = Vectors.of(np.arange(len(rows), dtype=np.int64), rows)
    began = cpu_seconds()
    index, _ = build(factory, vectors)
    whole = cpu_seconds() - began
    index.apply(settings)
    asking = queries if len(queries) else rows[:32]
    scan = _scan_ms(index, asking[:1])
    began = cpu_seconds()
    index.index.add(rows)  # once more, which trains nothing
    add = cpu_seconds() - began
    train = 0.0 if factory == "Flat" else max(0.0, whole - add)
    twice = _scan_ms(VectorIndex(index.index, np.arange(2 * len(rows), dtype=np.int64), settings), asking[:1])
    costs = (train, add, scan, twice)
    return Trial(factory, len(rows), lists_of(factory), *costs, settings, **judged)  # type: ignore[arg-type]


def _scan_ms(index: VectorIndex, query: Matrix) -> float:
    with _one_thread():
        return cpu_ms_between(partial(index.search, query, WANTED, NOTHING))


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Have FAISS search as it does for one of many who ask: threads that wait for each other would be counted."""
    faiss = import_faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def truth_cpu_a_vector(queries: Matrix, rows: Matrix) -> float:
    """CPU seconds to hold one vector against every query that judges an index."""
    nearest = Nearest(Queries(queries, "short texts"), len(rows))
    began = cpu_seconds()
    nearest.see(np.arange(len(rows), dtype=np.int64), rows)
    return (cpu_seconds() - began) / max(1, len(rows))
