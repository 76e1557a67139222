"""The plots of a card as coordinates, which the template draws as SVG.

Lengths are in units of the SVG view box, about one pixel each.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retriever.card.space import BINS, IsotropyReport
from retriever.terminal import cut

WIDTH = 380.0
TICKS = 5
RIDGE, RIDGE_GAP = 84.0, 24.0
SPECTRUM_HEIGHT = 190.0
SPECTRUM_LEFT = 46.0
LOWEST_POWER = -4
MOST_OF_A_SPECTRUM = 0.97
ROW, LETTER, LONGEST_LABEL = 18.0, 6.6, 24
MARGIN_LABEL = 36.0
"""Space at the right for the label of the margin's line."""
# Bins are drawn from the first to the last that has this share of the highest, and some more on both sides.
WORTH_DRAWING = 0.002
BINS_AROUND = 5


@dataclass(frozen=True)
class Curve:
    """A line or area with its name."""

    kind: str
    """`before` or `after`, which determines the colour."""
    name: str
    path: str
    y: float = 0.0
    """Where the name is drawn."""
    base: float = 0.0
    description: str = ""


@dataclass(frozen=True)
class Plot:
    """A frame with axes, and curves or rows. Ticks and marks are positions with labels."""

    kind: str
    title: str
    description: str
    """For screen readers."""
    width: float
    height: float
    left: float
    bottom: float
    x_ticks: Sequence[tuple[float, str]]
    x_name: str
    curves: Sequence[Curve] = ()
    y_ticks: Sequence[tuple[float, str]] = ()
    rows: Sequence["Row"] = ()
    marks: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True)
class Row:
    """One candidate: a dot with its confidence interval."""

    y: float
    label: str
    x: float
    low: float
    high: float
    chosen: bool
    description: str


def steps(least: float, most: float, count: int = TICKS) -> list[float]:
    """Return about `count` round numbers for the ticks of an axis from `least` to `most`."""
    span = most - least
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * count >= span * (1 - 1e-9))
    first, last = math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9)
    return [round(step * number, 10) for number in range(first, last + 1)]


def cosine_plot(space: IsotropyReport) -> Plot:
    """Plot the histogram of cosines between random passages: before the transform above, after it below."""
    shown = _series(space)
    drawn = [place for _, _, shape in shown for place in _worth_drawing(shape.cosines)]
    first, last = max(0, min(drawn) - BINS_AROUND), min(BINS, max(drawn) + 1 + BINS_AROUND)
    width = 2 / BINS

    def across(place: float) -> float:
        return 10 + (WIDTH - 20) * (place - first) / (last - first)

    curves = []
    for number, (kind, name, shape) in enumerate(shown):
        base = (number + 1) * (RIDGE + RIDGE_GAP)
        highest = max(shape.cosines)
        outline = "".join(
            f"V{base - RIDGE * shape.cosines[n] / highest:.1f}H{across(n + 1):.1f}" for n in range(first, last)
        )
        mean = "" if shape.mean_cosine is None else f", mean {shape.mean_cosine:.3f}"
        path = f"M{across(first):.1f} {base:.1f}{outline}V{base:.1f}Z"
        curves.append(Curve(kind, f"{name}{mean}", path, base - RIDGE - 8, base, f"{name}{mean}"))
    bottom = len(shown) * (RIDGE + RIDGE_GAP)
    return Plot(
        kind="ridges",
        title="Cosines of pairs",
        description="Histogram of the cosines of pairs of passages; " + "; ".join(one.description for one in curves),
        width=WIDTH,
        height=bottom + 34,
        left=10,
        bottom=bottom,
        x_ticks=[
            (round(across((value + 1) / width), 1), f"{value:g}")
            for value in steps(first * width - 1, last * width - 1)
        ],
        x_name="cosine of two random passages",
        curves=curves,
    )


