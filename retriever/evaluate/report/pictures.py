"""Choose what the plots of each benchmark show: bars of configurations, the shape of a space, words by frequency."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.evaluate.data.sts_sets import DATASETS
from retriever.evaluate.isotropy import HISTOGRAM_BINS, QUANTILES
from retriever.evaluate.rankings import Comparison, comparisons
from retriever.evaluate.report import names
from retriever.evaluate.report.names import COLOURS, metric_name, series_of, system_of
from retriever.evaluate.report.plots import Bar, Marks, colour, draw_bars, file_name, picture
from retriever.evaluate.results import AVERAGE, RAW, Row, average_rows
from retriever.evaluate.runs import Findings
from retriever.evaluate.sts import ALL, CORRELATION, GOLD, LEXICAL_SET, SHARE, SPLIT, WMEAN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The published configurations that are marked, by transform and text of the fit: bert-base raw and with BERT-flow.
MARKED = {(RAW, ""): ("raw", ":"), ("bert-flow", "target"): ("BERT-flow, target", "--")}
WORD_MEASURES = {"mean_norm": "mean l2 norm", "mean_3nn_distance": "mean l2 distance to the 3 nearest"}
MOST_TAILS = 6
SHOWN_DENSITY = 0.02
"""The plot shows the range of cosines in which a transform has more than this share of its highest density."""

Shown = tuple[str, str, str]  # data set, split and metric of a panel
Details = Mapping[str, Mapping[str, Any]]  # the measured data of a space, by transform


def _draw(
    path: Path, title: str, figures: Iterable[Comparison], panels: Mapping[str, Shown], marks: Marks | None = None
) -> Path:
    """Draw a bar for each configuration. Whiskers are 95 % intervals, or the spread over seeds."""
    figures = names.without_shared_fit([one for one in figures if math.isfinite(one.mean)])
    bars: dict[Shown, list[Bar]] = {shown: [] for shown in panels.values()}
    for one in figures:
        ends = (one.low, one.high)
        if one.spread is not None and not math.isfinite(one.low):
            ends = (one.mean - one.spread, one.mean + one.spread)
        values = (100 * value for value in (one.mean, *ends))
        own = bars.get((one.dataset, one.split, one.metric), [])
        own.append(Bar(system_of(one.configuration), str(series_of(one.configuration)), *values))
    colours = {str(series): shade for series, shade in names.colours_of(figures).items()}
    return draw_bars(path, title, {name: bars[shown] for name, shown in panels.items()}, colours, marks or {}, 1)


def draw_retrieval(figures: Sequence[Comparison], path: Path) -> Path:
    """Draw a panel for each data set with its main metric."""
    mains = names.main_metrics([one for one in figures if math.isfinite(one.mean)])
    titles = names.place_names(mains)
    panels = {f"{titles[place]}, {metric_name(metric)} × 100": (*place, metric) for place, metric in mains.items()}
    return _draw(path, "", figures, panels)


def _published_marks(published: Sequence[Row], encoder: str, panels: Mapping[str, Shown]) -> Marks:
    marks: dict[str, list[dict[str, Any]]] = {name: [] for name in panels}
    for row in published:
        known = MARKED.get((row.transform, row.fit))
        for name, shown in panels.items():
            if known and (row.dataset, row.split, row.metric) == shown and row.pooling == "first-last":
                label = f"published: {encoder}, {known[0]}"
                marks[name].append({"x": row.value, "label": label, "linestyle": known[1]})
    return marks


def draw_sts(rows: Sequence[Row], published: Sequence[Row], path: Path) -> Path:
    """Draw the average in both aggregations, then each set. Published averages appear only beside one of all sets."""
    sets = [name for name in DATASETS if any(row.dataset == name for row in rows)]
    rows = [*(row for row in rows if row.dataset != AVERAGE), *average_rows(rows, sets)]
    average = f"average of {len(sets)} sets"
    panels = {f"{average}, all": (AVERAGE, SPLIT, ALL), f"{average}, wmean": (AVERAGE, SPLIT, WMEAN)}
    panels |= {f"{DATASETS[name].title}, wmean": (name, SPLIT, WMEAN) for name in sets}
    theirs = [row for row in published if len(sets) == len(DATASETS) or row.dataset != AVERAGE]
    marks = _published_marks(theirs, "bert-base", panels)
    return _draw(path, "Cosine and human scores, Spearman × 100", comparisons(rows), panels, marks)


def draw_qa(rows: Sequence[Row], published: Sequence[Row], path: Path) -> Path:
    figures = comparisons(rows)
    panels = {}
    for place, metric in names.main_metrics(figures).items():
        panels[f"{names.SET_TITLES[place.dataset]} {place.split}: {metric_name(metric)} × 100"] = (*place, metric)
    marks = _published_marks(published, "bert-base tuned on NLI", panels)
    return _draw(path, "Does cosine find the sentence that answers the question?", figures, panels, marks)


def draw_lexical(rows: Sequence[Row], path: Path) -> Path:
    """Draw the correlations next to those of human scores and of the paper, and how much of the gap is closed."""
    gold, split = next((row.value, row.split) for row in rows if row.encoder == GOLD)
    marks = [{"x": gold, "label": f"human (gold) scores: {gold:.1f}", "color": COLOURS[5]}]
    theirs = [row for row in rows if row.published and row.metric == CORRELATION]
    for row, style in zip(theirs, ("-", ":", "--"), strict=True):
        name = f"bert-base, {system_of(row.configuration)}" if row.transform else GOLD
        marks.append({"x": row.value, "label": f"published: {name} {row.value}", "linestyle": style})
    correlation = "Spearman × 100 of cosine with edit distance"
    share = "share of the gap between raw and human scores that is closed, %"
    panels = {correlation: (LEXICAL_SET, split, CORRELATION), share: (LEXICAL_SET, split, SHARE)}
    figures = comparisons(row for row in rows if row.encoder != GOLD and not row.published)
    title = "Does similarity follow the wording or the meaning? STS-B"
    return _draw(path, title, figures, panels, {correlation: marks})


def draw_words(rows: Sequence[Row], published: Sequence[Row], path: Path) -> Path:
    """Draw norm and distance to the nearest words by frequency rank, for each encoder and as published."""
    rows = [*published, *rows]
    panels: dict[str, list[Bar]] = {}
    for row in rows:
        title = f"{WORD_MEASURES[row.metric]}, by frequency rank"
        panels.setdefault(title, []).append(Bar(row.split.removeprefix("rank "), row.encoder, row.value))
    encoders = dict.fromkeys(row.encoder for row in rows)
    shades = {encoder: "#777777" if n == 0 else colour(n - 1) for n, encoder in enumerate(encoders)}
    return draw_bars(path, "Word embeddings by the frequency of the word", panels, shades, {}, 2)


def draw_spaces(findings: Findings, folder: Path) -> list[Path]:
    """Draw cosines, spectrum and tails of every transform: a plot for each encoder and pooling, with the first seed."""
    groups: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for run in findings.runs:
        if details := findings.provenance(run).get("details"):
            groups.setdefault((run.encoder, run.pooling), {}).setdefault(run.transform, details)
    paths = []
    for (encoder, pooling), found in groups.items():
        path = folder / f"isotropy-{file_name(encoder)}-{pooling}.png"
        title = f"The space of {encoder}, {pooling} pooling, before and after"
        tails = list(found)[:MOST_TAILS]
        panels = ["cosine of two random sentences", "singular values, the largest = 1"]
        panels += [f"{spec}: least Gaussian dimensions" for spec in tails]
        with picture(path, title, panels) as (cosines, spectrum, *others):
            _draw_cosines(cosines, found)
            _draw_spectrum(spectrum, found)
            for number, (axes, spec) in enumerate(zip(others, tails, strict=True)):
                _draw_tails(axes, found[spec]["quantiles"], colour(number))
        paths.append(path)
    return paths


def _draw_cosines(axes: "Axes", found: Details) -> None:
    edges = np.linspace(-1, 1, HISTOGRAM_BINS + 1)
    shown = []
    for number, (spec, details) in enumerate(found.items()):
        density = np.array(details["cosine_density"])
        shown += edges[np.flatnonzero(density > SHOWN_DENSITY * density.max())].tolist()
        axes.stairs(density, edges, color=colour(number), label=spec)
    axes.set(xlim=(max(min(shown) - 0.05, -1), min(max(shown) + 0.05, 1)), ylabel="density")


def _draw_spectrum(axes: "Axes", found: Details) -> None:
    for number, details in enumerate(found.values()):
        axes.plot(range(1, len(details["spectrum"]) + 1), details["spectrum"], color=colour(number))
    lowest = min(float(np.quantile(details["spectrum"], 0.01)) for details in found.values())
    axes.set(yscale="log", ylim=(max(lowest / 2, 1e-5), 1.5), xlabel="direction")


def _draw_tails(axes: "Axes", quantiles: Sequence[Sequence[float]], shade: str) -> None:
    """Plot the quantiles of the least Gaussian dimensions against those of a Gaussian."""
    from scipy.stats import norm

    expected = norm.ppf((np.arange(QUANTILES) + 1) / (QUANTILES + 1))
    axes.plot(expected, expected, color="#222222", linestyle=":", linewidth=1)
    for own in quantiles:
        axes.plot(expected, own, color=shade)
    axes.set(xlim=(-2.5, 2.5), ylim=(-4, 4), xlabel="quantiles of a Gaussian")
