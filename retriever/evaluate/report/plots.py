"""Draw a plot as a PNG file: a grid of panels with one legend. The panels of `draw_bars` have horizontal bars."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from retriever.errors import Misuse
from retriever.evaluate.report.names import COLOURS
from retriever.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESOLUTION = 150
Marks = Mapping[str, Sequence[Mapping[str, Any]]]  # vertical lines by panel, as options of matplotlib's axvline
BAR, GAP = 0.2, 0.14


@contextmanager
def picture(
    path: Path,
    title: str,
    panels: Sequence[str],
    *,
    across: int = 2,
    size: tuple[float, float] = (6.0, 3.7),
    around: tuple[float, float] = (0.0, 0.9),
    grid: Literal["both", "x"] = "both",
    columns: int = 5,
) -> Iterator[list["Axes"]]:
    """Yield the axes of each panel, named by its title. When the block ends, add the legend and write the file.

    Sizes are in inches. The legend has every label once. The figure needs no display and no global state.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(len(panels), across)
    down = -(-len(panels) // across)
    figure = Figure(figsize=(around[0] + size[0] * across, around[1] + size[1] * down), layout="constrained")
    FigureCanvasAgg(figure)
    places = list(figure.subplots(down, across, squeeze=False).flat)
    yield places[: len(panels)]
    handles: dict[str, Any] = {}
    for axes, name in zip(places, panels, strict=False):
        axes.set_title(as_text(name), loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis=grid, color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    for axes in places[len(panels) :]:
        axes.axis("off")
    legend: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 8}
    figure.legend(list(handles.values()), list(handles), **legend)
    if title:
        figure.suptitle(as_text(title), fontsize=13, x=0.01, ha="left")
    with atomic_write(path) as aside:
        figure.savefig(aside, dpi=RESOLUTION, format="png", facecolor="white")


def by_documents(axes: "Axes", counts: Sequence[int]) -> None:
    """Make both axes logarithmic, with ticks at these numbers of documents."""
    axes.set(xscale="log", yscale="log", xlabel="documents")
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.minorticks_off()


def as_text(name: str) -> str:
    """Escape a name for use as a label. Matplotlib would read a dollar sign as the start of a formula."""
    return name.replace("$", r"\$")


def file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in name)


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


class Bar(NamedTuple):
    """A bar of one series in one group. Its interval is drawn if low and high are finite."""

    group: str
    series: str
    value: float
    low: float = math.nan
    high: float = math.nan


def draw_bars(
    path: Path, title: str, panels: Mapping[str, Sequence[Bar]], colours: Mapping[str, str], marks: Marks, digits: int
) -> Path:
    """Draw the panels in rows of three, with a colour for each series. `marks` are e.g. published figures."""
    if not any(panels.values()):
        raise Misuse(f"there are no figures to plot in {path}; measure something first.")
    tall = max(len(bars) * BAR + len({bar.group for bar in bars}) * GAP for bars in panels.values()) + BAR
    layout: dict[str, Any] = {"across": 3, "size": (4.2, 0.6 + tall), "around": (1.5, 1.3), "columns": 3}
    with picture(path, title, list(panels), grid="x", **layout) as places:
        for axes, (name, bars) in zip(places, panels.items(), strict=True):
            for mark in marks.get(name, ()):
                axes.axvline(**{"color": "#222222", "linewidth": 1.2, **mark})
            _draw_panel(axes, bars, colours, digits)
    return path


def _draw_panel(axes: "Axes", bars: Sequence[Bar], colours: Mapping[str, str], digits: int) -> None:
    y, ticks = 0.0, {}
    for group in dict.fromkeys(bar.group for bar in bars):
        own = sorted((bar for bar in bars if bar.group == group), key=lambda bar: list(colours).index(bar.series))
        ticks[y + BAR * (len(own) - 1) / 2] = as_text(group.replace(":", ":\n", 1))
        for bar in own:
            axes.barh(y, bar.value, BAR * 0.9, color=colours[bar.series], label=as_text(bar.series))
            axes.plot([bar.low, bar.high], [y, y], color="black", linewidth=1.1)
            side, align = (-1, "right") if bar.value < 0 else (1, "left")
            end = max((side * end for end in bar[2:] if math.isfinite(end)), default=0.0) * side
            place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "ha": align}
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.3, "alpha": 0.8}
            axes.annotate(f"{bar.value:.{digits}f}", (end, y), (4 * side, 0), fontsize=7, bbox=box, **place)
            y += BAR
        y += GAP
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
    axes.set_ylim(y - GAP, -BAR)
    left, right = min(axes.dataLim.x0, 0.0), max(axes.dataLim.x1, 0.0)
    axes.set_xlim(left - 0.15 * (right - left) * (left < 0), (right + 0.15 * (right - left) * (right > 0)) or 1)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