def spectrum_plot(space: IsotropyReport) -> Plot:
    """Plot the singular values by rank, relative to the largest, on a logarithmic axis."""
    shown = _series(space)
    longest = max(len(shape.spectrum) for _, _, shape in shown)
    # Most encoders leave a few directions empty. An axis that included them would show nothing else.
    tails = [shape.spectrum[int(MOST_OF_A_SPECTRUM * (len(shape.spectrum) - 1))] for _, _, shape in shown]
    least = min((value for value in tails if value > 0), default=1.0)
    lowest = min(-1, max(LOWEST_POWER, math.floor(math.log10(least))))
    top = 22.0

    def across(rank: float) -> float:
        return SPECTRUM_LEFT + (WIDTH - SPECTRUM_LEFT - 12) * (rank - 1) / max(longest - 1, 1)

    def up(value: float) -> float:
        power = math.log10(value) if value > 0 else -math.inf
        return top + SPECTRUM_HEIGHT * min(1.0, power / lowest)

    curves = []
    for kind, name, shape in shown:
        path = "M" + "L".join(f"{across(n + 1):.1f} {up(value):.1f}" for n, value in enumerate(shape.spectrum))
        half = sum(value >= 0.5 for value in shape.spectrum)
        description = f"{name}: {half} of {len(shape.spectrum)} are at least half of the largest"
        curves.append(Curve(kind, name, path, description=description))
    return Plot(
        kind="lines",
        title="Singular values",
        description="Singular values by rank, relative to the largest; " + "; ".join(one.description for one in curves),
        width=WIDTH,
        height=top + SPECTRUM_HEIGHT + 34,
        left=SPECTRUM_LEFT,
        bottom=top + SPECTRUM_HEIGHT,
        x_ticks=[(round(across(max(1, rank)), 1), f"{max(1, rank):g}") for rank in steps(0, longest)],
        x_name="rank",
        y_ticks=[(round(up(10.0**power), 1), f"{10.0**power:g}") for power in range(0, lowest - 1, -1)],
        curves=curves,
    )


def candidates_plot(choice: Mapping[str, Any], name: str) -> Plot | None:
    """Plot the gain of each candidate over the baseline with 95 % intervals; None if there is nothing to compare."""
    rival = choice["rival"]
    others = [one for one in choice["candidates"] if one[name] != rival]
    base = next((one["agreement"] for one in choice["candidates"] if one[name] == rival), None)
    if not others or base is None:
        return None
    margin = choice["margin"] * base
    least = min(0.0, *(one["low"] for one in others))
    most = max(margin, 1e-3, *(one["high"] for one in others))
    labels = {one[name]: cut(str(one[name]), LONGEST_LABEL) for one in others}
    left = LETTER * max(map(len, labels.values())) + 14

    def across(value: float) -> float:
        return round(float(left + (WIDTH - left - MARGIN_LABEL) * (value - least) / (most - least)), 1)

    rows = [
        Row(
            y=24 + ROW * number,
            label=labels[one[name]],
            x=across(one["gain"]),
            low=across(one["low"]),
            high=across(one["high"]),
            chosen=one[name] == choice["chosen"],
            description=f"{one[name]}: {one['gain']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]",
        )
        for number, one in enumerate(others)
    ]
    bottom = 24 + ROW * len(rows) - 4
    marks = [(across(0), str(rival))]
    if choice["margin"]:
        marks.append((across(margin), f"+{choice['margin']:.0%}"))
    return Plot(
        kind="dots",
        title=f"Gain over {rival}",
        description=f"Gain in agreement over {rival} with 95 % intervals, best first; the table has the numbers",
        width=WIDTH,
        height=bottom + 34,
        left=round(left, 1),
        bottom=bottom,
        x_ticks=[(across(value), f"{value:+g}" if value else "0") for value in steps(least, most)],
        x_name="gain in agreement with words",
        rows=rows,
        marks=marks,
    )


def _series(space: IsotropyReport) -> list[tuple[str, str, Any]]:
    if space.before is space.after:
        return [("after", "raw vectors of the encoder", space.after)]
    return [("before", "before", space.before), ("after", "after", space.after)]


def _worth_drawing(shares: Sequence[float]) -> list[int]:
    highest = max(shares)
    return [place for place, share in enumerate(shares) if share > WORTH_DRAWING * highest]
