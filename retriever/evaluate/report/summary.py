"""The tables of the report, and its sentences about the best configuration and about the gain of each encoder."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from retriever.evaluate.rankings import Comparison, Topics
from retriever.evaluate.report.names import (
    NO_ENCODER,
    PREFERRED,
    Place,
    colours_of,
    main_metrics,
    metric_name,
    named,
    place_names,
    place_of,
    preference,
    series_of,
    system_of,
)
from retriever.evaluate.results import RAW, Configuration

LEVELS = (0.01, 0.05)
Cells = Mapping[tuple[Configuration, Place], Comparison]


@dataclass(frozen=True)
class Cell:
    """A figure, the lines below it, the mark of a significant difference from raw, and the tooltip."""

    figure: str
    below: Sequence[str] = ()
    mark: str = ""
    tooltip: str = ""
    best: bool = False


@dataclass(frozen=True)
class Table:
    """Lines grouped by encoder, with a column for each data set; a column has a name and details below it."""

    caption: str
    columns: Sequence[tuple[str, Sequence[str]]]
    groups: Sequence[tuple[str, Sequence[tuple[str, Sequence[Cell | None]]]]]


def points(value: float, sign: str = "") -> str:
    """A figure from 0 to 1 times 100, with one decimal."""
    return f"{100 * value:{sign}z.1f}".replace("-", "−")


def interval(low: float, high: float, sign: str = "") -> str:
    return f"{points(low, sign)} to {points(high, sign)}"


def summary_tables(topics: Sequence[Topics], comparisons: Sequence[Comparison]) -> list[Table]:
    """The main metric of every data set, the gains over raw, and every other metric."""
    mains = main_metrics(comparisons)
    names, known = place_names(mains), {place_of(one): one for one in topics}
    metrics = set(mains.values())

    def details(place: Place) -> list[str]:
        lines = [metric_name(mains[place])] if len(metrics) > 1 else []
        lines += [place.split] if place.split else []
        if found := known.get(place):
            lines += [f"{len(found.queries):,} queries", f"{found.documents:,} documents"]
        return lines

    def table(caption: str, own: Sequence[Comparison], cell: Callable[[Comparison, bool], Cell], **more: bool) -> Table:
        places = [place for place in mains if any(place_of(one) == place for one in own)]
        return _table(caption, {place: (names[place], details(place)) for place in places}, own, cell, **more)

    own = [one for one in comparisons if one.metric == mains[place_of(one)]]
    caption = f"{metric_name(next(iter(metrics)))} × 100" if len(metrics) == 1 else "Main metric of each set × 100"
    averaged = len(mains) > 1 and len(metrics) == 1
    tables = [table(f"{caption}, with its 95 % interval", own, _figure, averaged=averaged)]
    if tested := [one for one in own if one.base is not None]:
        caption = "Gain over the raw vectors of the same encoder, in points, with its 95 % interval and p"
        tables.append(table(caption, tested, _gain))
    others = [one for one in comparisons if one.metric != mains[place_of(one)]]
    for metric in dict.fromkeys(one.metric for one in others):
        found = [one for one in others if one.metric == metric]
        sure = ", with its 95 % interval" if any(math.isfinite(one.low) for one in found) else ""
        tables.append(table(f"{metric_name(metric)} × 100{sure}", found, _figure))
    return tables


def _table(
    caption: str,
    columns: Mapping[Place, tuple[str, Sequence[str]]],
    comparisons: Sequence[Comparison],
    cell: Callable[[Comparison, bool], Cell],
    averaged: bool = False,
) -> Table:
    cells: Cells = {(one.configuration, place_of(one)): one for one in comparisons}
    lines = list(dict.fromkeys(one.configuration for one in comparisons))
    best = {place: points(max(one.mean for one in comparisons if place_of(one) == place)) for place in columns}
    means = {
        line: _mean(cells, line, list(columns)) for line in lines if all((line, place) in cells for place in columns)
    }

    def made(line: Configuration) -> tuple[str, list[Cell | None]]:
        own = ((place, cells.get((line, place))) for place in columns)
        shown = [cell(one, points(one.mean) == best[place]) if one else None for place, one in own]
        if averaged:
            top = line in means and points(means[line]) == points(max(means.values()))
            shown.append(Cell(points(means[line]), best=top) if line in means else None)
        return system_of(line), shown

    groups = [
        (str(series), [made(line) for line in lines if series_of(line) == series]) for series in colours_of(comparisons)
    ]
    average = [("average", (f"of {len(columns)} sets",))] if averaged else []
    return Table(caption, [*columns.values(), *average], groups)


def _mark(one: Comparison) -> str:
    """A triangle up for a gain over raw at p < 0.05, two at p < 0.01; triangles down for a loss."""
    return ("▲" if one.gain > 0 else "▼") * sum(one.p is not None and one.p < level for level in LEVELS)


def _figure(one: Comparison, best: bool) -> Cell:
    below = [interval(one.low, one.high)] if math.isfinite(one.low) and math.isfinite(one.high) else []
    return Cell(points(one.mean), below, _mark(one), _tooltip(one), best)


def _gain(one: Comparison, best: bool) -> Cell:
    below = [interval(one.gain_low, one.gain_high, "+"), *([] if one.p is None else [_chance(one.p)])]
    return Cell(points(one.gain, "+"), below, _mark(one), _tooltip(one))


def _chance(p: float) -> str:
    return f"p = {p:.4f}" if p >= 0.0001 else "p < 0.0001"


def _tooltip(one: Comparison) -> str:
    if one.base is None:
        return ""
    sure = f"95 % interval {interval(one.gain_low, one.gain_high, '+')}"
    text = f"{points(one.gain, '+')} over {system_of(one.base)}, {sure}"
    return text if one.p is None else f"{text}, {_chance(one.p)}"


def headline(comparisons: Sequence[Comparison]) -> str:
    """The best configuration: on average over the sets of a metric, or on the one set."""
    mains = main_metrics(comparisons)
    names, cells = place_names(mains), _cells(comparisons, mains)
    parts = []
    for metric, places in _by_metric(mains).items():
        lines = [line for line in dict.fromkeys(line for line, _ in cells) if all((line, p) in cells for p in places)]
        if lines:
            best = max(lines, key=lambda line: _mean(cells, line, places))
            where = f"On {names[places[0]]}" if len(places) == 1 else f"On average over {len(places)} data sets"
            parts.append(f"{where}, {named(best)} is best: {metric_name(metric)} {points(_mean(cells, best, places))}.")
    return " ".join(parts) or "No configuration was measured on all data sets."


def gains(comparisons: Sequence[Comparison]) -> list[str]:
    """For each encoder, the figures of its raw vectors, of the flow and of the automatic choice."""
    mains = main_metrics(comparisons)
    cells = _cells(comparisons, mains)
    sentences = []
    for series in colours_of(comparisons):
        lines = [line for line in dict.fromkeys(line for line, _ in cells) if series_of(line) == series]
        raw = next((line for line in lines if line.transform == RAW), None)
        others = sorted((line for line in lines if line.transform != RAW), key=preference)
        shown = [line for line in others if line.transform in PREFERRED] or others[:1]
        if series != NO_ENCODER and raw and shown:
            clauses = [_change(cells, raw, shown, metric, places) for metric, places in _by_metric(mains).items()]
            sentences.append(f"{series}: {'; '.join(filter(None, clauses))}.")
    return sentences


def _change(
    cells: Cells, raw: Configuration, lines: Sequence[Configuration], metric: str, places: Sequence[Place]
) -> str:
    """The metric of raw and of each line, on the sets that all of them have."""
    shared = [place for place in places if all((line, place) in cells for line in (raw, *lines))]
    if not shared:
        return ""
    before = _mean(cells, raw, shared)
    sentences = [f"raw vectors have {metric_name(metric)} {points(before)}"]
    for line in lines:
        after, changes = _mean(cells, line, shared), [cells[line, place] for place in shared]
        parts = [points(after - before, "+")]
        for word, better in (("better", True), ("worse", False)):
            if count := sum(one.p is not None and one.p < LEVELS[0] and (one.gain > 0) == better for one in changes):
                where = f" on {count} of {len(changes)} data sets" if len(changes) > 1 else ""
                parts.append(f"{word} at p < {LEVELS[0]}{where}")
        sentences.append(f"{system_of(line)} {points(after)} ({', '.join(parts)})")
    return ", ".join(sentences)


def _cells(comparisons: Sequence[Comparison], mains: Mapping[Place, str]) -> Cells:
    return {(one.configuration, place_of(one)): one for one in comparisons if one.metric == mains[place_of(one)]}


def _by_metric(mains: Mapping[Place, str]) -> dict[str, list[Place]]:
    return {metric: [place for place in mains if mains[place] == metric] for metric in dict.fromkeys(mains.values())}


def _mean(cells: Cells, line: Configuration, places: Sequence[Place]) -> float:
    return math.fsum(cells[line, place].mean for place in places) / len(places)
