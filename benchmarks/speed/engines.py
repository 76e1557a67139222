"""Measure ingestion by threads and by Ray workers on one machine, in alternating runs.

Every run has its own process and makes a new collection with a fixed precision and no transform. The start and end of a
Ray cluster are timed separately, because they do not grow with the documents. Memory is the peak of a single process.
"""

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.options import Figures
from benchmarks.speed.process import MeasuredProcess, cpu_seconds_of, status_of
from benchmarks.speed.tasks import write_documents
from retriever import Corpus, Retriever
from retriever.evaluate.report.tables import text_table
from retriever.progress import Progress

ENGINES = ("local", "ray")
PROCESSES = {"driver": "driver", "worker": "a worker", "reader": "reader"}
EVERY_SECONDS = 0.5
KINDS = {b"driver": "driver", b"ray::Worker": "worker", b"ray::Reader": "reader"}
TIMES = ("seconds", "whole_seconds", "cpu_seconds")


@dataclass(frozen=True)
class EngineRun:
    documents: int
    engine: str
    seconds: float
    """Seconds from the first document to the published index."""
    whole_seconds: float
    """Seconds including the start and end of the cluster."""
    cpu_seconds: float
    """CPU seconds of all cores and processes, including the cluster's own processes."""
    peak_bytes: dict[str, int]

    @property
    def per_second(self) -> float:
        return self.documents / self.seconds


@dataclass
class EngineFigures(Figures):
    derived = ("ratios",)
    encoder: str
    precision: str
    runs: list[EngineRun] = field(default_factory=list)

    def ratio(self, documents: int, by: str = "seconds") -> float:
        """Return Ray's throughput divided by that of threads, by one of TIMES: the median over pairs of runs."""
        of = {name: [run for run in self.runs if (run.documents, run.engine) == (documents, name)] for name in ENGINES}
        pairs = zip(of["local"], of["ray"], strict=True)
        return float(np.median([getattr(local, by) / getattr(ray, by) for local, ray in pairs]))

    def sizes(self) -> list[int]:
        return sorted({run.documents for run in self.runs})

    @property
    def ratios(self) -> dict[str, dict[str, float]]:
        return {str(size): {by: self.ratio(size, by) for by in TIMES} for size in self.sizes()}

    def table(self) -> Table:
        heads = ["documents", "engine", "seconds", "per second", "with the cluster", "CPU", *PROCESSES.values()]
        table = text_table(f"Engines, {self.encoder}, {self.precision}", heads, 2)
        for run in self.runs:
            peaks = (run.peak_bytes.get(kind) for kind in PROCESSES)
            shown = (f"{peak / 1e6:,.0f} MB" if peak else "–" for peak in peaks)
            took = (f"{run.seconds:,.1f}", f"{run.per_second:,.0f}", f"{run.whole_seconds:,.1f}")
            table.add_row(f"{run.documents:,}", run.engine, *took, f"{run.cpu_seconds:,.1f}", *shown)
        for size in self.sizes():
            by_clock, whole, by_cpu = (f"{self.ratio(size, by):.3f}" for by in TIMES)
            table.add_row(f"{size:,}", "ray/local", by_clock, "", whole, by_cpu)
        return table


def measure(
    texts: Sequence[str], documents: Sequence[int], encoder: str, precision: str, rounds: int, progress: Progress
) -> EngineFigures:
    """Run both engines in turn at every size."""
    figures = EngineFigures(encoder, precision)
    plan = [(count, engine) for count in sorted(documents) for _ in range(rounds) for engine in ENGINES]
    with TemporaryDirectory() as name:
        for number, (count, engine) in enumerate(plan):
            progress(f"indexing {count:,} documents, {engine}", number, len(plan))
            source = Path(name) / f"{count}.jsonl"
            if not source.exists():
                write_documents(source, texts[:count])
            given = {"source": str(source), "folder": str(Path(name) / str(number)), "engine": engine}
            with MeasuredProcess(f"{engine}, {count:,} documents,") as worker:
                found = worker.request("index", encoder=encoder, precision=precision, **given)
            figures.runs.append(EngineRun(min(count, len(texts)), engine, **found))
        progress("indexing", len(plan), len(plan))
    return figures


class ProcessWatch:
    """Sample the peak memory and CPU time of this process and its descendants, including the cluster's."""

    def __init__(self) -> None:
        self.bytes = {"driver": 0}
        self._cpu: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all processes, Ray's own too. An ended process counts up to its last sample."""
        return sum(self._cpu.values())

    def __enter__(self) -> "ProcessWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                pid = int(path.parent.name)
                try:
                    if _below(pid, os.getpid()):
                        self._cpu[pid] = cpu_seconds_of(pid)
                        title = b"driver" if pid == os.getpid() else path.read_bytes()
                        if kind := next((kind for word, kind in KINDS.items() if title.startswith(word)), None):
                            self.bytes[kind] = max(1024 * status_of(pid, "VmHWM"), self.bytes.get(kind, 0))
                except (OSError, ValueError):  # the process has ended meanwhile
                    continue


def _below(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = status_of(pid, "PPid")
    return pid == ancestor


def index(source: str, folder: str, engine: str, **options: str) -> dict[str, Any]:
    times: list[float] = []

    def ingest(self: Retriever, *args: Any, **kwargs: Any) -> None:
        times.append(time.perf_counter())
        original(self, *args, **kwargs)
        times.append(time.perf_counter())

    original = Retriever._ingest
    Retriever._ingest = ingest  # type: ignore[method-assign]
    began = time.perf_counter()
    with ProcessWatch() as watch:
        built = Retriever.build(Corpus([source]), folder, transform="none", engine=engine, **options)  # type: ignore[arg-type]
    whole = time.perf_counter() - began
    assert built.report.texts_embedded
    built.close()
    took = {"seconds": times[1] - times[0], "whole_seconds": whole, "cpu_seconds": watch.cpu_seconds}
    return {**took, "peak_bytes": watch.bytes}
