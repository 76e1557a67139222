"""The plots of a card. Each is computed as coordinates, which the template draws as SVG.

Lengths are in units of the SVG view box, about one pixel each.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retriever.card.space import BINS, Isotropy, IsotropyReport
from retriever.terminal import cut

WIDTH = 380.0
TICKS = 5
BELOW = 34.0
"""Space for the ticks and the name of the x axis."""
RIDGE, RIDGE_GAP = 84.0, 24.0
SPECTRUM_TOP, SPECTRUM_LEFT, SPECTRUM_HEIGHT = 22.0, 46.0, 190.0
LOWEST_POWER = -4
MOST_OF_A_SPECTRUM = 0.97
ROW, LETTER, LONGEST_LABEL = 18.0, 6.6, 24
MARGIN_LABEL = 36.0
"""Space at the right for labels of lines."""
# The range of bins that are drawn: all with more than this share of the highest bin, and BINS_AROUND on both sides.
WORTH_DRAWING = 0.002
BINS_AROUND = 5


@dataclass(frozen=True)
class Plot:
    """A plot with axes, and with curves or rows. The template plots.html draws it.

    Ticks and marks are pairs of a position and a label.
    """

    kind: str
    title: str
    description: str
    """The text for screen readers."""
    left: float
    bottom: float
    x_ticks: Sequence[tuple[float, str]]
    x_name: str
    curves: Sequence[Mapping[str, Any]] = ()
    y_ticks: Sequence[tuple[float, str]] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    marks: Sequence[tuple[float, str]] = ()
    width: float = WIDTH

    @property
    def height(self) -> float:
        return self.bottom + BELOW


def steps(least: float, most: float, count: int = TICKS) -> list[float]:
    """Return about `count` round numbers for the ticks of an axis from `least` to `most`."""
    span = most - least
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * count >= span * (1 - 1e-9))
    first, last = math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9)
    return [round(step * number, 10) for number in range(first, last + 1)]


def cosine_plot(space: IsotropyReport) -> Plot:
    """Plot two histograms of the cosines of random passages: before the transform (top) and after it (bottom)."""
    shown = _series(space)
    drawn = [
        place
        for _, _, shape in shown
        for place, share in enumerate(shape.cosines)
        if share > WORTH_DRAWING * max(shape.cosines)
    ]
    first, last = max(0, min(drawn) - BINS_AROUND), min(BINS, max(drawn) + 1 + BINS_AROUND)
    width = 2 / BINS

    def across(place: float) -> float:
        return round(10 + (WIDTH - 20) * (place - first) / (last - first), 1)

    curves = []
    for number, (kind, name, shape) in enumerate(shown, 1):
        base = number * (RIDGE + RIDGE_GAP)
        heights = [RIDGE * share / max(shape.cosines) for share in shape.cosines]
        outline = "".join(f"V{base - heights[n]:.1f}H{across(n + 1)}" for n in range(first, last))
        text = name if shape.mean_cosine is None else f"{name}, mean {shape.mean_cosine:.3f}"
        path = f"M{across(first)} {base}{outline}V{base}Z"
        curves.append(
            {"kind": kind, "name": text, "path": path, "y": base - RIDGE - 8, "base": base, "description": text}
        )
    return Plot(
        kind="ridges",
        title="Cosines of pairs",
        description=f"Histogram of the cosines of pairs of passages; {_descriptions(curves)}",
        left=10,
        bottom=len(shown) * (RIDGE + RIDGE_GAP),
        x_ticks=[(across((value + 1) / width), f"{value:g}") for value in steps(first * width - 1, last * width - 1)],
        x_name="cosine of two random passages",
        curves=curves,
    )


def spectrum_plot(space: IsotropyReport) -> Plot:
    """Plot the singular values by rank, relative to the largest, on a logarithmic axis."""
    shown = _series(space)
    longest = max(len(shape.spectrum) for _, _, shape in shown)
    # Most encoders have a few directions with nearly no variance. An axis down to these would hide all differences.
    tails = [shape.spectrum[int(MOST_OF_A_SPECTRUM * (len(shape.spectrum) - 1))] for _, _, shape in shown]
    least = min((value for value in tails if value > 0), default=1.0)
    lowest = min(-1, max(LOWEST_POWER, math.floor(math.log10(least))))

    def across(rank: float) -> float:
        return round(SPECTRUM_LEFT + (WIDTH - SPECTRUM_LEFT - 12) * (rank - 1) / max(longest - 1, 1), 1)

    def up(value: float) -> float:
        power = math.log10(value) if value > 0 else -math.inf
        return round(SPECTRUM_TOP + SPECTRUM_HEIGHT * min(1.0, power / lowest), 1)

    curves = []
    for kind, name, shape in shown:
        path = "M" + "L".join(f"{across(rank)} {up(value)}" for rank, value in enumerate(shape.spectrum, 1))
        half = sum(value >= 0.5 for value in shape.spectrum)
        description = f"{name}: {half} of {len(shape.spectrum)} values are at least half as large as the largest"
        curves.append({"kind": kind, "name": name, "path": path, "description": description})
    return Plot(
        kind="lines",
        title="Singular values",
        description=f"Singular values by rank, relative to the largest; {_descriptions(curves)}",
        left=SPECTRUM_LEFT,
        bottom=SPECTRUM_TOP + SPECTRUM_HEIGHT,
        x_ticks=[(across(max(1, rank)), f"{max(1, rank):g}") for rank in steps(0, longest)],
        x_name="rank",
        y_ticks=[(up(10.0**power), f"{10.0**power:g}") for power in range(0, lowest - 1, -1)],
        curves=curves,
    )


def candidates_plot(candidates: Sequence[Mapping[str, Any]], name: str, *, chosen: str, rival: str) -> Plot | None:
    """Plot the gain of each candidate over the baseline `rival` with 95 % intervals.

    Return None if there is no baseline, or no other candidate.
    """
    others = [one for one in candidates if one[name] != rival]
    if not others or len(others) == len(candidates):
        return None
    least = min(0.0, *(one["low"] for one in others))
    most = max(1e-3, *(one["high"] for one in others))
    labels = [cut(str(one[name]), LONGEST_LABEL) for one in others]
    left = LETTER * max(map(len, labels)) + 14

    def across(value: float) -> float:
        return round(float(left + (WIDTH - left - MARGIN_LABEL) * (value - least) / (most - least)), 1)

    rows = [
        {
            "y": 24 + ROW * number,
            "label": label,
            "x": across(one["gain"]),
            "low": across(one["low"]),
            "high": across(one["high"]),
            "chosen": one[name] == chosen,
            "description": f"{one[name]}: {one['gain']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]",
        }
        for number, (label, one) in enumerate(zip(labels, others, strict=True))
    ]
    return Plot(
        kind="dots",
        title=f"Gain over {rival}",
        description=f"Gain in agreement over {rival} with 95 % intervals, best first; the table has the numbers",
        left=round(left, 1),
        bottom=24 + ROW * len(rows) - 4,
        x_ticks=[(across(value), f"{value:+g}" if value else "0") for value in steps(least, most)],
        x_name="gain in agreement with words",
        rows=rows,
        marks=[(across(0), str(rival))],
    )


def _series(space: IsotropyReport) -> list[tuple[str, str, Isotropy]]:
    if space.before is space.after:
        return [("after", "raw vectors of the encoder", space.after)]
    return [("before", "before", space.before), ("after", "after", space.after)]


def _descriptions(curves: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(one["description"] for one in curves)
