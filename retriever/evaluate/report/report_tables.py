"""The tables of the report, and the sentences that say what they come to."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from retriever.evaluate.rankings import Comparison, Topics
from retriever.evaluate.report.grouping import (
    NO_ENCODER,
    PREFERRED,
    Place,
    all_series,
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
WITH_INTERVAL = ", with its 95 % interval"
Cells = Mapping[tuple[Configuration, Place], Comparison]


@dataclass(frozen=True)
class Cell:
    """A figure, what stands below it, how sure a difference from raw is, and the whole of it in words."""

    figure: str
    below: Sequence[str] = ()
    mark: str = ""
    told: str = ""
    best: bool = False


@dataclass(frozen=True)
class Column:
    name: str
    details: Sequence[str] = ()


@dataclass(frozen=True)
class Line:
    name: str
    cells: Sequence[Cell | None]


@dataclass(frozen=True)
class Table:
    """Lines under the name of their encoder, a column a data set."""

    caption: str
    columns: Sequence[Column]
    groups: Sequence[tuple[str, Sequence[Line]]]


def points(value: float, sign: str = "") -> str:
    """A figure from 0 to 1 as people write it: times 100, one place."""
    return f"{100 * value:{sign}z.1f}".replace("-", "−")


def mark(one: Comparison) -> str:
    """A triangle up for a gain over raw at p < 0.05, two at p < 0.01; triangles down for a loss."""
    sure = 0 if one.p is None else sum(one.p < level for level in LEVELS)
    return ("▲" if one.gain > 0 else "▼") * sure


def summary_table(topics: Sequence[Topics], comparisons: Sequence[Comparison]) -> Table:
    """The main figure of every configuration on every data set, and the average where all have the same metric."""
    mains = main_metrics(comparisons)
    own = [one for one in comparisons if one.metric == mains[place_of(one)]]
    names, known = place_names(mains), {place_of(one): one for one in topics}
    shared = set(mains.values())
    columns = [
        Column(names[place], _details(place, metric if len(shared) > 1 else "", known.get(place)))
        for place, metric in mains.items()
    ]
    averaged = len(mains) > 1 and len(shared) == 1
    caption = f"{metric_name(next(iter(shared)))} × 100" if len(shared) == 1 else "Main metric of each set × 100"
    return _table(f"{caption}{WITH_INTERVAL}", columns, list(mains), own, _figure, averaged=averaged)


def gain_table(comparisons: Sequence[Comparison]) -> Table | None:
    """What each configuration gains over the raw vectors of its encoder; nothing where no raw vectors were measured."""
    mains = main_metrics(comparisons)
    own = [one for one in comparisons if one.metric == mains[place_of(one)] and one.base is not None]
    places = [place for place in mains if any(place_of(one) == place for one in own)]
    names = place_names(mains)
    columns = [Column(names[place], (metric_name(mains[place]),)) for place in places]
    caption = "Gain over the raw vectors of the same encoder, in points, with its 95 % interval and p"
    return _table(caption, columns, places, own, _gain) if own else None


def other_tables(comparisons: Sequence[Comparison]) -> list[Table]:
    """A table for each metric beside the main one, of the data sets that have it."""
    mains = main_metrics(comparisons)
    names = place_names(mains)
    others = [one for one in comparisons if one.metric != mains[place_of(one)]]
    tables = []
    for metric in dict.fromkeys(one.metric for one in others):
        own = [one for one in others if one.metric == metric]
        places = [place for place in mains if any(place_of(one) == place for one in own)]
        caption = f"{metric_name(metric)} × 100{WITH_INTERVAL if any(map(_has_interval, own)) else ''}"
        tables.append(_table(caption, [Column(names[place]) for place in places], places, own, _figure))
    return tables


def headline(comparisons: Sequence[Comparison]) -> str:
    """Which configuration is best: on average over the sets of a metric, or on the one set."""
    mains = main_metrics(comparisons)
    names, cells = place_names(mains), _cells(comparisons, mains)
    parts = []
    for metric, places in _by_metric(mains).items():
        lines = [line for line in dict.fromkeys(line for line, _ in cells) if _whole(cells, line, places)]
        if lines:
            best = max(lines, key=lambda line: _mean(cells, line, places))
            where = f"On {names[places[0]]}" if len(places) == 1 else f"On average over {len(places)} data sets"
            parts.append(f"{where}, {named(best)} is best: {metric_name(metric)} {points(_mean(cells, best, places))}.")
    return " ".join(parts) or "No configuration was measured on all data sets."


def bought(comparisons: Sequence[Comparison]) -> list[str]:
    """For each encoder, what the flow and the automatic choice made of its raw vectors."""
    mains = main_metrics(comparisons)
    cells = _cells(comparisons, mains)
    told = []
    for series in all_series(comparisons):
        lines = [line for line in dict.fromkeys(line for line, _ in cells) if series_of(line) == series]
        raw = next((line for line in lines if line.transform == RAW), None)
        others = sorted((line for line in lines if line.transform != RAW), key=preference)
        shown = [line for line in others if line.transform in PREFERRED] or others[:1]
        if series != NO_ENCODER and raw and shown:
            clauses = [_change(cells, raw, shown, metric, places) for metric, places in _by_metric(mains).items()]
            told.append(f"{series}: {'; '.join(filter(None, clauses))}.")
    return told


def _change(
    cells: Cells, raw: Configuration, lines: Sequence[Configuration], metric: str, places: Sequence[Place]
) -> str:
    """Where raw stands in a metric and where each line does, on the sets that all of them have."""
    shared = [place for place in places if all((line, place) in cells for line in (raw, *lines))]
    if not shared:
        return ""
    before = _mean(cells, raw, shared)
    told = [f"raw vectors have {metric_name(metric)} {points(before)}"]
    for line in lines:
        after = _mean(cells, line, shared)
        found = [cells[line, place] for place in shared]
        sure = (_sure(found, better=better) for better in (True, False))
        change = ", ".join(filter(None, (points(after - before, "+"), *sure)))
        told.append(f"{system_of(line)} {points(after)} ({change})")
    return ", ".join(told)


def _sure(found: Sequence[Comparison], *, better: bool) -> str:
    """On how many data sets a change is no chance."""
    level = LEVELS[0]
    count = sum(one.p is not None and one.p < level and (one.gain > 0) == better for one in found)
    where = f" on {count} of {len(found)} data sets" if len(found) > 1 else ""
    return f"{'better' if better else 'worse'} at p < {level}{where}" if count else ""


def _table(
    caption: str,
    columns: Sequence[Column],
    places: Sequence[Place],
    comparisons: Sequence[Comparison],
    cell: Callable[[Comparison, bool], Cell],
    *,
    averaged: bool = False,
) -> Table:
    cells = {(one.configuration, place_of(one)): one for one in comparisons}
    lines = list(dict.fromkeys(one.configuration for one in comparisons))
    best = {place: max(one.mean for one in comparisons if place_of(one) == place) for place in places}
    averages = {line: _mean(cells, line, places) for line in lines if _whole(cells, line, places)} if averaged else {}

    def made(line: Configuration) -> Line:
        own = ((place, cells.get((line, place))) for place in places)
        shown = [cell(one, points(one.mean) == points(best[place])) if one else None for place, one in own]
        if averaged:
            value = averages.get(line)
            top = value is not None and points(value) == points(max(averages.values()))
            shown.append(None if value is None else Cell(points(value), best=top))
        return Line(system_of(line), shown)

    groups = [
        (str(series), [made(line) for line in lines if series_of(line) == series]) for series in all_series(comparisons)
    ]
    return Table(caption, [*columns, *([Column("average", (f"of {len(places)} sets",))] if averaged else [])], groups)


def _figure(one: Comparison, best: bool) -> Cell:
    below = [_interval(one.low, one.high)] if _has_interval(one) else []
    return Cell(points(one.mean), below, mark(one), _in_words(one), best)


def _gain(one: Comparison, best: bool) -> Cell:
    below = [_interval(one.gain_low, one.gain_high, "+"), *([] if one.p is None else [_chance(one.p)])]
    return Cell(points(one.gain, "+"), below, mark(one), _in_words(one))


def _interval(low: float, high: float, sign: str = "") -> str:
    return f"{points(low, sign)} to {points(high, sign)}"


def _has_interval(one: Comparison) -> bool:
    return math.isfinite(one.low) and math.isfinite(one.high)


def _chance(p: float) -> str:
    return f"p = {p:.4f}" if p >= 0.0001 else "p < 0.0001"


def _in_words(one: Comparison) -> str:
    if one.base is None:
        return ""
    interval = _interval(one.gain_low, one.gain_high, "+")
    told = f"{points(one.gain, '+')} over {system_of(one.base)}, 95 % interval {interval}"
    return told if one.p is None else f"{told}, {_chance(one.p)}"


def _details(place: Place, metric: str, topics: Topics | None) -> list[str]:
    told = [part for part in (metric and metric_name(metric), place.split) if part]
    if topics:
        told += [f"{len(topics.queries):,} queries", f"{topics.documents:,} documents"]
    return told


def _cells(comparisons: Iterable[Comparison], mains: Mapping[Place, str]) -> Cells:
    return {(one.configuration, place_of(one)): one for one in comparisons if one.metric == mains[place_of(one)]}


def _by_metric(mains: Mapping[Place, str]) -> dict[str, list[Place]]:
    return {metric: [place for place in mains if mains[place] == metric] for metric in dict.fromkeys(mains.values())}


def _whole(cells: Cells, line: Configuration, places: Sequence[Place]) -> bool:
    return all((line, place) in cells for place in places)


def _mean(cells: Cells, line: Configuration, places: Sequence[Place]) -> float:
    return math.fsum(cells[line, place].mean for place in places) / len(places)
