"""The space before and after, as pictures: cosines, spectrum and tails in one, words by frequency in another."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.evaluate.isotropy import HISTOGRAM_BINS, QUANTILES
from retriever.evaluate.report.plots import PUBLISHED_COLOUR, colour, new_figure, plain, save
from retriever.evaluate.results import Row
from retriever.evaluate.runs import Findings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_QQ = 6
WIDEST_COSINES = 0.02
"""Cosines are drawn where some transform has this part of its highest density."""


def draw_spaces(findings: Findings, folder: Path) -> list[Path]:
    """A picture an encoder and pooling, all transforms in it; of several seeds the first."""
    groups: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for run in findings.runs:
        if details := findings.provenance(run).get("details"):
            groups.setdefault((run.encoder, run.pooling), {}).setdefault(run.transform, details)
    paths = []
    for (encoder, pooling), by_transform in groups.items():
        path = folder / f"isotropy-{file_name(encoder)}-{pooling}.png"
        paths.append(_draw_space(f"{encoder}, {pooling} pooling", by_transform, path))
    return paths


def _draw_space(title: str, found: dict[str, dict[str, Any]], path: Path) -> Path:
    shown = list(found)[:MOST_QQ]
    figure = new_figure(13, 7.4)
    grid = figure.add_gridspec(2, 1, height_ratios=[1.5, 1])
    above = grid[0].subgridspec(1, 2)
    _cosines(figure.add_subplot(above[0]), found)
    _spectrum(figure.add_subplot(above[1]), found)
    below = grid[1].subgridspec(1, max(len(shown), 3))
    for number, spec in enumerate(shown):
        axes = figure.add_subplot(below[number])
        _tails(axes, found[spec]["quantiles"], colour(number))
        axes.set_title(spec, fontsize=9, loc="left")
        if number == 0:
            axes.set_ylabel("least Gaussian dimensions,\nquantiles", fontsize=9)
    figure.suptitle(f"The space of {title}, before and after", fontsize=14, x=0.01, ha="left")
    return save(figure, path)


def _cosines(axes: "Axes", found: dict[str, dict[str, Any]]) -> None:
    edges = np.linspace(-1, 1, HISTOGRAM_BINS + 1)
    low, high = 1.0, -1.0
    for number, (spec, details) in enumerate(found.items()):
        density = np.array(details["cosine_density"])
        axes.stairs(density, edges, color=colour(number), linewidth=1.8, label=spec)
        if number == 0:
            axes.stairs(density, edges, color=colour(number), alpha=0.15, fill=True)
        inside = np.flatnonzero(density > WIDEST_COSINES * density.max())
        low, high = min(low, edges[inside[0]]), max(high, edges[inside[-1] + 1])
    axes.set_xlim(max(low - 0.05, -1), min(high + 0.05, 1))
    axes.set_title("cosine of two random sentences", loc="left", fontsize=11)
    axes.set_ylabel("density", fontsize=9)
    axes.legend(frameon=False, fontsize=9)
    plain(axes)


def _spectrum(axes: "Axes", found: dict[str, dict[str, Any]]) -> None:
    lowest = 1.0
    for number, (spec, details) in enumerate(found.items()):
        spectrum = np.array(details["spectrum"])
        axes.plot(np.arange(1, len(spectrum) + 1), spectrum, color=colour(number), linewidth=1.8, label=spec)
        lowest = min(lowest, float(np.quantile(spectrum, 0.01)))
    axes.set_yscale("log")
    axes.set_ylim(max(lowest / 2, 1e-5), 1.5)
    axes.set_title("singular values, the largest = 1", loc="left", fontsize=11)
    axes.set_xlabel("direction", fontsize=9)
    plain(axes, "y")


def _tails(axes: "Axes", quantiles: Sequence[Sequence[float]], shade: str) -> None:
    from scipy.stats import norm

    expected = norm.ppf((np.arange(QUANTILES) + 1) / (QUANTILES + 1))
    axes.plot(expected, expected, color=PUBLISHED_COLOUR, linestyle=":", linewidth=1)
    for column in quantiles:
        axes.plot(expected, column, color=shade, linewidth=1.5)
    axes.set_xlim(-2.5, 2.5)
    axes.set_ylim(-4, 4)
    axes.set_xlabel("of a Gaussian", fontsize=9)
    axes.tick_params(labelsize=8)
    plain(axes, "both")


def draw_words(rows: Sequence[Row], published: Sequence[Row], path: Path) -> Path:
    """Norm and distance to the nearest words by frequency rank, bars an encoder, published ones in grey."""
    figure = new_figure(11, 4)
    panels = figure.subplots(1, 2)
    encoders = list(dict.fromkeys(row.encoder for row in [*published, *rows]))
    splits = list(dict.fromkeys(row.split for row in published))
    width = 0.8 / len(encoders)
    titles = {"mean_norm": "mean l2 norm", "mean_3nn_distance": "mean l2 distance to the 3 nearest"}
    for axes, (metric, title) in zip(panels, titles.items(), strict=True):
        for number, encoder in enumerate(encoders):
            found = {r.split: r.value for r in [*published, *rows] if r.encoder == encoder and r.metric == metric}
            places = [n - 0.4 + width * (number + 0.5) for n, split in enumerate(splits) if split in found]
            values = [found[split] for split in splits if split in found]
            shade = "#777777" if number == 0 else colour(number - 1)
            bars = axes.bar(places, values, width * 0.92, color=shade, label=encoder)
            axes.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
        axes.set_xticks(range(len(splits)), [_thousands(split) for split in splits])
        axes.set_title(title, loc="left", fontsize=11)
        axes.set_xlabel("frequency rank of the word", fontsize=9)
        axes.margins(y=0.12)
        plain(axes, "y")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9
    )
    figure.suptitle("Word embeddings by the frequency of the word", fontsize=13, x=0.01, ha="left")
    return save(figure, path)


def _thousands(split: str) -> str:
    low, high = split.removeprefix("rank ").split("-")
    return f"{_short(int(low))}–{_short(int(high))}"


def _short(number: int) -> str:
    return f"{number // 1000}K" if number >= 1000 else str(number)


def file_name(encoder: str) -> str:
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in encoder)
