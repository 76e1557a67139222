"""Tables of predictions and measurements, and a plot of their ratios."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from benchmarks.scale.planning import figures
from indexes.faiss.auto import format_bytes
from retriever.evaluate.report.plots import by_documents, colour, picture
from retriever.evaluate.report.tables import text_table
from retriever.evaluate.results import Row
from retriever.plan.laws import FLAT

WITHIN = 0.2
RECALL = "recall"
# For other index types only OF_A_TYPE is compared, because a rebuild changes only the index.
METRICS = {
    "cpu_seconds": "CPU, s",
    "disk_bytes": "on disk",
    "sqlite_bytes": "SQLite",
    "index_bytes": "index",
    "peak_bytes": "peak memory",
    "search_bytes": "memory to search",
    "query_ms": "query, CPU ms",
}
STYLES = ("-", "--", ":", "-.")
OF_A_TYPE = ("cpu_seconds", "index_bytes", "peak_bytes", "search_bytes", "query_ms")


def plan_tables(rows: Sequence[Row]) -> list[Table]:
    """Make a table for the flat index, and one for other index types if there are any."""
    found = figures(rows)
    counts = sorted({count for count, _, _ in found})
    tables = []
    for title, names in _parts(found).items():
        of_types = ["type"] if names != [FLAT] else []
        heads = [*of_types, "", *(f"{count:,} documents" for count in counts)]
        table = text_table(f"{title}: predicted, measured, ratio", heads, len(of_types) + 1)
        for name in names:
            shown = METRICS if name == FLAT else {key: METRICS[key] for key in OF_A_TYPE} | {RECALL: "recall@10"}
            for metric, heading in shown.items():
                cells = [_cell(metric, found.get((count, name, metric))) for count in counts]
                table.add_row(*([name] if of_types else []), heading, *cells)
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
    """Plot the ratios by size: one panel for the flat index, and one for other index types."""
    found = figures(rows)
    counts = sorted({count for count, _, _ in found})
    parts = _parts(found)
    with picture(path, "Predicted / measured; between the grey lines: within 20 %", list(parts)) as places:
        for axes, names in zip(places, parts.values(), strict=True):
            for level, style in ((1 - WITHIN, "-"), (1.0, ":"), (1 + WITHIN, "-")):
                axes.axhline(level, color="#999999", linestyle=style)
            for place, name in enumerate(names):
                for number, (metric, heading) in enumerate(METRICS.items()):
                    both = {n: found[n, name, metric] for n in counts if (n, name, metric) in found}
                    ratios = {n: predicted / measured for n, (predicted, measured) in both.items() if measured}
                    if name == FLAT or metric in OF_A_TYPE:
                        style = STYLES[place % len(STYLES)]
                        label = heading if name == FLAT else f"{name}: {heading}"
                        options: dict[str, Any] = {"linestyle": style, "marker": "o", "label": label}
                        axes.plot(list(ratios), list(ratios.values()), color=colour(number), **options)
            by_documents(axes, counts)
            axes.set(ylim=(0.4, 2.5))
    return path


def _parts(found: Iterable[tuple[int, str, str]]) -> dict[str, list[str]]:
    """Return the index types by title: flat for `retriever index`, and all others for `retriever rebuild`."""
    others = [name for name in dict.fromkeys(name for _, name, _ in found) if name != FLAT]
    return {"retriever index, flat": [FLAT], **({"retriever rebuild with": others} if others else {})}
