"""The tables and plots of `python -m benchmarks quantization`, with a line or mark for each index type."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from benchmarks.quantization import codes
from benchmarks.quantization.cells import BYTES, variants
from benchmarks.quantization.sentences import ANY, RECALL, TARGET, Least
from retriever.evaluate.rankings import MAIN
from retriever.evaluate.report.plots import Line, LinePanel, colour, draw_lines, file_name
from retriever.evaluate.report.tables import NOTHING, out, show, text_table
from retriever.evaluate.results import RAW, Row

MAIN_REFINE = 10
LEGEND = (
    "Recall is measured against exact search in the same space: it shows what the codes lose, not which space is worth "
    "searching. nDCG@10 of a task shows that. Bytes are those of the whole file divided by its number of vectors. "
    "Re-scoring reads the vectors that the collection keeps anyway."
)
MARKS = {"PQ": "s", "RaBitQ": "o", "SQ": "^", codes.FLAT: "*", "HNSW, IVF": "x"}
OTHER_MARK = "D"
DARK = "#444444"


class Group(NamedTuple):
    """The data set, encoder and pooling that one table shows."""

    dataset: str
    encoder: str
    pooling: str

    def __str__(self) -> str:
        return f"{self.dataset}; {self.encoder}, {self.pooling}"


def groups(rows: Iterable[Row]) -> dict[Group, list[Row]]:
    found: dict[Group, list[Row]] = {}
    for row in rows:
        found.setdefault(Group(row.dataset, row.encoder, row.pooling), []).append(row)
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
    for group, own in groups(recall).items():
        for metric in variants(RECALL, refine):
            show(types_table(own, metric, f"recall@10 × 100 of {group}: {variant_name(metric)}, 95 % interval"))
        found = [one for one in least if Group(one.run.dataset, one.run.encoder, one.run.pooling) == group]
        show(least_table(found, f"fewest bytes per vector with recall@10 of {TARGET / 100:g}, {group}"))
        for sentence in headlines(found):
            out.print(sentence, soft_wrap=True)
    for group, own in groups(tasks).items():
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


def headlines(found: Sequence[Least]) -> list[str]:
    """For each transform and way to search, compare its fewest bytes with those of raw space."""
    of_any = {(one.run.transform, one.metric): one for one in found if one.kind == ANY}
    sentences = []
    for (transform, metric), one in of_any.items():
        raw = of_any.get((RAW, metric))
        if transform == RAW or raw is None:
            continue
        text = f"{variant_name(metric)}: an index in {transform} space reaches recall@10 of {TARGET / 100:g} "
        if one.bytes is None:
            text += "with none of the measured types"
        else:
            text += f"in {one.bytes:,.0f} bytes per vector ({one.index_type})"
        if raw.bytes is None:
            text += ", raw space with none"
        else:
            text += f", raw space needs {raw.bytes:,.0f} ({raw.index_type})"
            text += f": {one.bytes / raw.bytes:.2f} times as many" if one.bytes is not None else ""
        sentences.append(f"{text}.")
    return sentences


def draw(recall: Sequence[Row], tasks: Sequence[Row], refine: Sequence[int], folder: Path) -> list[Path]:
    """Draw a plot of recall and a plot of tasks for each encoder and pooling, over bytes per vector.

    A mark is an index type. Its shape is the kind of code, and it is hollow if the code comes after a rotation. A line
    of recall is the best of the exhaustive types up to that size. A line of nDCG@10 is exact search.
    """
    paths = []
    for name, rows, metric in (("recall", recall, RECALL), ("tasks", tasks, MAIN)):
        what = "recall@10 against exact search in each space" if name == "recall" else "nDCG@10"
        metrics = variants(metric, shown_refine(refine))
        for encoder, pooling in dict.fromkeys((row.encoder, row.pooling) for row in rows):
            own = groups(row for row in rows if (row.encoder, row.pooling) == (encoder, pooling))
            panels = [_panel(group.dataset, here, metric) for group, here in own.items() for metric in metrics]
            path = folder / f"quantization-{name}-{file_name(encoder)}-{pooling}.png"
            types = {row.split for here in own.values() for row in here}
            paths.append(draw_lines(path, f"{what} × 100, {encoder}, {pooling}", panels, len(metrics), _legend(types)))
    return paths


def _panel(dataset: str, rows: Sequence[Row], metric: str) -> LinePanel:
    values = {(row.transform, row.split, row.metric): row.value for row in rows}
    types = list(dict.fromkeys(row.split for row in rows))
    sizes = [values[key] for key in values if key[2] == BYTES]
    lines = []
    for number, space in enumerate(dict.fromkeys(row.transform for row in rows)):
        shade = colour(number)
        found = [(values[space, t, BYTES], values[space, t, metric], t) for t in types if (space, t, metric) in values]
        for size, value, name in found:
            inside = "white" if codes.exhaustive(name) and "," in name else shade
            lines.append(Line([size], [value], shade, options=_mark(codes.kind(name), inside)))
        exact = values.get((space, codes.FLAT, metric))
        if metric.startswith(RECALL):
            points = sorted((size, value) for size, value, name in found if codes.exhaustive(name))
            best = [max(value for _, value in points[: n + 1]) for n in range(len(points))]
            steps = [size for size, _ in points]
            lines.append(Line(steps, best, shade, space_name(space), {"drawstyle": "steps-post", "alpha": 0.8}))
        elif exact is not None:  # the best of many types would be above exact search by chance
            lines.append(Line([min(sizes), max(sizes)], [exact] * 2, shade, space_name(space), {"alpha": 0.8}))
    settings = {"xscale": "log", "xlabel": "bytes per vector"} | (
        {"ylim": (None, 100)} if metric.startswith(RECALL) else {}
    )
    ticks = [2**n for n in range(2, 14) if min(sizes) <= 2**n <= max(sizes)]
    level = TARGET if metric.startswith(RECALL) else None
    return LinePanel(f"{dataset}: {variant_name(metric)}", lines, settings, ticks, level)


def _mark(kind: str, inside: str) -> dict[str, object]:
    mark = MARKS.get(kind, OTHER_MARK)
    size = 9 if mark == "*" else 6
    return {"marker": mark, "markerfacecolor": inside, "markersize": size, "linestyle": "", "clip_on": False}


def _legend(types: set[str]) -> Iterator[Line]:
    kinds = {codes.kind(name) for name in types}
    for kind in (*(kind for kind in MARKS if kind in kinds), *(["other"] if kinds - set(MARKS) else [])):
        yield Line([], [], DARK, kind, _mark(kind, DARK))
    if any(codes.exhaustive(name) and "," in name for name in types):
        yield Line([], [], DARK, "after a rotation", _mark("RaBitQ", "white"))
