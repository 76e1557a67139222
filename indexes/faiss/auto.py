"""Chooses an index type (`auto`): the one with the least CPU time per query within the requested memory and recall.

An index that is scanned in a few milliseconds is exact. Otherwise, the candidates are tried on the vectors of the
collection, or on a sample if there are many vectors. The best candidate is built, tuned and measured on all vectors.
HNSW is not a candidate: it needs more memory than the vectors themselves, and its benefit in an isotropic space has
not been measured at large sizes.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from indexes.errors import Misuse
from indexes.faiss.building import Built, Stage, Vectors, build_tuned, silent
from indexes.faiss.recall import WANTED, Find, Queries, cpu_ms
from indexes.faiss.types import IndexRequest, candidates, estimated_bytes, is_scanned_fast
from indexes.faiss.vectors import empty_index, import_faiss

TRIED_ON = 50_000
# Maximum number of candidates that are built on all vectors. They must have reached the recall on the sample.
MOST_BUILT = 3
EVIDENCE = ("considered", "tried_on")


@dataclass(frozen=True)
class Trial:
    """A candidate that was built on the sample."""

    factory: str
    """The factory string of the candidate for all vectors. The index on the sample has fewer lists."""
    built: Built
    bytes: int
    cpu_ms: float
    """The expected CPU time of a query on all vectors."""

    def to_json(self) -> dict[str, Any]:
        return {
            "factory": self.factory,
            "recall": round(self.built.tuned.recall, 4),
            "reaches": self.built.tuned.reaches,
            "cpu_ms": round(self.cpu_ms, 4),
            "bytes": self.bytes,
        }


def choose_index(
    request: IndexRequest,
    vectors: Vectors,
    queries: Queries,
    find: Find,
    progress: Stage = silent,
    before: dict[str, Any] | None = None,
) -> Built:
    """Build the cheapest index that meets the request.

    If no index reaches the recall, build the best one that fits the memory, and add a note. `before` is the manifest of
    an index that was chosen for the same request. Its type is used again if it still reaches the recall and the number
    of vectors has not more than doubled, because trying all candidates takes longer than building one.
    """
    sizes = _sizes(vectors)
    fitting = {factory: size for factory, size in sizes.items() if request.memory is None or size <= request.memory}
    if not fitting:
        raise Misuse(
            f"no index of these {len(vectors):,} vectors fits into {format_bytes(request.memory or 0)}: the "
            "smallest takes "
            f"{format_bytes(min(sizes.values()))}. Set `memory` to at least that much."
        )
    if "Flat" in fitting and is_scanned_fast(len(vectors), vectors.dimension):
        return _with_facts(build_tuned("Flat", request.target, vectors, queries, find, progress), [], len(vectors))
    if before and before["factory"] in fitting and len(vectors) <= 2 * before["count"]:
        again = build_tuned(before["factory"], request.target, vectors, queries, find, progress)
        if again.tuned.reaches:
            evidence = {name: before["measured"][name] for name in EVIDENCE}
            return replace(again, facts=again.facts | evidence)
    trials = _trials(fitting, request, vectors, queries, find, progress)
    ranked = sorted(trials, key=_rank)
    built = [ranked[0].built] if len(vectors) <= TRIED_ON else []
    for trial in ranked[:MOST_BUILT]:
        if built and (built[-1].tuned.reaches or not trial.built.tuned.reaches):
            break
        built.append(build_tuned(trial.factory, request.target, vectors, queries, find, progress))
    best = max(built, key=lambda one: (one.tuned.reaches, one.tuned.recall))
    if not best.tuned.reaches:
        within = "" if request.memory is None else f" within {format_bytes(request.memory)}"
        best = best.noted(
            f"no index{within} reaches recall {request.target:g}; "
            f"the best, {best.factory}, has {best.facts['recall']:.3f}"
        )
    return _with_facts(best, trials, min(len(vectors), TRIED_ON))


def format_bytes(count: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.2f} GB"


def _sizes(vectors: Vectors) -> dict[str, int]:
    faiss = import_faiss()
    names = candidates(len(vectors), vectors.dimension)
    return {name: estimated_bytes(faiss, empty_index(name, vectors.dimension), len(vectors)) for name in names}


def _trials(
    fitting: dict[str, int], request: IndexRequest, vectors: Vectors, queries: Queries, find: Find, progress: Stage
) -> list[Trial]:
    """Build and tune each candidate on the sample, and estimate the time of a query on all vectors."""
    numbers = vectors.sample(TRIED_ON)
    growth = len(vectors) / len(numbers)
    sample = vectors if growth == 1 else Vectors.of(numbers, vectors.take(numbers))
    names = zip(candidates(len(vectors), vectors.dimension), candidates(len(sample), vectors.dimension), strict=True)
    trials: list[Trial] = []
    for factory, for_sample in names:
        if factory in fitting:
            progress("trying index types", len(trials), len(fitting))
            built = build_tuned(for_sample, request.target, sample, queries, find)
            # The time of a scan grows with the number of vectors. The time to score its results again does not.
            whole = float(built.facts["cpu_ms"])
            scan = cpu_ms(partial(built.index.search, k=WANTED, excluded=np.zeros(0, np.int64)), queries.vectors)
            trials.append(Trial(factory, built, fitting[factory], whole + (growth - 1) * min(scan, whole)))
    progress("trying index types", len(fitting), len(fitting))
    return trials


def _rank(trial: Trial) -> tuple[bool, float]:
    """Return the sort key: first trials that reach the recall, ordered by time, then the others, ordered by recall."""
    tuned = trial.built.tuned
    return not tuned.reaches, trial.cpu_ms if tuned.reaches else -tuned.recall


def _with_facts(built: Built, trials: list[Trial], tried_on: int) -> Built:
    evidence = dict(zip(EVIDENCE, ([trial.to_json() for trial in trials], tried_on), strict=True))
    return replace(built, facts=built.facts | evidence)
