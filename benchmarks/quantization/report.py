"""The tables and plots of `python -m benchmarks quantization`, with a line or mark for each index type."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from benchmarks.quantization import codes
from benchmarks.quantization.cells import BYTES, variants
from benchmarks.quantization.sentences import RECALL, TARGET, Least
from retriever.evaluate.rankings import MAIN
from retriever.evaluate.report.plots import colour, file_name, picture
from retriever.evaluate.report.tables import NOTHING, out, show, text_table
from retriever.evaluate.results import RAW, Row, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAIN_REFINE = 10
LEGEND = (
    "Recall is measured against exact search in the same space: it shows how much the compression loses. nDCG@10 "
    "shows which space is best for searching. Bytes are those of the whole file divided by its number of vectors. "
    "Re-scoring reads the vectors that the collection keeps anyway."
)
MARKS = {"PQ": "s", "RaBitQ": "o", "SQ": "^", codes.FLAT: "*", "HNSW, IVF": "x"}


def table_of(one: Row | Run) -> str:
    """Return the part of a title that names the data set, encoder and pooling. Each combination has its own tables."""
    return f"{one.dataset}; {one.encoder}, {one.pooling}"


def by_table(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(table_of(row), []).append(row)
    return found


def space_name(transform: str) -> str:
    return "raw" if transform == RAW else transform


def variant_name(metric: str) -> str:
    factor = re.search(r"_refine(\d+)$", metric)
    return f"best {factor[1]} × 10 re-scored" if factor else "codes alone"


def shown_refine(refine: Sequence[int]) -> list[int]:
    """Return the one refinement that tasks and plots show."""
    return [MAIN_REFINE if MAIN_REFINE in refine else refine[0]] if refine else []


def show_quantization(
    recall: Sequence[Row], tasks: Sequence[Row], least: Sequence[Least], refine: Sequence[int]
) -> None:
    for group, own in by_table(recall).items():
        for metric in variants(RECALL, refine):
            show(types_table(own, metric, f"recall@10 × 100 of {group}: {variant_name(metric)}, 95 % interval"))
        found = [one for one in least if table_of(one.run) == group]
        show(least_table(found, f"fewest bytes per vector with recall@10 of {TARGET / 100:g}, {group}"))
    for group, own in by_table(tasks).items():
        for metric in variants(MAIN, shown_refine(refine)):
            show(types_table(own, metric, f"nDCG@10 × 100 of {group}: {variant_name(metric)}, 95 % interval"))
    out.print(LEGEND, soft_wrap=True)


def types_table(rows: Sequence[Row], metric: str, title: str) -> Table:
    """Return a table with the smallest index first. The best space of each line is bold."""
    values = {(row.split, row.transform, row.metric): row.value for row in rows}
    spaces = list(dict.fromkeys(row.transform for row in rows))
    table = text_table(title, ["index type", "bytes", *map(space_name, spaces)])
    sizes = {name: min(values[name, s, BYTES] for s in spaces if (name, s, BYTES) in values) for name, _, _ in values}
    for name in sorted(sizes, key=lambda name: sizes[name]):
        own = {space: round(values[name, space, metric], 1) for space in spaces if (name, space, metric) in values}
        cells = []
        for space in spaces:
            low, high = (values.get((name, space, f"{metric}_{end}"), 0.0) for end in ("low", "high"))
            text = f"{own[space]:.1f} ({low:.1f}–{high:.1f})" if space in own else NOTHING
            cells.append(Text(text, style="bold" if own.get(space) == max(own.values()) else ""))
        table.add_row(Text(name), f"{sizes[name]:,.0f}", *cells)
    return table


def least_table(found: Sequence[Least], title: str) -> Table:
    spaces = list(dict.fromkeys(one.run.transform for one in found))
    table = text_table(title, ["codes", "candidates", *map(space_name, spaces)], 2 + len(spaces))
    for kind, metric in dict.fromkeys((one.kind, one.metric) for one in found):
        own = {o.run.transform: o for o in found if (o.kind, o.metric) == (kind, metric) and o.bytes is not None}
        cells = [f"{own[s].bytes:,.0f} ({own[s].index_type})" if s in own else NOTHING for s in spaces]
        table.add_row(kind, variant_name(metric), *cells)
    return table


def draw(recall: Sequence[Row], tasks: Sequence[Row], refine: Sequence[int], folder: Path) -> list[Path]:
    """Draw a plot of recall and a plot of tasks for each encoder and pooling, over bytes per vector.

    A mark is an index type: its shape is the kind of code, and it is hollow after a rotation. A line shows the best
    recall of all exhaustive types up to that size, or the nDCG@10 of exact search.
    """
    paths = []
    for name, rows, metric in (("recall", recall, RECALL), ("tasks", tasks, MAIN)):
        what = "recall@10 against exact search in each space" if name == "recall" else "nDCG@10"
        metrics = variants(metric, shown_refine(refine))
        for encoder, pooling in dict.fromkeys((row.encoder, row.pooling) for row in rows):
            own = [row for row in rows if (row.encoder, row.pooling) == (encoder, pooling)]
            sets = dict.fromkeys(row.dataset for row in own)
            panels = {f"{dataset}: {variant_name(one)}": (dataset, one) for dataset in sets for one in metrics}
            path = folder / f"quantization-{name}-{file_name(encoder)}-{pooling}.png"
            title = f"{what} × 100, {encoder}, {pooling}"
            with picture(path, title, list(panels), across=len(metrics)) as places:
                for axes, (dataset, one) in zip(places, panels.values(), strict=True):
                    _draw_panel(axes, [row for row in own if row.dataset == dataset], one)
            paths.append(path)
    return paths


def _draw_panel(axes: "Axes", rows: Sequence[Row], metric: str) -> None:
    values = {(row.transform, row.split, row.metric): row.value for row in rows}
    types = list(dict.fromkeys(row.split for row in rows))
    sizes = [values[key] for key in values if key[2] == BYTES]
    for number, space in enumerate(dict.fromkeys(row.transform for row in rows)):
        shade, label = colour(number), space_name(space)
        found = {t: (values[space, t, BYTES], values[space, t, metric]) for t in types if (space, t, metric) in values}
        for name, place in found.items():
            kind, rotated = codes.kind(name), codes.exhaustive(name) and "," in name
            named = f"{kind}, rotated" if rotated else kind
            inside = "white" if rotated else shade
            axes.plot(*place, MARKS.get(kind, "D"), color=shade, markerfacecolor=inside, clip_on=False, label=named)
        if metric.startswith(RECALL):
            points = sorted(place for name, place in found.items() if codes.exhaustive(name))
            best = [max(value for _, value in points[: n + 1]) for n in range(len(points))]
            axes.step([size for size, _ in points], best, where="post", color=shade, label=label)
        elif codes.FLAT in found:  # the best of many types would be above exact search by chance
            axes.plot([min(sizes), max(sizes)], [found[codes.FLAT][1]] * 2, color=shade, label=label)
    axes.set(xscale="log", xlabel="bytes per vector")
    ticks = [2**n for n in range(2, 14) if min(sizes) <= 2**n <= max(sizes)]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    if metric.startswith(RECALL):
        axes.set(ylim=(None, 100))
        axes.axhline(TARGET, color="#777777", linewidth=1, linestyle=":")
