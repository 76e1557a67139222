"""How each system grows with the number of documents: four panels, both axes by powers of ten."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.speed.benchmark import INGEST_TEXT, INGEST_VECTORS, QUERY_VECTORS
from benchmarks.speed.tables import figures, systems_of
from retriever.evaluate.report.plots import colour, new_figure, plain, save
from retriever.evaluate.results import Row

MEGABYTE = 1e6
# Title, task, metric, and what a figure is divided by.
PANELS = (
    ("ingestion, CPU seconds (dashed: with each one's own encoder)", INGEST_VECTORS, "cpu_seconds", 1.0),
    ("warm query without the encoder, median ms", QUERY_VECTORS, "p50_ms", 1.0),
    ("on disk, MB", INGEST_VECTORS, "disk_bytes", MEGABYTE),
    ("peak memory of ingestion, MB (dotted: of searching)", INGEST_VECTORS, "peak_bytes", MEGABYTE),
)
BESIDE = {
    "cpu_seconds": (INGEST_TEXT, "--"),
    "peak_bytes": (QUERY_VECTORS, ":"),
}


def draw(rows: Sequence[Row], path: Path) -> Path:
    """A line a system."""
    found = figures(rows)
    counts = sorted({count for count, task, _, _ in found if task == INGEST_VECTORS})
    figure = new_figure(12, 8)
    for axes, (title, task, metric, unit) in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        for number, system in enumerate(systems_of(found, INGEST_VECTORS)):
            for own, style, label in ((task, "-", system), (*BESIDE.get(metric, ("", "")), None)):
                points = [
                    (n, found[n, own, system, metric] / unit) for n in counts if (n, own, system, metric) in found
                ]
                if points:
                    axes.plot(*np.array(points).T, style, marker="o", color=colour(number), linewidth=1.8, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        axes.minorticks_off()
        axes.set_title(title, loc="left", fontsize=11)
        axes.set_xlabel("documents", fontsize=9)
        plain(axes, "both")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    figure.suptitle("How it grows", fontsize=14, x=0.01, ha="left")
    return save(figure, path)
