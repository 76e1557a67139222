"""Makes the index that was asked for, tunes how it is searched, and measures what it finds and costs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from indexes.errors import Misuse, first_line
from indexes.faiss.recall import Find, HeldOut, Nearest, Queries, cpu_ms, measured
from indexes.faiss.tuning import Tuned, tuned
from indexes.faiss.types import IndexRequest, factory_string
from indexes.faiss.vectors import Matrix, Numbers, VectorIndex, effort_of, empty_index, import_faiss

TRAINING_SAMPLE = 65_536
# Of k-means, where FAISS has 25: half the time, for half a point of recall at equal nprobe on 6,000 real vectors.
KMEANS_ROUNDS = 10
SEED = 0

Stage = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Tell nobody how far it is."""


@dataclass(frozen=True)
class Vectors:
    """The unit vectors an index is made of: their numbers (rising), all in blocks, or some."""

    dimension: int
    numbers: Numbers
    blocks: Callable[[], Iterator[tuple[Numbers, Matrix]]]
    take: Callable[[Numbers], Matrix]

    def __len__(self) -> int:
        return len(self.numbers)

    @classmethod
    def of(cls, numbers: Numbers, rows: Matrix) -> "Vectors":
        """Those that are in memory."""
        return cls(
            rows.shape[1], numbers, lambda: iter([(numbers, rows)]), lambda some: rows[np.searchsorted(numbers, some)]
        )

    def sample(self, most: int) -> Numbers:
        """A seeded choice of the numbers, rising."""
        if len(self) <= most:
            return self.numbers
        return np.sort(np.random.default_rng(SEED).choice(self.numbers, most, replace=False))


@dataclass(frozen=True)
class Built:
    """An index, the factory string it was made by, what to say where it is not what was asked, and its facts."""

    index: VectorIndex
    factory: str
    note: str
    facts: dict[str, Any]
    tuned: Tuned


def made(asked: IndexRequest, vectors: Vectors, queries: Queries, find: Find, progress: Stage = silent) -> Built:
    """The index of a type that was asked for by name, tuned and measured on these queries."""
    factory = factory_string(asked.type, len(vectors), vectors.dimension)
    built = build_tuned(factory, asked.target, vectors, queries, find, progress)
    if built.tuned.reaches and built.facts.get("high", 1.0) >= asked.target:
        return built
    missed = f"{factory} does not reach recall {asked.target:g}, however it is searched; auto takes a type that does"
    return replace(built, note="; ".join(filter(None, [built.note, missed])))


def build_tuned(
    factory: str, target: float, vectors: Vectors, queries: Queries, find: Find, progress: Stage = silent
) -> Built:
    """Build in one pass over the vectors, which finds the true nearest of the queries as well."""
    nearest = Nearest(queries, len(vectors))
    try:
        index, note = build(factory, vectors, nearest, progress)
    except RuntimeError as error:
        raise Misuse(f"FAISS cannot make an index {factory!r} of these vectors: {_reason(error)}.") from error
    factory = "Flat" if note else factory
    held_out = nearest.held_out()
    if held_out is None:
        return Built(
            index, factory, note, {"recall": 1.0 if index.exact else None, "exact": index.exact}, Tuned({}, 1, True)
        )
    return tune(index, factory, note, target, held_out, find)


def tune(index: VectorIndex, factory: str, note: str, target: float, held_out: HeldOut, find: Find) -> Built:
    """Tune on one half of the queries, measure on the other."""
    choosing, telling = held_out.half(0), held_out.half(1)
    found = Tuned({}, 1.0, True)
    if not index.exact:
        found = tuned(index, choosing, target, lambda tried: cpu_ms(lambda q: find(tried, q), choosing.queries.vectors))
    return Built(index, factory, note, measured(index, telling, find), found)


def build(
    factory: str, vectors: Vectors, nearest: Nearest | None = None, progress: Stage = silent
) -> tuple[VectorIndex, str]:
    """An index over all the vectors, which `nearest` sees as they pass.

    Where the type asked for cannot be trained on so few, the index is exact instead, and the second value says so.
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
    _reserve(index, count)
    if isinstance(index, import_faiss().IndexFlat):
        nearest = None  # an exact index finds them itself
    numbers, done = [np.zeros(0, np.int64)], 0
    for block, rows in vectors.blocks():
        numbers.append(block)
        index.add(rows)
        if nearest is not None:
            nearest.see(block, rows)
        done += len(block)
        progress("building the index", done, count)
    return VectorIndex(index, np.concatenate(numbers)), note


def exact_index(dimension: int, blocks: Sequence[tuple[Numbers, Matrix]]) -> VectorIndex:
    """An exact index over vectors that are in memory."""
    index = empty_index("Flat", dimension)
    _reserve(index, sum(len(numbers) for numbers, _ in blocks))
    for _, rows in blocks:
        index.add(rows)
    return VectorIndex(index, np.concatenate([np.zeros(0, np.int64), *(numbers for numbers, _ in blocks)]))


def _reason(error: RuntimeError) -> str:
    """What FAISS says, without the place in its source."""
    return first_line(error).rpartition("Error: ")[2].removeprefix("'").strip()


def _train(index: Any, sample: Matrix) -> None:
    """FAISS writes to standard error where a centroid has fewer than 39 vectors; measuring tells what that costs."""
    faiss = import_faiss()
    effort = effort_of(index)
    inverted = effort[1] if effort and effort[0] == "nprobe" else None
    if inverted is not None:
        inverted.cp.min_points_per_centroid = 1
        inverted.cp.niter = KMEANS_ROUNDS
    for part in _parts(faiss, index):
        if hasattr(part, "pq"):
            part.pq.cp.min_points_per_centroid = 1
    index.train(sample)


def _parts(faiss: Any, index: Any) -> Iterator[Any]:
    """An index and those inside of it."""
    part = faiss.downcast_index(index)
    yield part
    for name in ("index", "base_index", "storage"):
        if (inner := getattr(part, name, None)) is not None:
            yield from _parts(faiss, inner)


def _reserve(index: Any, count: int) -> None:
    """Make room once: grown block by block, the codes would be copied and held twice at the peak."""
    faiss = import_faiss()
    if isinstance(index, faiss.IndexFlatCodes):
        index.codes.resize(count * index.code_size)
