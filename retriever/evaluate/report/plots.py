"""Draw plots as PNG files: panels of horizontal bars, and panels of lines.

A panel is a plain description. `draw_bars` and `draw_lines` lay the panels out, draw them and write the file.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retriever.errors import Misuse
from retriever.evaluate.report.names import COLOURS
from retriever.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PUBLISHED_COLOUR = "#222222"
GOLD_COLOUR = COLOURS[5]
RESOLUTION = 150
BAR, GAP = 0.2, 0.14


def _grid(
    panels: int, across: int, panel: tuple[float, float], around: tuple[float, float]
) -> tuple["Figure", list["Axes"]]:
    """Return a figure with a place for each panel. It needs no display and no global state. Sizes are in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(panels, across)
    down = -(-panels // across)
    size = around[0] + panel[0] * across, around[1] + panel[1] * down
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    places = list(figure.subplots(down, across, squeeze=False).flat)
    for axes in places[panels:]:
        axes.axis("off")
    return figure, places[:panels]


def _finish(figure: "Figure", path: Path, title: str, handles: list[Any], columns: int) -> Path:
    """Add the legend and the title, and write the file."""
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
    if title:
        figure.suptitle(as_text(title), fontsize=13, x=0.01, ha="left")
    with atomic_write(path) as aside:
        figure.savefig(aside, dpi=RESOLUTION, format="png", facecolor="white")
    return path


def as_text(name: str) -> str:
    """Escape a name for use as a label. Matplotlib would read a dollar sign as the start of a formula."""
    return name.replace("$", r"\$")


def file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in name)


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def plain(axes: "Axes", grid: str = "x") -> None:
    """Remove the top and right side of the frame and draw a faint grid."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis=grid, color="#dddddd", linewidth=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


@dataclass(frozen=True)
class Bar:
    """A bar of one series in one group. Its interval is drawn if low and high are finite."""

    group: str
    series: str
    value: float
    low: float = math.nan
    high: float = math.nan
    text: str = ""


@dataclass(frozen=True)
class Mark:
    """A vertical line at a value, e.g. a published figure."""

    value: float
    label: str
    style: Any = "-"
    colour: str = PUBLISHED_COLOUR


@dataclass(frozen=True)
class BarPanel:
    """Horizontal bars with a group for each system and a colour for each series."""

    title: str
    bars: Sequence[Bar]
    marks: Sequence[Mark] = ()

    def groups(self, series: Sequence[str]) -> dict[str, list[Bar]]:
        """Return the bars by group. The bars of a group are in the order of the series."""
        found: dict[str, list[Bar]] = {}
        for bar in self.bars:
            found.setdefault(bar.group, []).append(bar)
        return {name: sorted(own, key=lambda bar: series.index(bar.series)) for name, own in found.items()}


def draw_bars(path: Path, title: str, panels: Sequence[BarPanel], colours: Mapping[str, str]) -> Path:
    """Draw the panels in rows of three, with one legend for the series and the marks."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if not any(panel.bars for panel in panels):
        raise Misuse(f"there are no figures to plot in {path}; measure something first.")
    tall = max(len(panel.bars) * BAR + len(panel.groups(list(colours))) * GAP for panel in panels) + BAR
    figure, places = _grid(len(panels), 3, (4.2, 0.6 + tall), (1.5, 1.3))
    for axes, panel in zip(places, panels, strict=True):
        _draw_bars(axes, panel, colours)
    marks = dict.fromkeys((mark.label, mark.style, mark.colour) for panel in panels for mark in panel.marks)
    handles: list[Any] = [Patch(color=shade, label=as_text(name)) for name, shade in colours.items()]
    handles += [Line2D([], [], color=shade, linestyle=style, label=label) for label, style, shade in marks]
    return _finish(figure, path, title, handles, min(len(panels), 3))


def _draw_bars(axes: "Axes", panel: BarPanel, colours: Mapping[str, str]) -> None:
    y, ticks, labels = 0.0, [], []
    for name, own in panel.groups(list(colours)).items():
        ticks.append(y + BAR * (len(own) - 1) / 2)
        labels.append(as_text(name.replace(":", ":\n", 1)))
        for bar in own:
            axes.barh(y, bar.value, BAR * 0.9, color=colours[bar.series])
            axes.plot([bar.low, bar.high], [y, y], color="black", linewidth=1.1)
            side = -1 if bar.value < 0 else 1
            ends = [end for end in (bar.value, bar.low, bar.high) if math.isfinite(end)]
            axes.annotate(
                bar.text or f"{bar.value:.1f}",
                (min(ends) if side < 0 else max(ends), y),
                (4 * side, 0),
                textcoords="offset points",
                va="center",
                ha="right" if side < 0 else "left",
                fontsize=7,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3, "alpha": 0.8},
            )
            y += BAR
        y += GAP
    for mark in panel.marks:
        axes.axvline(mark.value, color=mark.colour, linestyle=mark.style, linewidth=1.2)
    axes.set_yticks(ticks, labels, fontsize=8)
    axes.set_ylim(y - GAP, -BAR)
    left, right = min(axes.dataLim.x0, 0.0), max(axes.dataLim.x1, 0.0)
    axes.set_xlim(left - 0.15 * (right - left) * (left < 0), (right + 0.15 * (right - left) * (right > 0)) or 1)
    axes.set_title(as_text(panel.title), loc="left", fontsize=10)
    plain(axes)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)


@dataclass(frozen=True)
class Line:
    """A line or, without a line style, markers. `options` are passed to matplotlib's plot."""

    x: Sequence[float]
    y: Sequence[float]
    colour: str
    label: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LinePanel:
    """Lines over a shared x axis. `settings` are passed to matplotlib's `Axes.set`, e.g. xscale or ylim."""

    title: str
    lines: Sequence[Line]
    settings: Mapping[str, Any] = field(default_factory=dict)
    ticks: Sequence[float] = ()
    level: float | None = None
    """The y value at which a dotted horizontal line is drawn."""


def draw_lines(
    path: Path, title: str, panels: Sequence[LinePanel], across: int = 2, legend: Iterable[Line] = ()
) -> Path:
    """Draw the panels in rows of `across`, with one legend.

    The legend shows the given lines and all lines of the panels that have a label.
    """
    from matplotlib.lines import Line2D

    figure, places = _grid(len(panels), across, (6, 3.7), (0, 0.9))
    for axes, panel in zip(places, panels, strict=True):
        for line in panel.lines:
            axes.plot(line.x, line.y, color=line.colour, **{"linewidth": 1.6, **line.options})
        if panel.level is not None:
            axes.axhline(panel.level, color="#777777", linewidth=1, linestyle=":")
        axes.set(**panel.settings)
        if panel.ticks:
            axes.set_xticks(panel.ticks, [f"{tick:,.0f}" for tick in panel.ticks])
            axes.minorticks_off()
        axes.set_title(as_text(panel.title), loc="left", fontsize=11)
        plain(axes, "both")
    shown = {line.label: line for line in (*legend, *(line for panel in panels for line in panel.lines)) if line.label}
    handles = [Line2D([], [], color=line.colour, label=as_text(label), **line.options) for label, line in shown.items()]
    return _finish(figure, path, title, handles, 5)
