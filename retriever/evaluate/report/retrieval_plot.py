"""The figures of rankings as one picture for pasting: bars by system, a panel a data set, whiskers for 95 %."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from retriever.errors import Misuse
from retriever.evaluate.rankings import Comparison
from retriever.evaluate.report.grouping import (
    Series,
    all_series,
    colours_of,
    main_metrics,
    metric_name,
    place_names,
    place_of,
    series_of,
    system_of,
    without_shared_fit,
)
from retriever.evaluate.report.plots import as_text, new_figure, plain, save
from retriever.evaluate.report.report_tables import points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ACROSS = 3
BAR, GAP = 0.2, 0.14


def draw(comparisons: Sequence[Comparison], path: Path) -> Path:
    """Lying bars, a group a system, a colour an encoder; figures are from 0 to 1 and shown times 100."""
    from matplotlib.patches import Patch

    comparisons = without_shared_fit([one for one in comparisons if math.isfinite(one.mean)])
    if not comparisons:
        raise Misuse(f"{path} would be a picture of no figures; measure something first.")
    mains, colours = main_metrics(comparisons), colours_of(all_series(comparisons))
    names = place_names(mains)
    own = {
        place: [one for one in comparisons if place_of(one) == place and one.metric == metric]
        for place, metric in mains.items()
    }
    across = min(len(mains), MOST_ACROSS)
    down = -(-len(mains) // across)
    figure = new_figure(1.5 + 4.2 * across, 0.9 + down * (0.6 + max(map(_height, own.values()))))
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for axes, (place, metric) in zip(panels, mains.items(), strict=False):
        _panel(axes, own[place], colours)
        axes.set_title(as_text(f"{names[place]}, {metric_name(metric)} × 100"), loc="left", fontsize=10)
    for axes in panels[len(mains) :]:
        axes.axis("off")
    handles = [Patch(color=colour, label=as_text(str(series))) for series, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return save(figure, path)


def _panel(axes: "Axes", comparisons: Sequence[Comparison], colours: Mapping[Series, str]) -> None:
    y, ticks, labels = 0.0, [], []
    for system in dict.fromkeys(system_of(one.configuration) for one in comparisons):
        group = [one for one in comparisons if system_of(one.configuration) == system]
        group.sort(key=lambda one: list(colours).index(series_of(one.configuration)))
        ticks.append(y + BAR * (len(group) - 1) / 2)
        labels.append(as_text(system.replace(":", ":\n", 1)))
        for one in group:
            mean, low, high = (100 * value for value in (one.mean, one.low, one.high))
            end = high if math.isfinite(high) else mean
            axes.barh(y, mean, BAR * 0.9, color=colours[series_of(one.configuration)])
            axes.plot([low, high], [y, y], color="black", linewidth=1.1)
            axes.annotate(points(one.mean), (end, y), (4, 0), textcoords="offset points", va="center", fontsize=7)
            y += BAR
        y += GAP
    axes.set_yticks(ticks, labels, fontsize=8)
    axes.set_ylim(y - GAP, -BAR)
    axes.set_xlim(0, 1.15 * axes.dataLim.x1 or 1)
    plain(axes)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)


def _height(comparisons: Sequence[Comparison]) -> float:
    """Inches, for bars that are as high as the units they are drawn in."""
    systems = {system_of(one.configuration) for one in comparisons}
    return len(comparisons) * BAR + len(systems) * GAP + BAR
