"""Compute the positions of the report's bars in an SVG view box. The template draws the bars."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from retriever.card.charts import steps
from retriever.evaluate.report.plots import Bar, BarPanel
from retriever.terminal import cut

WIDTH = 360.0
BAR, LETTER, LINE_HEIGHT, GAP = 15.0, 7.2, 13.0, 9.0
TOP, FIGURE_ROOM = 4.0, 38.0
LONGEST_LABEL, LABEL_LINES = 16, 3
# The length of the axis if every figure is 0.
LEAST = 1.0


def svg_bars(bars: Sequence[Bar], colours: Mapping[str, str]) -> dict[str, Any]:
    """Return the positions of the bars. Groups stay in the given order; bars of a group follow the order of colours."""
    groups = BarPanel("", bars).groups(list(colours))
    wrapped = {system: wrap(system) for system in groups}
    left = LETTER * max(len(line) for lines in wrapped.values() for line in lines) + 12
    longest = max(value for bar in bars for value in (bar.value, bar.high, LEAST) if math.isfinite(value))

    def across(value: float) -> float:
        return round(left + (WIDTH - left - FIGURE_ROOM) * max(value, 0.0) / longest, 1)

    y, labels, drawn = TOP, [], []
    for system, own in groups.items():
        tall = max(len(own) * BAR, len(wrapped[system]) * LINE_HEIGHT)
        labels.append({"y": y + tall / 2, "lines": wrapped[system], "whole": system})
        start = y + (tall - len(own) * BAR) / 2
        for number, bar in enumerate(own):
            known = math.isfinite(bar.low) and math.isfinite(bar.high)
            low, high = (bar.low, bar.high) if known else (bar.value, bar.value)
            sure = f" (95 % interval {low:.1f} to {high:.1f})" if known else ""
            drawn.append(
                {
                    "y": round(start + number * BAR, 1),
                    "length": round(across(bar.value) - left, 1),
                    "low": across(low),
                    "high": across(high),
                    "colour": colours[bar.series],
                    "figure": f"{bar.value:.1f}",
                    "tooltip": f"{bar.series}, {system}: {bar.value:.1f}{sure}",
                }
            )
        y += tall + GAP
    ticks = [(across(value), f"{value:g}") for value in steps(0.0, longest)]
    return {"left": round(left, 1), "height": round(y, 1), "ticks": ticks, "labels": labels, "bars": drawn}


def wrap(label: str) -> list[str]:
    """Split a label into short lines, e.g. whiten:dimension=256 into two. The end of a long label is cut off."""
    lines = [""]
    for piece in label.replace(":", ":\0").replace(",", ",\0").replace(" ", " \0").split("\0"):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > LONGEST_LABEL:
            lines.append("")
        lines[-1] += piece
    shown = [cut(line.strip(), LONGEST_LABEL) for line in lines]
    if len(shown) > LABEL_LINES:
        shown = [*shown[: LABEL_LINES - 1], cut(shown[LABEL_LINES - 1] + " …", LONGEST_LABEL)]
    return shown
