"""What the plots share: colours that colour-blind people can tell apart, plain axes, files that are whole."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from retriever.evaluate.results import Summary
from retriever.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, black for what others published.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
DARK = (0, 2, 3, 5)
PUBLISHED_COLOUR = "#222222"
RESOLUTION = 150


def new_figure(width: float, height: float) -> "Figure":
    """A figure that needs no display and no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: "Figure", path: Path) -> Path:
    with atomic_write(path) as aside:
        figure.savefig(aside, dpi=RESOLUTION, format="png", facecolor="white")
    return path


def as_text(name: str) -> str:
    """A name from outside as a label: a dollar sign in it begins no formula."""
    return name.replace("$", r"\$")


def plain(axes: "Axes", grid: str = "x") -> None:
    """No frame, a faint grid along one axis."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis=grid, color="#dddddd", linewidth=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def bar_place(place: int, number: int, count: int) -> float:
    """Where the bar of one of `count` series stands in a group."""
    return place - 0.4 + 0.8 / max(count, 1) * (number + 0.5)


def grouped_bars(axes: "Axes", names: Sequence[str], series: Sequence[Sequence[Summary | None]], size: float) -> None:
    """Lying bars: a group a name, a bar a series, from top to bottom; None leaves a gap.

    A figure stands inside its bar, at the base, where no line that marks another value can cross it.
    """
    height = 0.8 / max(len(series), 1)
    longest = max([abs(value.mean) for values in series for value in values if value] or [1.0])
    for number, values in enumerate(series):
        for place, value in enumerate(values):
            if value is None:
                continue
            y = bar_place(place, number, len(series))
            spread = value.spread if value.seeds > 1 else None
            axes.barh(y, value.mean, height * 0.92, color=colour(number), xerr=spread, error_kw={"linewidth": 1.2})
            inside = abs(value.mean) > 0.25 * longest
            side = 1 if value.mean >= 0 else -1
            axes.annotate(
                str(value),
                (0 if inside else value.mean, y),
                xytext=(4 * side, 0),
                textcoords="offset points",
                va="center",
                ha="left" if side > 0 else "right",
                fontsize=size,
                color=("white" if number % len(COLOURS) in DARK else "black") if inside else "black",
            )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    plain(axes)
    axes.tick_params(axis="y", length=0)
