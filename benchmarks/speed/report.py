"""The tables and the plot of `python -m benchmarks speed`: figures of each system, and their ratios to ours."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from rich.table import Table
from rich.text import Text

from benchmarks.speed.benchmark import COLD, ENCODING, INGEST_TEXT, INGEST_VECTORS, QUERY_TEXT, QUERY_VECTORS
from benchmarks.speed.encoding import SENTENCE_TRANSFORMERS
from benchmarks.speed.rivals import OURS
from retriever.evaluate.report.plots import by_documents, colour, picture
from retriever.evaluate.report.tables import NOTHING, text_table
from retriever.evaluate.results import Row
from retriever.terminal import size

Figures = dict[tuple[int, str, str, str], float]
"""Values by number of documents, task, system and metric."""

HEADS = {
    "recall_at_10": "recall@10",
    "p50_ms": "p50",
    "p95_ms": "p95",
    "p99_ms": "p99",
    "encoder_p50_ms": "its encoder alone",
    "rest_p50_ms": "the rest",
    "cpu_ms": "CPU per query",
    "batch_per_second": "batch, per s",
    "cpu_seconds": "CPU",
    "wall_seconds": "wall",
    "again_cpu_seconds": "CPU of a second run, nothing changed",
    "peak_bytes": "peak memory",
    "disk_bytes": "on disk",
    "cosine": "cosine with sentence-transformers",
}
TASKS = {
    ENCODING: "Encoding, alternating with sentence-transformers",
    INGEST_VECTORS: "Ingestion, vectors given",
    INGEST_TEXT: "Ingestion, each by its own encoder",
    QUERY_VECTORS: "Warm queries, vectors given: everything but the encoder",
    QUERY_TEXT: "Warm queries, text",
    COLD: "Cold search, from process start to printed hits, median",
}
COMPARED = ("p50_ms", "cpu_ms", "batch_per_second", "cpu_seconds", "peak_bytes", "disk_bytes")
GROWING = {
    "ingestion CPU, vectors given": (INGEST_VECTORS, "cpu_seconds"),
    "ingestion CPU, own encoder": (INGEST_TEXT, "cpu_seconds"),
    "query p50": (QUERY_VECTORS, "p50_ms"),
    "on disk": (INGEST_VECTORS, "disk_bytes"),
    "peak memory, ingest-vectors": (INGEST_VECTORS, "peak_bytes"),
    "peak memory, ingest-text": (INGEST_TEXT, "peak_bytes"),
}
# Panels of the plot: title, metric, unit, and the line style of each task.
PANELS = (
    ("ingestion, CPU s (dashed: own encoder)", "cpu_seconds", 1.0, {INGEST_VECTORS: "-", INGEST_TEXT: "--"}),
    ("warm query without the encoder, median ms", "p50_ms", 1.0, {QUERY_VECTORS: "-"}),
    ("on disk, MB", "disk_bytes", 1e6, {INGEST_VECTORS: "-"}),
    ("peak memory, MB (dotted: searching)", "peak_bytes", 1e6, {INGEST_VECTORS: "-", QUERY_VECTORS: ":"}),
)


def written(metric: str, value: float) -> str:
    """Format a figure with its unit. The name of the metric ends with the unit."""
    if metric.endswith("_bytes"):
        return size(value)
    if metric.endswith("_per_second"):
        return f"{value:,.0f}"
    if metric.endswith("_ms"):
        return f"{value:,.{1 if abs(value) >= 10 else 2}f} ms" if value < 1000 else written("_seconds", value / 1000)
    if metric.endswith("_seconds"):
        return f"{value:,.1f} s" if value >= 10 else f"{value:.2f} s"
    return f"{value:.4f}" if metric == "cosine" else f"{value:.3f}"


def figures(rows: Sequence[Row]) -> Figures:
    return {(int(row.dataset), row.split, row.transform, row.metric): row.value for row in rows}


def systems_of(found: Figures, task: str) -> list[str]:
    return list(dict.fromkeys(system for _, own, system, _ in found if own == task))


def speed_tables(rows: Sequence[Row]) -> Iterator[Table]:
    """Yield a table for each task at each size, then the growth from size to size."""
    found = figures(rows)
    counts = sorted({count for count, task, _, _ in found if task != ENCODING})
    for task in TASKS:
        for count in sorted({count for count, own, _, _ in found if own == task}):
            yield task_table(found, task, count)
    for smaller, larger in pairwise(counts):
        yield growth_table(found, smaller, larger)


def task_table(found: Figures, task: str, count: int) -> Table:
    """Return the figures of each system, with ratios in brackets. The ratio is to our figure, or for encoding to that
    of sentence-transformers."""
    base = SENTENCE_TRANSFORMERS if task == ENCODING else OURS
    compared = {*COMPARED, "wall_seconds"} if task in (COLD, ENCODING) else COMPARED
    shown = [metric for metric in HEADS if any(key[1::2] == (task, metric) for key in found)]
    table = text_table(f"{TASKS[task]}, {count:,} documents", ["", *(HEADS[metric] for metric in shown)])
    for system in dict.fromkeys(key[2] for key in found if key[:2] == (count, task)):
        cells = []
        for metric in shown:
            value, other = (found.get((count, task, name, metric)) for name in (system, base))
            text = NOTHING if value is None else written(metric, value)
            if value is not None and other and system != base and metric in compared:
                ratio = value / other
                text += f" ({ratio:.2f}×)" if ratio >= 0.1 else f" ({ratio:.2g}×)"
            cells.append(text)
        table.add_row(Text(system), *cells)
    return table


def growth_table(found: Figures, smaller: int, larger: int) -> Table:
    """Return the ratio of each figure at two sizes. For memory, return the difference."""

    def more(value: float) -> str:
        return f"{'+' if value >= 0 else '−'}{size(abs(value))}"

    vectors = [next(v for k, v in found.items() if k[::3] == (n, "vector_bytes")) for n in (smaller, larger)]
    title = f"From {smaller:,} to {larger:,} documents, {larger / smaller:.3g} times as many"
    title += f"; their vectors in single precision: {more(vectors[1] - vectors[0])}"
    table = text_table(title, ["", *GROWING])
    for system in systems_of(found, INGEST_VECTORS):
        cells = []
        for task, metric in GROWING.values():
            before, after = (found.get((count, task, system, metric)) for count in (smaller, larger))
            if not before or not after:
                cells.append(NOTHING)
            else:
                cells.append(more(after - before) if metric == "peak_bytes" else f"{after / before:.2f}×")
        table.add_row(Text(system), *cells)
    return table


def draw(rows: Sequence[Row], path: Path) -> Path:
    """Plot the figures by number of documents, with a line for each system."""
    found = figures(rows)
    counts = sorted({count for count, task, _, _ in found if task == INGEST_VECTORS})
    with picture(path, "Figures by number of documents", [title for title, *_ in PANELS]) as places:
        for axes, (_, metric, unit, tasks) in zip(places, PANELS, strict=True):
            for number, system in enumerate(systems_of(found, INGEST_VECTORS)):
                for task, style in tasks.items():
                    values = [found.get((count, task, system, metric), math.nan) / unit for count in counts]
                    label = system if style == "-" else ""
                    axes.plot(counts, values, color=colour(number), linestyle=style, marker="o", label=label)
            by_documents(axes, counts)
    return path
