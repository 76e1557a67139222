"""Choose what the plots of each benchmark show: bars of configurations, the shape of a space, words by frequency."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retriever.evaluate.data.sts_sets import DATASETS
from retriever.evaluate.isotropy import HISTOGRAM_BINS, QUANTILES
from retriever.evaluate.lexical import CORRELATION, DATASET, GOLD, SHARE
from retriever.evaluate.rankings import Comparison, comparisons
from retriever.evaluate.report import names, plots
from retriever.evaluate.report.names import metric_name, series_of, system_of
from retriever.evaluate.report.plots import Bar, BarPanel, Line, LinePanel, Mark, colour, draw_bars, draw_lines
from retriever.evaluate.results import AVERAGE, RAW, Row, average_rows
from retriever.evaluate.runs import Findings
from retriever.evaluate.sts import ALL, SPLIT, WMEAN

# The published configurations that are marked, by transform and text of the fit: bert-base raw and with BERT-flow.
MARKED = {(RAW, ""): ("raw", ":"), ("bert-flow", "target"): ("BERT-flow, target", "--")}
WORD_MEASURES = {"mean_norm": "mean l2 norm", "mean_3nn_distance": "mean l2 distance to the 3 nearest"}
MOST_TAILS = 6
SHOWN_DENSITY = 0.02
"""The plot shows the range of cosines in which a transform has more than this share of its highest density."""

Shown = tuple[str, str, str]
"""Data set, split and metric of a panel."""
Details = Mapping[str, Mapping[str, Any]]
"""The measured data of a space for its plot, by transform."""


def bars_of(figures: Iterable[Comparison], *shown: str) -> list[Bar]:
    """Return a bar for each configuration. Whiskers are 95 % intervals, or the spread over seeds."""
    bars = []
    for one in figures:
        if (one.dataset, one.split, one.metric) == shown:
            ends = (one.low, one.high)
            if one.spread is not None and not math.isfinite(one.low):
                ends = (one.mean - one.spread, one.mean + one.spread)
            low, high = (100 * end for end in ends)
            series, system = str(series_of(one.configuration)), system_of(one.configuration)
            bars.append(Bar(system, series, 100 * one.mean, low, high))
    return bars


def _draw(
    path: Path,
    title: str,
    figures: Sequence[Comparison],
    panels: Mapping[str, Shown],
    marks: Callable[[Shown], Sequence[Mark]] = lambda shown: (),
) -> Path:
    drawn = [BarPanel(name, bars_of(figures, *shown), marks(shown)) for name, shown in panels.items()]
    return draw_bars(path, title, drawn, {str(one): shade for one, shade in names.colours_of(figures).items()})


def draw_retrieval(figures: Sequence[Comparison], path: Path) -> Path:
    """Draw a panel for each data set with its main metric."""
    figures = names.without_shared_fit([one for one in figures if math.isfinite(one.mean)])
    mains = names.main_metrics(figures)
    titles = names.place_names(mains)
    panels = {f"{titles[place]}, {metric_name(metric)} × 100": (*place, metric) for place, metric in mains.items()}
    return _draw(path, "", figures, panels)


def _published_marks(published: Sequence[Row], encoder: str, shown: Shown) -> list[Mark]:
    marks = []
    for row in published:
        known = MARKED.get((row.transform, row.fit))
        if known and (row.dataset, row.split, row.metric) == shown and row.pooling == "first-last":
            marks.append(Mark(row.value, f"published: {encoder}, {known[0]}", known[1]))
    return marks


def draw_sts(rows: Sequence[Row], published: Sequence[Row], path: Path) -> Path:
    """Draw the average in both aggregations, then each set.

    Published averages are shown only if our average is over all sets too.
    """
    sets = [name for name in DATASETS if any(row.dataset == name for row in rows)]
    rows = [*(row for row in rows if row.dataset != AVERAGE), *average_rows(rows, sets)]
    average = f"average of {len(sets)} sets"
    panels = {f"{average}, all": (AVERAGE, SPLIT, ALL), f"{average}, wmean": (AVERAGE, SPLIT, WMEAN)}
    panels |= {f"{DATASETS[name].title}, wmean": (name, SPLIT, WMEAN) for name in sets}
    theirs = [row for row in published if len(sets) == len(DATASETS) or row.dataset != AVERAGE]
    title, figures = (
        "Cosine and human scores, Spearman × 100",
        names.without_shared_fit(comparisons(rows)),
    )
    return _draw(path, title, figures, panels, lambda shown: _published_marks(theirs, "bert-base", shown))


def draw_qa(rows: Sequence[Row], published: Sequence[Row], path: Path) -> Path:
    figures = names.without_shared_fit(comparisons(rows))
    panels = {
        f"{names.SET_TITLES[place.dataset]} {place.split}: {metric_name(metric)} × 100": (*place, metric)
        for place, metric in names.main_metrics(figures).items()
    }
    title, encoder = "Does cosine find the sentence that answers?", "bert-base tuned on NLI"
    return _draw(path, title, figures, panels, lambda shown: _published_marks(published, encoder, shown))


def draw_lexical(rows: Sequence[Row], path: Path) -> Path:
    """Draw the correlations next to those of human scores and those in the paper.

    Also draw how much of the gap between the raw vectors and the human scores each transform closes.
    """
    own = names.without_shared_fit(comparisons(row for row in rows if row.encoder != GOLD and not row.published))
    gold, split = next((row.value, row.split) for row in rows if row.encoder == GOLD)
    marks = [Mark(gold, f"human (gold) scores: {gold:.1f}", "-", plots.GOLD_COLOUR)]
    theirs = [row for row in rows if row.published and row.metric == CORRELATION]
    for row, style in zip(theirs, ("-", ":", "--"), strict=True):
        name = f"bert-base, {system_of(row.configuration)}" if row.transform else GOLD
        marks.append(Mark(row.value, f"published: {name} {row.value}", style))
    panels = {
        "Spearman × 100 of cosine with edit distance": (DATASET, split, CORRELATION),
        "share of the gap from raw to human scores, %": (DATASET, split, SHARE),
    }
    title = "Does similarity follow the wording or the meaning? STS-B"
    return _draw(path, title, own, panels, lambda shown: marks if shown[2] == CORRELATION else ())


def draw_words(rows: Sequence[Row], published: Sequence[Row], path: Path) -> Path:
    """Draw norm and distance to the nearest words by frequency rank, for each encoder and as published."""
    rows = [*published, *rows]
    bars = {
        metric: [
            Bar(row.split.removeprefix("rank "), row.encoder, row.value, text=f"{row.value:.2f}")
            for row in rows
            if row.metric == metric
        ]
        for metric in WORD_MEASURES
    }
    panels = [BarPanel(f"{title}, by frequency rank", bars[metric]) for metric, title in WORD_MEASURES.items()]
    encoders = dict.fromkeys(row.encoder for row in rows)
    shades = {encoder: "#777777" if n == 0 else colour(n - 1) for n, encoder in enumerate(encoders)}
    return draw_bars(path, "Word embeddings by the frequency of the word", panels, shades)


def draw_spaces(findings: Findings, folder: Path) -> list[Path]:
    """Draw one plot for each encoder and pooling, with the first seed.

    It shows the cosines, the spectrum and the tails of every transform.
    """
    groups: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for run in findings.runs:
        if details := findings.provenance(run).get("details"):
            groups.setdefault((run.encoder, run.pooling), {}).setdefault(run.transform, details)
    return [
        draw_lines(
            folder / f"isotropy-{plots.file_name(encoder)}-{pooling}.png",
            f"The space of {encoder}, {pooling} pooling, before and after",
            [_cosines(found), _spectrum(found), *_tails(found)],
        )
        for (encoder, pooling), found in groups.items()
    ]


def _cosines(found: Details) -> LinePanel:
    edges = np.linspace(-1, 1, HISTOGRAM_BINS + 1)
    middles = ((edges[1:] + edges[:-1]) / 2).tolist()
    lines, shown = [], []
    for number, (spec, details) in enumerate(found.items()):
        density = np.array(details["cosine_density"])
        shown += edges[np.flatnonzero(density > SHOWN_DENSITY * density.max())].tolist()
        lines.append(Line(middles, density.tolist(), colour(number), spec, {"drawstyle": "steps-mid"}))
    limits = (max(min(shown) - 0.05, -1), min(max(shown) + 0.05, 1))
    return LinePanel("cosine of two random sentences", lines, {"xlim": limits, "ylabel": "density"})


def _spectrum(found: Details) -> LinePanel:
    lines = [
        Line(range(1, len(details["spectrum"]) + 1), details["spectrum"], colour(n), spec)
        for n, (spec, details) in enumerate(found.items())
    ]
    lowest = min(float(np.quantile(line.y, 0.01)) for line in lines)
    settings = {"yscale": "log", "ylim": (max(lowest / 2, 1e-5), 1.5), "xlabel": "direction"}
    return LinePanel("singular values, the largest = 1", lines, settings)


def _tails(found: Details) -> list[LinePanel]:
    """Plot the quantiles of the least Gaussian dimensions against those of a Gaussian."""
    from scipy.stats import norm

    expected = norm.ppf((np.arange(QUANTILES) + 1) / (QUANTILES + 1)).tolist()
    diagonal = Line(expected, expected, plots.PUBLISHED_COLOUR, options={"linestyle": ":", "linewidth": 1})
    settings = {"xlim": (-2.5, 2.5), "ylim": (-4, 4), "xlabel": "quantiles of a Gaussian"}
    return [
        LinePanel(
            f"{spec}: least Gaussian dimensions",
            [diagonal, *(Line(expected, own, colour(number)) for own in details["quantiles"])],
            settings,
        )
        for number, (spec, details) in enumerate(list(found.items())[:MOST_TAILS])
    ]
