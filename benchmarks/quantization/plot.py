"""What few bytes keep, as pictures: recall@10 over bytes a vector, and nDCG@10 of tasks over bytes.

A mark is an index type, its shape the kind of code, hollow behind a rotation. A line of
recall is the best that a space reaches in so many bytes, among types that compare a query with every code; one of
nDCG@10 is what exact search has.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.quantization import codes
from benchmarks.quantization.benchmark import RECALL, TARGET
from benchmarks.quantization.index_cells import BYTES, variants
from benchmarks.quantization.tables import groups, shown_refine, space_name, variant_name
from retriever.evaluate.rankings import MAIN
from retriever.evaluate.report.isotropy_plots import file_name
from retriever.evaluate.report.plots import as_text, colour, new_figure, plain, save
from retriever.evaluate.results import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = {"PQ": "s", "RaBitQ": "o", "SQ": "^", codes.FLAT: "*", "HNSW, IVF": "x"}
OTHER_MARK = "D"


def draw(recall: Sequence[Row], tasks: Sequence[Row], refine: Sequence[int], folder: Path) -> list[Path]:
    """A picture of recall and one of tasks for each encoder and pooling."""
    paths = []
    for question, rows, metric in (("recall", recall, RECALL), ("tasks", tasks, MAIN)):
        metrics = list(variants(metric, shown_refine(refine)))
        for encoder, pooling in dict.fromkeys((row.encoder, row.pooling) for row in rows):
            own = [row for row in rows if (row.encoder, row.pooling) == (encoder, pooling)]
            path = folder / f"quantization-{question}-{file_name(encoder)}-{pooling}.png"
            paths.append(_draw(own, metrics, f"{encoder}, {pooling}", path))
    return paths


def _draw(rows: Sequence[Row], metrics: Sequence[str], title: str, path: Path) -> Path:
    """A row of panels a data set, a panel codes alone and one re-scored."""
    by_dataset = groups(rows)
    figure = new_figure(12, 0.9 + 4.2 * len(by_dataset))
    panels = figure.subplots(len(by_dataset), len(metrics), squeeze=False, sharey="row")
    shades = {space: colour(number) for number, space in enumerate(dict.fromkeys(row.transform for row in rows))}
    for (group, own), across in zip(by_dataset.items(), panels, strict=True):
        for axes, metric in zip(across, metrics, strict=True):
            _panel(axes, own, metric, shades)
            axes.set_title(as_text(f"{group.dataset}: {variant_name(metric)}"), loc="left", fontsize=11)
        across[0].set_ylabel(f"{metrics[0].replace('ndcg', 'nDCG')} × 100", fontsize=9)
    for axes in panels[-1]:
        axes.set_xlabel("bytes a vector", fontsize=9)
    what = "recall@10 against exact search in each space" if metrics[0] == RECALL else "nDCG@10"
    figure.suptitle(as_text(f"{what}, {title}"), fontsize=13, x=0.01, ha="left")
    _legend(figure, shades, {row.split for row in rows})
    return save(figure, path)


def _panel(axes: "Axes", rows: Sequence[Row], metric: str, shades: Mapping[str, str]) -> None:
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    values = {(row.transform, row.split, row.metric): row.value for row in rows}
    types = list(dict.fromkeys(row.split for row in rows))
    for space, shade in shades.items():
        found = [
            (values[space, name, BYTES], values[space, name, metric], name)
            for name in types
            if (space, name, metric) in values
        ]
        for size, value, name in found:
            mark = MARKS.get(codes.kind(name), OTHER_MARK)
            inside = "white" if _rotated(name) else shade
            big = 9 if mark == "*" else 6
            axes.plot(size, value, mark, color=shade, markerfacecolor=inside, markersize=big, clip_on=False)
        if metric.startswith(RECALL):
            steps = _best_so_far((size, value) for size, value, name in found if codes.exhaustive(name))
            axes.step(*zip(*steps, strict=True), where="post", color=shade, linewidth=1.6, alpha=0.8)
        elif (space, codes.FLAT, metric) in values:  # the best of many types would be the luckiest, above exact search
            axes.axhline(values[space, codes.FLAT, metric], color=shade, linewidth=1.4, alpha=0.8)
    if metric.startswith(RECALL):
        axes.axhline(TARGET, color="#777777", linewidth=1, linestyle=":")
        axes.set_ylim(top=100)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    plain(axes, "both")


def _rotated(index_type: str) -> bool:
    return codes.exhaustive(index_type) and "," in index_type


def _best_so_far(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """What is reached in so many bytes or fewer, from the fewest to the most."""
    steps: list[tuple[float, float]] = []
    for size, value in sorted(points):
        steps.append((size, max(value, steps[-1][1]) if steps else value))
    return steps


def _legend(figure: "Figure", shades: Mapping[str, str], types: set[str]) -> None:
    from matplotlib.lines import Line2D

    kinds, grey = {codes.kind(name) for name in types}, "#444444"
    marks = {name: mark for name, mark in MARKS.items() if name in kinds}
    if kinds - set(MARKS):
        marks["other"] = OTHER_MARK
    handles = [Line2D([], [], color=shade, label=as_text(space_name(space))) for space, shade in shades.items()]
    handles += [Line2D([], [], color=grey, marker=mark, linestyle="", label=name) for name, mark in marks.items()]
    if any(map(_rotated, types)):
        hollow = Line2D(
            [], [], color=grey, marker="o", markerfacecolor="white", linestyle="", label="behind a rotation"
        )
        handles.append(hollow)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
