"""The plots of the report as places on paper; the template draws them as SVG.

Lengths are in units of an SVG view box, which the page shows at about one pixel each.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from retriever.card.charts import steps
from retriever.evaluate.rankings import Comparison
from retriever.evaluate.report.grouping import Place, Series, metric_name, series_of, system_of
from retriever.evaluate.report.report_queries import Pair
from retriever.evaluate.report.report_tables import points
from retriever.terminal import cut

WIDTH = 360.0
BAR, LETTER, LINE_HEIGHT, GAP = 15.0, 7.2, 13.0, 9.0
TOP, AXIS_ROOM, FIGURE_ROOM = 4.0, 20.0, 38.0
LONGEST_LABEL = 16
LABEL_LINES = 3
# An axis where every figure is 0 has a length all the same.
LEAST = 0.01

SCATTER_SIDE, SCATTER_LEFT, SCATTER_BELOW, SCATTER_AROUND = 280.0, 42.0, 40.0, 12.0
SMALLEST_DOT, LARGEST_DOT = 3.0, 13.0
QUERY_LENGTH = 80


@dataclass(frozen=True)
class Bar:
    y: float
    length: float
    low: float
    high: float
    colour: str
    figure: str
    told: str


@dataclass(frozen=True)
class Label:
    y: float
    lines: Sequence[str]
    whole: str


@dataclass(frozen=True)
class Bars:
    """Lying bars of one data set: a group a system, a bar an encoder."""

    title: str
    metric: str
    left: float
    height: float
    ticks: Sequence[tuple[float, str]]
    labels: Sequence[Label] = field(default_factory=list)
    bars: Sequence[Bar] = field(default_factory=list)
    width: float = WIDTH
    bar_height: float = BAR - 3
    line_height: float = LINE_HEIGHT
    top: float = TOP
    axis: float = AXIS_ROOM


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    radius: float
    told: str


@dataclass(frozen=True)
class Scatter:
    """Every query at its figure before (across) and after (up); queries at the same place share a dot."""

    pair: Pair
    gained: Sequence[Dot]
    lost: Sequence[Dot]
    same: Sequence[Dot]
    ticks: Sequence[tuple[float, str]]
    side: float = SCATTER_SIDE
    left: float = SCATTER_LEFT
    below: float = SCATTER_BELOW
    around: float = SCATTER_AROUND


def bars(
    place: Place, name: str, metric: str, comparisons: Sequence[Comparison], colours: Mapping[Series, str]
) -> Bars:
    """The main figures of one data set, systems in the order they are given, encoders in the order of their colours."""
    own = [one for one in comparisons if (one.dataset, one.split) == place and one.metric == metric]
    systems = list(dict.fromkeys(system_of(one.configuration) for one in own))
    wrapped = {system: wrap(system) for system in systems}
    left = LETTER * max(len(line) for lines in wrapped.values() for line in lines) + 12
    longest = max(value for one in own for value in (one.mean, one.high, LEAST) if math.isfinite(value))
    ticks = steps(0.0, longest)

    def across(value: float) -> float:
        return round(left + (WIDTH - left - FIGURE_ROOM) * max(value, 0.0) / longest, 1)

    y, labels, drawn = TOP, [], []
    for system in systems:
        group = [one for one in own if system_of(one.configuration) == system]
        group.sort(key=lambda one: list(colours).index(series_of(one.configuration)))
        tall = max(len(group) * BAR, len(wrapped[system]) * LINE_HEIGHT)
        labels.append(Label(y + tall / 2, wrapped[system], system))
        start = y + (tall - len(group) * BAR) / 2
        for number, one in enumerate(group):
            series = series_of(one.configuration)
            known = math.isfinite(one.low) and math.isfinite(one.high)
            low, high = (one.low, one.high) if known else (one.mean, one.mean)
            interval = f" (95 % interval {points(low)} to {points(high)})" if known else ""
            drawn.append(
                Bar(
                    y=round(start + number * BAR, 1),
                    length=round(across(one.mean) - left, 1),
                    low=across(low),
                    high=across(high),
                    colour=colours[series],
                    figure=points(one.mean),
                    told=f"{series}, {system}: {points(one.mean)}{interval}",
                )
            )
        y += tall + GAP
    return Bars(
        title=name,
        metric=metric_name(metric),
        left=round(left, 1),
        height=round(y, 1),
        ticks=[(across(value), f"{100 * value:g}") for value in ticks],
        labels=labels,
        bars=drawn,
    )


def scatter(pair: Pair, grid: int, names: int) -> Scatter:
    """Figures are rounded to a grid of so many steps a side; a dot names so many of its queries."""
    places: dict[tuple[int, int, int], list[str]] = {}
    for query, (before, after) in pair.figures.items():
        sign = pair.direction(query)
        places.setdefault((round(before * grid), round(after * grid), sign), []).append(query)
    dots: dict[int, list[Dot]] = {1: [], -1: [], 0: []}
    for (x, y, sign), queries in sorted(places.items(), key=lambda item: -len(item[1])):
        radius = min(SMALLEST_DOT * len(queries) ** 0.35, LARGEST_DOT)
        told = _told(pair, queries, names)
        dots[sign].append(Dot(_along(x / grid), _up(y / grid), round(radius, 1), told))
    ticks = [(round(value * SCATTER_SIDE, 1), f"{100 * value:g}") for value in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return Scatter(pair, dots[1], dots[-1], dots[0], ticks)


def wrap(label: str) -> list[str]:
    """A spec such as whiten:dimension=256 on lines that are short, cut where they would be too many."""
    pieces = label.replace(":", ":\0").replace(",", ",\0").replace(" ", " \0").split("\0")
    lines = [""]
    for piece in pieces:
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > LONGEST_LABEL:
            lines.append("")
        lines[-1] += piece
    shown = [cut(line.strip(), LONGEST_LABEL) for line in lines]
    return shown if len(shown) <= LABEL_LINES else [*shown[: LABEL_LINES - 1], cut(shown[LABEL_LINES - 1] + " …", 16)]


def _told(pair: Pair, queries: Sequence[str], names: int) -> str:
    before, after = pair.figures[queries[0]]
    shown = [cut(pair.text(query), QUERY_LENGTH) for query in queries[:names]]
    if len(queries) > len(shown):
        shown.append(f"{len(queries)} queries" if not shown else f"and {len(queries) - len(shown)} more")
    return f"{points(before)} → {points(after)}: {'; '.join(shown)}"


def _along(value: float) -> float:
    return round(SCATTER_LEFT + value * SCATTER_SIDE, 1)


def _up(value: float) -> float:
    return round(SCATTER_AROUND + (1 - value) * SCATTER_SIDE, 1)
