"""Builds a FAISS index, tunes its search settings, and measures its recall and the time of a query."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from indexes.errors import Misuse, first_line
from indexes.faiss.recall import Find, Nearest, Queries, cpu_ms, measure
from indexes.faiss.tuning import Tuned, tune
from indexes.faiss.types import IndexRequest, factory_string
from indexes.faiss.vectors import VectorIndex, effort_of, empty_index, import_faiss, reserve
from indexes.rows import Matrix, Numbers

TRAINING_SAMPLE = 65_536
# Rounds of k-means; the default of FAISS is 25. Ten rounds take half the time. On 6,000 real vectors, they cost half a
# point of recall at equal nprobe.
KMEANS_ROUNDS = 10
SEED = 0

Stage = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Vectors:
    """The unit vectors of an index, and their numbers in ascending order.

    `blocks` yields all vectors. `take` returns the vectors with the given numbers.
    """

    dimension: int
    numbers: Numbers
    blocks: Callable[[], Iterator[tuple[Numbers, Matrix]]]
    take: Callable[[Numbers], Matrix]

    def __len__(self) -> int:
        return len(self.numbers)

    @classmethod
    def of(cls, numbers: Numbers, rows: Matrix) -> "Vectors":
        return cls(
            rows.shape[1], numbers, lambda: iter([(numbers, rows)]), lambda some: rows[np.searchsorted(numbers, some)]
        )

    def sample(self, most: int) -> Numbers:
        """Return at most `most` of the numbers in ascending order. The sample is the same in every run."""
        if len(self) <= most:
            return self.numbers
        return np.sort(np.random.default_rng(SEED).choice(self.numbers, most, replace=False))


@dataclass(frozen=True)
class Built:
    """A built index with its factory string and its measurements.

    `note` says how the index differs from the requested one; it is empty if it does not.
    """

    index: VectorIndex
    factory: str
    note: str
    facts: dict[str, Any]
    tuned: Tuned

    def noted(self, note: str) -> "Built":
        return replace(self, note="; ".join(filter(None, [self.note, note])))


def build_requested(
    request: IndexRequest, vectors: Vectors, queries: Queries, find: Find, progress: Stage = silent
) -> Built:
    """Build an index of the requested type. The queries are used to tune and measure it."""
    factory = factory_string(request.type, len(vectors), vectors.dimension)
    built = build_tuned(factory, request.target, vectors, queries, find, progress)
    if built.tuned.reaches and built.facts.get("high", 1.0) >= request.target:
        return built
    return built.noted(
        f"{factory} does not reach recall {request.target:g} with any search settings; auto chooses a type that does"
    )


def build_tuned(
    factory: str, target: float, vectors: Vectors, queries: Queries, find: Find, progress: Stage = silent
) -> Built:
    """Build, tune and measure an index.

    One pass over the vectors builds the index and finds the true nearest neighbours of the queries.
    """
    nearest = Nearest(queries, len(vectors))
    try:
        index, note = build(factory, vectors, nearest, progress)
    except RuntimeError as error:
        raise Misuse(f"FAISS cannot build an index {factory!r} of these vectors: {_reason(error)}.") from error
    factory = "Flat" if note else factory
    held_out, found = nearest.held_out(), Tuned({}, 1.0, True)
    if held_out is None:
        return Built(index, factory, note, {"recall": 1.0 if index.exact else None, "exact": index.exact}, found)
    tuning, measuring = held_out.half(0), held_out.half(1)
    if not index.exact:
        found = tune(index, tuning, target, lambda tried: cpu_ms(lambda q: find(tried, q), tuning.queries.vectors))
    return Built(index, factory, note, measure(index, measuring, find), found)


def build(
    factory: str, vectors: Vectors, nearest: Nearest | None = None, progress: Stage = silent
) -> tuple[VectorIndex, str]:
    """Build an index over all vectors, and pass all vectors to `nearest` as well.

    Return the index and a note. If there are too few vectors to train the type, the index is exact instead, and the
    note says so. Otherwise the note is empty.
    """
    count = len(vectors)
    index, note = empty_index(factory if count else "Flat", vectors.dimension), ""
    if not index.is_trained:
        progress("training the index", 0, count)
        try:
            _train(index, vectors.take(vectors.sample(TRAINING_SAMPLE)))
        except RuntimeError as error:
            note = f"{factory} cannot be trained on {count:,} vectors; the index is exact (Flat) instead"
            note += f" (FAISS: {_reason(error)})"
            index = empty_index("Flat", vectors.dimension)
    reserve(index, count)
    if isinstance(index, import_faiss().IndexFlat):
        nearest = None  # an exact index finds the true neighbours itself
    numbers, done = [np.zeros(0, np.int64)], 0
    for block, rows in vectors.blocks():
        numbers.append(block)
        index.add(rows)
        if nearest is not None:
            nearest.see(block, rows)
        done += len(block)
        progress("building the index", done, count)
    return VectorIndex(index, np.concatenate(numbers)), note


def _reason(error: RuntimeError) -> str:
    """Return the message of a FAISS error without its source location."""
    return first_line(error).rpartition("Error: ")[2].removeprefix("'").strip()


def _train(index: Any, sample: Matrix) -> None:
    """Train an index without the warning of FAISS about centroids with fewer than 39 vectors.

    The warning is not needed, because the recall is measured.
    """
    faiss = import_faiss()
    name, inverted = effort_of(index) or ("", None)
    if name == "nprobe" and inverted is not None:
        inverted.cp.min_points_per_centroid = 1
        inverted.cp.niter = KMEANS_ROUNDS
    for part in _parts(faiss, index):
        if hasattr(part, "pq"):
            part.pq.cp.min_points_per_centroid = 1
    index.train(sample)


def _parts(faiss: Any, index: Any) -> Iterator[Any]:
    """Yield an index and all indexes inside it."""
    part = faiss.downcast_index(index)
    yield part
    for name in ("index", "base_index", "storage"):
        if (inner := getattr(part, name, None)) is not None:
            yield from _parts(faiss, inner)
