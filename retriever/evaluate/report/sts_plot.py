"""The STS figures as one picture: the average in both aggregations, and each set, with what was published marked."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from retriever.evaluate.data.sts_sets import DATASETS
from retriever.evaluate.report.plots import PUBLISHED_COLOUR, as_text, colour, grouped_bars, new_figure, save
from retriever.evaluate.results import AVERAGE, Configuration, Row, Summary, by_configuration, summarise
from retriever.evaluate.sts import ALL, WMEAN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Series = tuple[str, str, str]

# Of the published lines, those that tell the story: where bert-base starts, and where its flow brings it.
MARKED: dict[Series, tuple[str, Literal[":", "--"]]] = {
    ("first-last", "none", ""): ("raw", ":"),
    ("first-last", "bert-flow", "target"): ("BERT-flow, target", "--"),
}


def draw(rows: Sequence[Row], published: Sequence[Row], path: Path) -> Path:
    """Lying bars by transform, a colour for each encoder, pooling and text of the fit."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found = {metric: by_configuration(rows, metric) for metric in (ALL, WMEAN)}
    theirs = {metric: by_configuration(published, metric) for metric in (ALL, WMEAN)}
    transforms = list(dict.fromkeys(line.transform for line in found[ALL]))
    series = list(dict.fromkeys((line.encoder, line.pooling, line.fit) for line in found[ALL]))
    names = [name for name in DATASETS if any(name in line for line in found[ALL].values())]
    for metric in found:
        for line in found[metric].values():
            if AVERAGE not in line and set(names) <= set(line):
                line[AVERAGE] = summarise([sum(line[name].mean for name in names) / len(names)])

    tall = max(1.6, 0.25 + len(transforms) * (0.12 + 0.17 * len(series)))
    rows_below = -(-(len(names) + 1) // 4)
    figure = new_figure(13, 1.4 + tall * 1.3 + rows_below * (tall + 0.35))
    grid = figure.add_gridspec(1 + rows_below, 4, height_ratios=[1.3, *[1.0] * rows_below])
    whole = len(names) == len(DATASETS)
    average = "average of the seven sets" if whole else f"average of {len(names)} of the seven sets"

    def panel(place: object, title: str, metric: str, name: str, *, large: bool, labels: bool) -> None:
        axes: Axes = figure.add_subplot(place)  # type: ignore[call-overload]
        values = [[_value(found[metric], one, spec, name) for spec in transforms] for one in series]
        grouped_bars(axes, [_wrapped(spec) for spec in transforms], values, 8 if large else 7)
        if name != AVERAGE or whole:
            _mark(axes, theirs[metric], name)
        axes.set_title(title, loc="left", fontsize=11 if large else 10, fontweight="bold" if large else "normal")
        axes.tick_params(labelsize=9 if large else 8, labelleft=labels)

    panel(grid[0, :2], f"{average}: all", ALL, AVERAGE, large=True, labels=True)
    panel(grid[0, 2:], f"{average}: wmean", WMEAN, AVERAGE, large=True, labels=False)
    for number, name in enumerate(names):
        place = grid[1 + number // 4, number % 4]
        panel(place, f"{DATASETS[name].title}, wmean", WMEAN, name, large=False, labels=number % 4 == 0)

    legend = figure.add_subplot(grid[1 + len(names) // 4, len(names) % 4])
    legend.axis("off")
    handles = [Patch(color=colour(n), label=as_text(_series_label(one, series))) for n, one in enumerate(series)]
    lines = [
        Line2D([], [], color=PUBLISHED_COLOUR, linestyle=style, label=f"published: bert-base, {label}")
        for label, style in MARKED.values()
    ]
    legend.legend(handles=[*handles, *lines], loc="center left", frameon=False, fontsize=8)
    figure.suptitle("Agreement of cosine with people, Spearman × 100", fontsize=14, x=0.01, ha="left")
    return save(figure, path)


def _value(found: dict[Configuration, dict[str, Summary]], one: Series, transform: str, name: str) -> Summary | None:
    encoder, pooling, fit = one
    return found.get(Configuration(encoder, pooling, transform, fit), {}).get(name)


def _mark(axes: "Axes", theirs: dict[Configuration, dict[str, Summary]], name: str) -> None:
    for line, values in theirs.items():
        mark = MARKED.get((line.pooling, line.transform, line.fit))
        if mark and name in values:
            axes.axvline(values[name].mean, color=PUBLISHED_COLOUR, linestyle=mark[1], linewidth=1.2)


def _wrapped(spec: str) -> str:
    return spec.replace(":", "\n", 1)


def _series_label(one: Series, series: Sequence[Series]) -> str:
    """Encoder, and of pooling and fit what differs."""
    differing = [part for n, part in enumerate(one) if n == 0 or len({other[n] for other in series}) > 1]
    return ", ".join(differing)
