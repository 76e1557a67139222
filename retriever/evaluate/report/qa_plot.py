"""The question answering figures as one picture: a panel a set, with what words alone reach and what was published."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from retriever.evaluate.qa import LEXICAL, METRICS, comparisons
from retriever.evaluate.report.plots import (
    COLOURS,
    PUBLISHED_COLOUR,
    as_text,
    bar_place,
    colour,
    grouped_bars,
    new_figure,
    save,
)
from retriever.evaluate.results import Configuration, Row, by_configuration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

Series = tuple[str, str, str]

TITLES = {"qnli": "QNLI dev: area under ROC × 100", "wikiqa": "WikiQA test: MAP × 100"}
BASELINE_COLOUR = COLOURS[5]
BASELINE_STYLES: tuple[Literal[":", "--", "-."], ...] = (":", "--", "-.")
PUBLISHED_STYLES: dict[tuple[str, str], tuple[str, Literal[":", "--"]]] = {
    ("none", ""): ("raw", ":"),
    ("bert-flow", "target"): ("BERT-flow, target", "--"),
}


def draw(rows: Sequence[Row], published: Sequence[Row], path: Path) -> Path:
    """Lying bars by transform with their 95 % intervals, a colour for each encoder, pooling and text of the fit."""
    from matplotlib.patches import Patch

    ours = [row for row in rows if row.encoder != LEXICAL and not row.published]
    names = [name for name in METRICS if any(row.dataset == name for row in ours)]
    transforms = list(dict.fromkeys(row.transform for row in ours))
    series: list[Series] = list(dict.fromkeys((row.encoder, row.pooling, row.fit) for row in ours))
    figure = new_figure(6.5 * max(len(names), 1.4), 2.3 + max(1.8, len(transforms) * (0.14 + 0.2 * len(series))))
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        metric = METRICS[name][0]
        found = by_configuration([row for row in ours if row.dataset == name], metric)
        lines = [[Configuration(one[0], one[1], spec, one[2]) for spec in transforms] for one in series]
        values = [[found.get(line, {}).get(name) for line in own] for own in lines]
        grouped_bars(axes, [spec.replace(":", "\n", 1) for spec in transforms], values, 8)
        _intervals(axes, rows, name, lines)
        told = _baselines(axes, rows, name)
        told += _published(axes, [row for row in published if row.dataset == name])
        axes.legend(handles=told, loc="upper left", bbox_to_anchor=(0, -0.08), frameon=False, fontsize=8)
        axes.set_title(TITLES[name], loc="left", fontsize=11)
    differing = [n for n in range(3) if n == 0 or len({one[n] for one in series}) > 1]
    labels = [", ".join(filter(None, (one[n] for n in differing))) for one in series]
    handles = [Patch(color=colour(n), label=as_text(label)) for n, label in enumerate(labels)]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.suptitle("Does cosine find the sentence that answers?", fontsize=13, x=0.01, ha="left")
    return save(figure, path)


def _intervals(axes: "Axes", rows: Sequence[Row], name: str, lines: Sequence[Sequence[Configuration]]) -> None:
    found = {
        one.configuration: one for one in comparisons(rows) if (one.dataset, one.metric) == (name, METRICS[name][0])
    }
    for number, own in enumerate(lines):
        for place, line in enumerate(own):
            if one := found.get(line):
                y = bar_place(place, number, len(lines))
                axes.plot([100 * one.low, 100 * one.high], [y, y], color="black", linewidth=1.2, solid_capstyle="butt")


def _baselines(axes: "Axes", rows: Sequence[Row], name: str) -> "list[Line2D]":
    metric = METRICS[name][0]
    own = [row for row in rows if (row.encoder, row.dataset, row.metric) == (LEXICAL, name, metric)]
    return [
        axes.axvline(row.value, color=BASELINE_COLOUR, linestyle=style, linewidth=1.4, label=_label(row))
        for row, style in zip(own, BASELINE_STYLES, strict=True)
    ]


def _label(row: Row) -> str:
    return f"words alone: {row.transform} {row.value:.1f}"


def _published(axes: "Axes", rows: Sequence[Row]) -> "list[Line2D]":
    marks = []
    for row in rows:
        if mark := PUBLISHED_STYLES.get((row.transform, row.fit)):
            label = f"published: bert-base tuned on NLI, {mark[0]} {row.value:.1f}"
            marks.append(axes.axvline(row.value, color=PUBLISHED_COLOUR, linestyle=mark[1], linewidth=1.2, label=label))
    return marks
