"""The measurements of `python -m benchmarks speed`; each returns the figures of some systems.

A system that fails is left out, and `problems` says why.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.speed.encoding import rotated
from benchmarks.speed.inputs import Inputs
from benchmarks.speed.process import MeasuredProcess, cold_command, folder_bytes, run_cold
from benchmarks.speed.recall import least_scores, recall
from benchmarks.speed.rivals import OURS
from retriever.errors import RetrieverError
from retriever.progress import Progress

HITS = 10
TURN = 10
BATCH_TURNS = 3
QUANTILES = {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99}

Figures = dict[str, float]


@dataclass
class Tasks:
    inputs: Inputs
    model: str
    folder: Path
    batch: int
    repeats: int
    progress: Progress
    problems: list[str] = field(default_factory=list)

    def store(self, count: int, system: str) -> Path:
        return self.folder / "stores" / str(count) / "".join(c if c.isalnum() else "_" for c in system)

    def has_store(self, count: int, system: str) -> bool:
        """True if the store was completed."""
        return self._whole(self.store(count, system)).is_file()

    def forget_stores(self, count: int) -> None:
        shutil.rmtree(self.folder / "stores" / str(count), ignore_errors=True)

    @staticmethod
    def _whole(store: Path) -> Path:
        return store.with_suffix(".whole")

    def ingest_vectors(self, count: int, systems: Sequence[str]) -> dict[str, Figures]:
        """Make stores from given vectors; they are kept for searching."""
        found = {}
        for system in systems:
            store = self.store(count, system)
            with self._noting(count):
                found[system] = self._ingest(system, store, count, str(self.inputs.vectors_file))
                self._whole(store).touch()
        return found

    def ingest_text(self, count: int, systems: Sequence[str]) -> dict[str, Figures]:
        """Make stores by each system's own encoder, and ours a second time over the same documents."""
        found = {}
        for system in systems:
            store = self.store(count, f"{system} text")
            with self._noting(count):
                figures = self._ingest(system, store, count, None)
                if system == OURS:
                    again = self._request_ingest(system, store, count, None)
                    figures |= {f"again_{name}": again[name] for name in ("wall_seconds", "cpu_seconds")}
                found[system] = figures
            shutil.rmtree(store, ignore_errors=True)
        return found

    def _ingest(self, system: str, store: Path, count: int, vectors: str | None) -> Figures:
        shutil.rmtree(store, ignore_errors=True)
        self._whole(store).unlink(missing_ok=True)
        store.parent.mkdir(parents=True, exist_ok=True)
        figures = self._request_ingest(system, store, count, vectors)
        return figures | {"disk_bytes": folder_bytes(store), "vector_bytes": 4 * self.inputs.dimension * count}

    def _request_ingest(self, system: str, store: Path, count: int, vectors: str | None) -> Figures:
        with MeasuredProcess(system) as worker:
            return worker.request(
                "ingest",
                system=system,
                folder=str(store),
                model=self.model,
                texts=str(self.inputs.sentences_file),
                count=count,
                vectors=vectors,
                dimension=self.inputs.dimension,
            )

    def query_vectors(self, count: int, systems: Sequence[str]) -> dict[str, Figures]:
        """Search by given vectors, with recall."""
        found, hits = self._queries(count, systems, by_vector=True)
        vectors, queries = self.inputs.vectors[:count], self.inputs.query_vectors
        least = least_scores(vectors, queries, HITS)
        for system in found:
            found[system]["recall_at_10"] = recall(vectors, queries, least, hits[system], HITS)
        return found

    def query_text(self, count: int, systems: Sequence[str]) -> dict[str, Figures]:
        return self._queries(count, systems, by_vector=False)[0]

    def _queries(
        self, count: int, systems: Sequence[str], by_vector: bool
    ) -> tuple[dict[str, Figures], dict[str, list[list[str]]]]:
        """Figures and hits of warm queries; the systems take turns, a few queries each."""
        answers: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
        batches: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
        total, batch = len(self.inputs.queries), min(self.batch, len(self.inputs.queries))
        with ExitStack() as stack:
            workers: dict[str, MeasuredProcess] = {}
            for system in systems:
                with self._noting(count):
                    workers[system] = self._opened(stack, system, count, by_vector)
            for turn, first in enumerate(range(0, total, TURN)):
                for system in rotated(list(workers), turn):
                    answer = workers[system].request("queries", first=first, last=min(first + TURN, total))
                    answers[system].append(answer)
                self.progress(f"warm queries, {count:,} documents", min(first + TURN, total), total)
            for turn in range(BATCH_TURNS):
                for system in rotated(list(workers), turn):
                    batches[system].append(workers[system].request("batch", first=0, last=batch))
        found = {system: _query_figures(answers[system], batches[system], batch) for system in workers}
        hits = {system: [ids for answer in answers[system] for ids in answer["found"]] for system in workers}
        return found, hits

    def _opened(self, stack: ExitStack, system: str, count: int, by_vector: bool) -> MeasuredProcess:
        worker = stack.enter_context(MeasuredProcess(system))
        worker.request(
            "open",
            system=system,
            folder=str(self.store(count, system)),
            model=self.model,
            texts=self.inputs.queries,
            vectors=str(self.inputs.query_vectors_file) if by_vector else None,
            k=HITS,
        )
        return worker

    def cold(self, count: int, systems: Sequence[str]) -> dict[str, Figures]:
        """Cold commands in turns; the median of the repeats."""
        costs: dict[str, list[Figures]] = {system: [] for system in systems}
        for turn in range(self.repeats):
            query = self.inputs.queries[turn % len(self.inputs.queries)]
            for system in rotated([system for system in systems if system in costs], turn):
                with self._noting(count):
                    command = cold_command(system, self.store(count, system), self.model, query)
                    costs[system].append(run_cold(command))
                    continue
                del costs[system]
            self.progress(f"cold commands, {count:,} documents", turn + 1, self.repeats)
        return {system: {name: median(cost[name] for cost in own) for name in own[0]} for system, own in costs.items()}

    def encoding(self, count: int, encoders: Sequence[str]) -> dict[str, Figures]:
        with MeasuredProcess("the encoders") as worker:
            return worker.request("encoding", model=self.model, texts=self.inputs.texts[:count], names=list(encoders))

    def profile(self, count: int, systems: Sequence[str]) -> dict[str, dict[str, Any]]:
        store, source = self.store(count, "profile"), self.inputs.source_file(count)
        self.forget_stores(count)
        store.parent.mkdir(parents=True, exist_ok=True)
        with MeasuredProcess(OURS) as worker:
            found = worker.request("profile", source=str(source), folder=str(store), model=self.model)
        self.forget_stores(count)
        source.unlink()
        return dict.fromkeys(systems, found)

    @contextmanager
    def _noting(self, count: int) -> Iterator[None]:
        """Turn an error of a system into a note, so that the others continue."""
        try:
            yield
        except RetrieverError as error:
            self.problems.append(f"{error} (at {count:,} documents); left out")


def _query_figures(answers: list[dict[str, Any]], batches: list[dict[str, Any]], batch: int) -> Figures:
    seconds, encoder = (
        np.array([second for answer in answers for second in answer[name]]) for name in ("seconds", "encoder_seconds")
    )
    figures = {name: float(np.percentile(1000 * seconds, share)) for name, share in QUANTILES.items()}
    figures["cpu_ms"] = 1000 * sum(answer["cpu_seconds"] for answer in answers) / len(seconds)
    if len(encoder):
        figures["encoder_p50_ms"] = float(np.percentile(1000 * encoder, 50))
        figures["rest_p50_ms"] = float(np.percentile(1000 * (seconds - encoder), 50))
    figures["batch_per_second"] = batch * len(batches) / sum(answer["wall_seconds"] for answer in batches)
    figures["batch_cpu_ms"] = 1000 * sum(answer["cpu_seconds"] for answer in batches) / (batch * len(batches))
    figures["peak_bytes"] = float(batches[-1]["peak_bytes"])
    return figures
