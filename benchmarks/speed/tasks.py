"""The measurements of `python -m benchmarks speed`. Each measurement returns the figures of some systems.

A system that fails is left out, and `problems` says why. The inputs of every system are files in one folder, written
when they are first needed. Queries are phrases cut from the sentences of the smallest size, so they are always equal.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.sentence_vectors import Halves
from benchmarks.speed.encoding import rotated
from benchmarks.speed.process import MeasuredProcess, folder_bytes, run_whole
from benchmarks.speed.rivals import OURS
from indexes.faiss.vectors import unit_rows
from retriever.corpus.short_texts import short_texts
from retriever.errors import Misuse, RetrieverError
from retriever.evaluate.runs import Experiment

HITS = 10
TURN = 10
BATCH, BATCH_TURNS = 100, 3
QUANTILES = {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99}
SECONDS = ("wall_seconds", "cpu_seconds")
SEED = 0
BLOCK = 65_536
# Systems sum in different orders and store different precisions, so scores this close count as ties.
TIE = 1e-5

Figures = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    documents: Sequence[int]
    queries: int
    repeats: int
    embed_at_most: int
    """Maximum number of documents that each system also embeds with its own encoder."""

    def __str__(self) -> str:
        return f"{self.queries} queries, {BATCH} at once, {self.repeats} cold"


@dataclass
class Tasks:
    experiment: Experiment
    texts: Sequence[str]
    vectors: Halves
    sizes: Sizes
    folder: Path
    problems: list[str] = field(default_factory=list)

    @property
    def model(self) -> str:
        return str(self.experiment.encoders[0].encoder.files.folder)

    @cached_property
    def sentences_file(self) -> Path:
        path = self.folder / "sentences.txt"
        path.write_text("".join(f"{text}\n" for text in self.texts), encoding="utf-8", newline="\n")
        return path

    @cached_property
    def vectors_file(self) -> Path:
        """Write the vectors as rows of float16 without a header. Return the path of the file."""
        path = self.folder / "vectors.f16"
        self.vectors.tofile(path)
        return path

    @cached_property
    def queries(self) -> list[str]:
        found = short_texts(self.texts[: min(self.sizes.documents)], self.sizes.queries, SEED)
        if not found:
            raise Misuse("no query could be cut from the sentences: they have too few words.")
        return found

    @cached_property
    def query_vectors(self) -> NDArray[np.float32]:
        encoder, progress = self.experiment.encoders[0], self.experiment.progress
        found = self.experiment.cache.vectors(encoder, self.queries, progress=progress)
        np.save(self.folder / "queries.npy", found)
        return found

    def store(self, count: int, system: str) -> Path:
        return self.folder / "stores" / str(count) / "".join(c if c.isalnum() else "_" for c in system)

    def completed(self, count: int, system: str) -> Path:
        """Return the path of the file whose existence shows that a store is complete."""
        return self.store(count, system).with_suffix(".whole")

    def forget_stores(self, count: int) -> None:
        shutil.rmtree(self.folder / "stores" / str(count), ignore_errors=True)

    def ingest_vectors(self, count: int, systems: Sequence[str]) -> dict[str, Figures]:
        """Make stores from given vectors. The stores are kept for searching."""
        found = {}
        for system in systems:
            self.completed(count, system).unlink(missing_ok=True)
            with self._noting(count):
                found[system] = self._ingest(system, self.store(count, system), count, str(self.vectors_file))
                self.completed(count, system).touch()
        return found

    def ingest_text(self, count: int, systems: Sequence[str]) -> dict[str, Figures]:
        """Make stores with each system's own encoder. Our system then ingests the same documents a second time."""
        found = {}
        for system in systems:
            store = self.store(count, f"{system} text")
            with self._noting(count):
                figures = self._ingest(system, store, count, None)
                if system == OURS:
                    again = self._ingest(system, store, count, None, anew=False)
                    figures |= {f"again_{name}": again[name] for name in SECONDS}
                found[system] = figures
            shutil.rmtree(store, ignore_errors=True)
        return found

    def _ingest(self, system: str, store: Path, count: int, vectors: str | None, anew: bool = True) -> Figures:
        if anew:
            shutil.rmtree(store, ignore_errors=True)
        store.parent.mkdir(parents=True, exist_ok=True)
        dimension = int(self.vectors.shape[1])
        given = {"system": system, "folder": str(store), "model": self.model, "texts": str(self.sentences_file)}
        with MeasuredProcess(system) as worker:
            figures = worker.request("ingest", count=count, vectors=vectors, dimension=dimension, **given)
        return figures | {"disk_bytes": folder_bytes(store), "vector_bytes": 4 * dimension * count}

    def query_vectors_alone(self, count: int, systems: Sequence[str]) -> dict[str, Figures]:
        """Search by given vectors, and measure recall."""
        queries = self.query_vectors
        found, hits = self._queries(count, systems, str(self.folder / "queries.npy"))
        vectors = self.vectors[:count]
        least = least_scores(vectors, queries, HITS)
        for system in found:
            found[system]["recall_at_10"] = recall(vectors, queries, least, hits[system], HITS)
        return found

    def query_text(self, count: int, systems: Sequence[str]) -> dict[str, Figures]:
        return self._queries(count, systems, None)[0]

    def _queries(
        self, count: int, systems: Sequence[str], vectors: str | None
    ) -> tuple[dict[str, Figures], dict[str, list[list[str]]]]:
        """Return figures and hits of warm queries. The systems alternate after a few queries each."""
        answers: dict[str, list[Figures]] = {system: [] for system in systems}
        batches: dict[str, list[Figures]] = {system: [] for system in systems}
        total, batch = len(self.queries), min(BATCH, len(self.queries))
        with ExitStack() as stack:
            workers: dict[str, MeasuredProcess] = {}
            for system in systems:
                given = {"folder": str(self.store(count, system)), "model": self.model, "texts": self.queries}
                with self._noting(count):
                    worker = stack.enter_context(MeasuredProcess(system))
                    worker.request("open", system=system, vectors=vectors, k=HITS, **given)
                    workers[system] = worker
            for turn, first in enumerate(range(0, total, TURN)):
                last = min(first + TURN, total)
                for system in rotated(list(workers), turn):
                    answers[system].append(workers[system].request("queries", first=first, last=last))
                self.experiment.progress(f"warm queries, {count:,} documents", last, total)
            for turn in range(BATCH_TURNS):
                for system in rotated(list(workers), turn):
                    batches[system].append(workers[system].request("batch", first=0, last=batch))
        found = {system: _query_figures(answers[system], batches[system], batch) for system in workers}
        hits = {system: [ids for answer in answers[system] for ids in answer["found"]] for system in workers}
        return found, hits

    def cold(self, count: int, systems: Sequence[str]) -> dict[str, Figures]:
        """Measure searches from a cold start, as a user runs them. Systems alternate. Figures are medians."""
        costs: dict[str, list[Figures]] = {system: [] for system in systems}
        for turn in range(self.sizes.repeats):
            query = self.queries[turn % len(self.queries)]
            for system in rotated([system for system in systems if system in costs], turn):
                store = str(self.store(count, system))
                words = ["benchmarks.speed.cold", system, store, self.model, query]
                if system == OURS:
                    words = ["retriever", "search", "--index", store, "-k", str(HITS), "--", query]
                with self._noting(count):
                    costs[system].append(run_whole([sys.executable, "-m", *words]))
                    continue
                del costs[system]
            self.experiment.progress(f"cold commands, {count:,} documents", turn + 1, self.sizes.repeats)
        return {system: {name: median(cost[name] for cost in own) for name in SECONDS} for system, own in costs.items()}

    def encoding(self, count: int, encoders: Sequence[str]) -> dict[str, Figures]:
        with MeasuredProcess("the encoders") as worker:
            return worker.request("encode", model=self.model, texts=self.texts[:count], names=list(encoders))

    @contextmanager
    def _noting(self, count: int) -> Iterator[None]:
        """Turn an error of a system into a note, so that the other systems continue."""
        try:
            yield
        except RetrieverError as error:
            self.problems.append(f"{error} (at {count:,} documents); left out")


