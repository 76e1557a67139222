"""Ingestion by threads and by Ray's workers on one machine, taking turns.

Every run is a process (`benchmarks.scale.engine_process`) that makes a new collection with a fixed precision and no
transform. The start and end of a Ray cluster are timed separately, because they do not grow with the documents. Memory
is the peak of any one process of a kind.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.speed.process import environment
from retriever.errors import RetrieverError
from retriever.evaluate.report.tables import text_table
from retriever.progress import Progress, silent

ENGINES = ("local", "ray")
TIMES = ("seconds", "whole_seconds", "cpu_seconds")


@dataclass(frozen=True)
class EngineRun:
    documents: int
    engine: str
    seconds: float
    """From the first document to the published index."""
    whole_seconds: float
    """With the start and end of the cluster."""
    cpu_seconds: float
    """Of all cores and processes, the cluster's own included."""
    peak_bytes: dict[str, int]

    @property
    def per_second(self) -> float:
        return self.documents / self.seconds


@dataclass
class EngineFigures:
    encoder: str
    precision: str
    runs: list[EngineRun] = field(default_factory=list)

    def ratio(self, documents: int, by: str = "seconds") -> float:
        """Ray's throughput divided by the threads', by the clock, with the cluster's start and end, or by CPU time.

        The median over rounds, of pairs that ran one after the other.
        """
        of = {name: [run for run in self.runs if (run.documents, run.engine) == (documents, name)] for name in ENGINES}
        pairs = zip(of["local"], of["ray"], strict=True)
        return float(np.median([getattr(local, by) / getattr(ray, by) for local, ray in pairs]))

    def sizes(self) -> list[int]:
        return sorted({run.documents for run in self.runs})

    def to_json(self) -> dict[str, Any]:
        ratios = {str(size): {by: self.ratio(size, by) for by in TIMES} for size in self.sizes()}
        return {**asdict(self), "ratios": ratios}

    def table(self) -> Table:
        heads = [
            "documents",
            "engine",
            "seconds",
            "a second",
            "with the cluster",
            "CPU",
            "driver",
            "a worker",
            "reader",
        ]
        table = text_table(f"Engines, {self.encoder}, {self.precision}", heads, 2)
        for run in self.runs:
            peaks = (run.peak_bytes.get(kind) for kind in ("driver", "worker", "reader"))
            shown = (f"{peak / 1e6:,.0f} MB" if peak else "–" for peak in peaks)
            took = (f"{run.seconds:,.1f}", f"{run.per_second:,.0f}", f"{run.whole_seconds:,.1f}")
            table.add_row(f"{run.documents:,}", run.engine, *took, f"{run.cpu_seconds:,.1f}", *shown)
        for size in self.sizes():
            by_clock, whole, by_cpu = (f"{self.ratio(size, by):.3f}" for by in TIMES)
            table.add_row(f"{size:,}", "ray/local", by_clock, "", whole, by_cpu)
        return table


def measure(
    texts: Sequence[str],
    documents: Sequence[int],
    encoder: str,
    precision: str,
    *,
    rounds: int = 1,
    progress: Progress = silent,
) -> EngineFigures:
    """Run both engines at every size in turns."""
    figures = EngineFigures(encoder, precision)
    plan = [(count, engine) for count in sorted(documents) for _ in range(rounds) for engine in ENGINES]
    with TemporaryDirectory() as name:
        for number, (count, engine) in enumerate(plan):
            progress(f"indexing {count:,} documents, {engine}", number, len(plan))
            source = Path(name) / f"{count}.jsonl"
            if not source.exists():
                with source.open("w", encoding="utf-8") as file:
                    for place, text in enumerate(texts[:count]):
                        file.write(json.dumps({"id": str(place), "text": text}, ensure_ascii=False) + "\n")
            folder = Path(name) / f"{number}"
            figures.runs.append(_run(source, folder, encoder, precision, engine, min(count, len(texts))))
        progress("indexing", len(plan), len(plan))
    return figures


def _run(source: Path, folder: Path, encoder: str, precision: str, engine: str, count: int) -> EngineRun:
    command = [
        sys.executable,
        "-m",
        "benchmarks.scale.engine_process",
        str(source),
        str(folder),
        encoder,
        precision,
        engine,
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise RetrieverError(f"indexing {count:,} documents by {engine} failed: {lines[-1] if lines else ''}")
    return EngineRun(count, engine, **json.loads(done.stdout.splitlines()[-1]))
