"""Tables of predictions and measurements, and a plot of their ratios."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from benchmarks.scale.planning import figures
from indexes.faiss.auto import format_bytes
from retriever.evaluate.report.plots import colour, new_figure, plain, save
from retriever.evaluate.results import Row
from retriever.plan.laws import FLAT

WITHIN = 0.2
RECALL = "recall"
# A rebuild with another index type changes the index alone, so fewer figures are compared.
METRICS = {
    "cpu_seconds": "CPU, s",
    "disk_bytes": "on disk",
    "sqlite_bytes": "SQLite",
    "index_bytes": "index",
    "peak_bytes": "peak memory",
    "search_bytes": "memory to search",
    "query_ms": "query, CPU ms",
}
OF_A_TYPE = ("cpu_seconds", "index_bytes", "peak_bytes", "search_bytes", "query_ms")


def plan_tables(rows: Sequence[Row]) -> list[Table]:
    """Make a table for the flat index, and one for other index types if there are any."""
    found = figures(rows)
    counts = sorted({count for count, _, _ in found})
    types = list(dict.fromkeys(name for _, name, _ in found))
    tables = []
    for title, names in (
        ("retriever index, flat", [FLAT]),
        ("retriever rebuild with", [n for n in types if n != FLAT]),
    ):
        table = Table(title=f"{title}: predicted, measured, ratio", box=None, padding=(0, 2, 0, 0))
        if len(names) > 1 or names != [FLAT]:
            table.add_column("type")
        table.add_column("")
        for count in counts:
            table.add_column(f"{count:,} documents", justify="right", no_wrap=True)
        for name in names:
            shown = METRICS if name == FLAT else {key: METRICS[key] for key in OF_A_TYPE} | {RECALL: "recall@10"}
            for metric, heading in shown.items():
                cells = [_cell(metric, found.get((count, name, metric))) for count in counts]
                table.add_row(*([] if names == [FLAT] else [name]), heading, *cells)
        if names:
            tables.append(table)
    return tables


def _cell(metric: str, both: tuple[float, float] | None) -> Text:
    if both is None:
        return Text("–")
    predicted, measured = both
    if metric == RECALL:
        return Text(f"{measured:.3f} (sample {predicted:.3f})")
    ratio = predicted / measured if measured else float("inf")
    both_shown = [format_bytes(value) if metric.endswith("bytes") else f"{value:,.3g}" for value in both]
    return Text(f"{both_shown[0]}, {both_shown[1]}, {ratio:.2f}", style="" if within(ratio) else "yellow")


def within(ratio: float) -> bool:
    """Return whether a prediction is within 20 % of the measurement."""
    return abs(ratio - 1) <= WITHIN


def draw(rows: Sequence[Row], path: Path) -> Path:
    """Plot ratios by size: one panel for the flat index, one for other index types."""
    found = figures(rows)
    types = list(dict.fromkeys(name for _, name, _ in found))
    figure = new_figure(12, 5)
    for axes, names in zip(figure.subplots(1, 2, sharey=True), ([FLAT], [n for n in types if n != FLAT]), strict=True):
        axes.axhspan(1 - WITHIN, 1 + WITHIN, color="#eeeeee", zorder=0)
        axes.axhline(1, color="#999999", linewidth=1)
        shown = METRICS if names == [FLAT] else {key: METRICS[key] for key in OF_A_TYPE}
        for number, (metric, heading) in enumerate(shown.items()):
            for place, name in enumerate(names):
                points = sorted(
                    (count, p / m) for (count, n, key), (p, m) in found.items() if (n, key) == (name, metric) and m
                )
                label = heading if names == [FLAT] else f"{name}: {heading}"
                style = ("-", "--", ":", "-.", "-")[place % 5]
                if points:
                    xs, ys = zip(*points, strict=True)
                    axes.plot(xs, ys, style, marker="o", color=colour(number), linewidth=1.6, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_yticks([0.5, 0.8, 1.0, 1.2, 2.0], ["0.5", "0.8", "1", "1.2", "2"])
        axes.minorticks_off()
        axes.set_xlabel("documents", fontsize=9)
        axes.set_title("retriever index, flat" if names == [FLAT] else "other types", loc="left", fontsize=11)
        plain(axes, "both")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7, frameon=False)
    figure.suptitle("Predicted / measured; grey: within 20 %", fontsize=13, x=0.01, ha="left")
    return save(figure, path)
