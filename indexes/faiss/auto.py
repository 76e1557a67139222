"""`auto`: of the index types that fit the memory and reach the recall, the one that answers with the least CPU time.

Candidates are tried on the collection's own vectors and queries, on a sample where there are many, and the best is
built, tuned and measured on all. HNSW is not among them yet: it needs more memory than the vectors themselves, and
whether its walks are worth that in a space this isotropic has not been measured at the sizes where it would matter.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from indexes.errors import Misuse
from indexes.faiss.building import Built, Stage, Vectors, build_tuned, silent
from indexes.faiss.recall import WANTED, Find, Queries, cpu_ms
from indexes.faiss.types import IndexRequest, candidates, estimated_bytes
from indexes.faiss.vectors import empty_index, import_faiss

# Up to so many a scan of all is taken to be cheap enough not to look for something cheaper.
SCANNED_EXACTLY = 20_000
TRIED_ON = 50_000
# Real builds, at most, of candidates that promised the recall on the sample.
MOST_BUILT = 3
EVIDENCE = ("considered", "tried_on")


@dataclass(frozen=True)
class Trial:
    """A candidate built on the sample."""

    factory: str
    """For all vectors; the sample's has fewer lists."""
    built: Built
    bytes: int
    cpu_ms: float
    """Expected for all vectors."""

    def to_json(self) -> dict[str, Any]:
        return {
            "factory": self.factory,
            "recall": round(self.built.tuned.recall, 4),
            "reaches": self.built.tuned.reaches,
            "cpu_ms": round(self.cpu_ms, 4),
            "bytes": self.bytes,
        }


def chosen(
    asked: IndexRequest,
    vectors: Vectors,
    queries: Queries,
    find: Find,
    progress: Stage = silent,
    before: dict[str, Any] | None = None,
) -> Built:
    """The cheapest index that does what was asked, or else the best that fits, with a note that says so.

    `before` is the manifest of an index that was chosen for the same request. Until there are twice as many vectors,
    its type is taken again if it still does; trying them all takes longer than building one.
    """
    sizes = _sizes(vectors)
    fitting = {factory: size for factory, size in sizes.items() if asked.memory is None or size <= asked.memory}
    if not fitting:
        raise Misuse(
            f"no index of these {len(vectors):,} vectors fits {told_bytes(asked.memory or 0)}: the smallest takes "
            f"{told_bytes(min(sizes.values()))}. Give --memory at least that much."
        )
    if "Flat" in fitting and len(vectors) <= SCANNED_EXACTLY:
        return _with_facts(build_tuned("Flat", asked.target, vectors, queries, find, progress), [], len(vectors))
    if before and before["factory"] in fitting and len(vectors) <= 2 * before["count"]:
        again = build_tuned(before["factory"], asked.target, vectors, queries, find, progress)
        if again.tuned.reaches:
            evidence = {name: before["measured"][name] for name in EVIDENCE}
            return replace(again, facts=again.facts | evidence)
    trials = _trials(fitting, asked, vectors, queries, find, progress)
    ranked = sorted(trials, key=lambda trial: (not trial.built.tuned.reaches, _worth(trial)))
    tried_on = min(len(vectors), TRIED_ON)
    if tried_on == len(vectors):
        best = ranked[0]
        return _with_facts(_noted(best.built, asked, best.built.tuned.reaches), trials, tried_on)
    built: list[Built] = []
    for trial in ranked[:MOST_BUILT]:
        if built and not trial.built.tuned.reaches:
            break
        built.append(build_tuned(trial.factory, asked.target, vectors, queries, find, progress))
        if built[-1].tuned.reaches:
            return _with_facts(_noted(built[-1], asked, True), trials, tried_on)
    best_built = max(built, key=lambda one: one.tuned.recall)
    return _with_facts(_noted(best_built, asked, False), trials, tried_on)


def told_bytes(count: float) -> str:
    """A number of bytes for people."""
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
    fitting: dict[str, int], asked: IndexRequest, vectors: Vectors, queries: Queries, find: Find, progress: Stage
) -> list[Trial]:
    """Each candidate built and tuned on the sample, with the time that all the vectors will take."""
    numbers = vectors.sample(TRIED_ON)
    growth = len(vectors) / len(numbers)
    sample = vectors if growth == 1 else Vectors.of(numbers, vectors.take(numbers))
    names = zip(candidates(len(vectors), vectors.dimension), candidates(len(sample), vectors.dimension), strict=True)
    trials: list[Trial] = []
    for factory, for_sample in names:
        if factory in fitting:
            progress("trying index types", len(trials), len(fitting))
            built = build_tuned(for_sample, asked.target, sample, queries, find)
            # A scan grows with the vectors; scoring the candidates again does not.
            whole, scan = float(built.facts["cpu_ms"]), _scan_ms(built, queries)
            trials.append(Trial(factory, built, fitting[factory], whole + (growth - 1) * min(scan, whole)))
    progress("trying index types", len(fitting), len(fitting))
    return trials


def _scan_ms(built: Built, queries: Queries) -> float:
    return cpu_ms(lambda query: built.index.search(query, WANTED, np.zeros(0, np.int64)), queries.vectors)


def _worth(trial: Trial) -> float:
    """Less is better: time where the recall is reached, what is missing of it where it is not."""
    return trial.cpu_ms if trial.built.tuned.reaches else -trial.built.tuned.recall


def _noted(built: Built, asked: IndexRequest, reaches: bool) -> Built:
    """With what to say where no candidate reaches the recall."""
    if reaches:
        return built
    within = "" if asked.memory is None else f" within {told_bytes(asked.memory)}"
    said = (
        f"no index{within} reaches recall {asked.target:g}; the best, {built.factory}, has {built.facts['recall']:.3f}"
    )
    return replace(built, note="; ".join(filter(None, [built.note, said])))


def _with_facts(built: Built, trials: list[Trial], tried_on: int) -> Built:
    evidence = dict(zip(EVIDENCE, ([trial.to_json() for trial in trials], tried_on), strict=True))
    return replace(built, facts=built.facts | evidence)