def write_documents(path: Path, texts: Sequence[str], digits: int = 0) -> None:
    """Write documents for `retriever index`. Their ids are their numbers, padded to this many digits."""
    documents = ({"id": f"{number:0{digits}d}", "text": text} for number, text in enumerate(texts))
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in documents), encoding="utf-8")


def _query_figures(answers: list[Figures], batches: list[Figures], batch: int) -> Figures:
    seconds, encoder = (np.concatenate([one[name] for one in answers]) for name in ("seconds", "encoder_seconds"))
    figures = {name: float(np.percentile(1000 * seconds, share)) for name, share in QUANTILES.items()}
    figures["cpu_ms"] = 1000 * sum(answer["cpu_seconds"] for answer in answers) / len(seconds)
    if len(encoder):
        figures["encoder_p50_ms"] = float(np.percentile(1000 * encoder, 50))
        figures["rest_p50_ms"] = float(np.percentile(1000 * (seconds - encoder), 50))
    figures["batch_per_second"] = batch * len(batches) / sum(answer["wall_seconds"] for answer in batches)
    figures["batch_cpu_ms"] = 1000 * sum(answer["cpu_seconds"] for answer in batches) / (batch * len(batches))
    figures["peak_bytes"] = float(batches[-1]["peak_bytes"])
    return figures


def least_scores(vectors: Halves, queries: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Return the cosine of the k-th nearest vector to each query, by brute force."""
    wanted = min(k, len(vectors))
    directions = unit_rows(queries)
    best = np.full((len(queries), wanted), -np.inf, np.float32)
    for start in range(0, len(vectors), BLOCK):
        scores = directions @ unit_rows(vectors[start : start + BLOCK].astype(np.float32)).T
        every = np.concatenate([best, scores], axis=1)
        best = -np.partition(-every, wanted - 1, axis=1)[:, :wanted]
    return np.asarray(best.min(axis=1), np.float32)


def recall(
    vectors: Halves, queries: NDArray[np.float32], least: NDArray[np.float32], found: Sequence[Sequence[str]], k: int
) -> float:
    """Return recall@k over row numbers. A hit that ties with the k-th nearest vector counts as found."""
    shares = []
    for direction, threshold, ids in zip(unit_rows(queries), least, found, strict=True):
        rows = [int(id_) for id_ in dict.fromkeys(ids)][:k]
        scores = unit_rows(vectors[rows].astype(np.float32)) @ direction
        shares.append(int((scores >= threshold - TIE).sum()) / min(k, len(vectors)))
    return float(np.mean(shares))
