"""Make the tables of the report, and its sentences about the best configuration and each encoder's gain."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retriever.evaluate.rankings import Comparison, Topics
from retriever.evaluate.report import names
from retriever.evaluate.report.names import NO_ENCODER, Place, metric_name, place_of, points, series_of, system_of
from retriever.evaluate.results import AVERAGE, RAW, Configuration

LEVELS = (0.01, 0.05)
Cells = Mapping[tuple[Configuration, Place], Comparison]


@dataclass(frozen=True)
class Table:
    """A table with lines grouped by encoder, and a column for each data set, headed by its name with details below
    it."""

    caption: str
    columns: Mapping[Place, tuple[str, Sequence[str]]]
    comparisons: Sequence[Comparison]
    gains: bool = False
    """If True, cells are gains over raw. Otherwise they are figures."""

    def groups(self) -> list[tuple[str, list[tuple[str, list[Comparison | None]]]]]:
        """Return the name of each encoder and its lines: the name of a system and a cell for each column."""
        cells: Cells = {(one.configuration, place_of(one)): one for one in self.comparisons}
        lines = list(dict.fromkeys(one.configuration for one in self.comparisons))
        groups: dict[str, list[tuple[str, list[Comparison | None]]]] = {}
        order = list(names.colours_of(self.comparisons))
        for line in sorted(lines, key=lambda line: order.index(series_of(line))):
            own = [cells.get((line, place)) for place in self.columns]
            groups.setdefault(str(series_of(line)), []).append((system_of(line), own))
        return list(groups.items())

    def best(self, one: Comparison) -> bool:
        """Return whether this is the best figure of its column, after rounding. A gain is never marked as best."""
        own = [other.mean for other in self.comparisons if place_of(other) == place_of(one)]
        return not self.gains and points(one.mean) == points(max(own))


def mark(one: Comparison) -> str:
    """Return one triangle for p < 0.05, two for p < 0.01: up for a gain over raw, down for a loss."""
    return ("▲" if one.gain > 0 else "▼") * sum(one.p is not None and one.p < level for level in LEVELS)


def summary_tables(topics: Sequence[Topics], comparisons: Sequence[Comparison]) -> list[Table]:
    """Return the tables of the main metric of every data set, of the gains over raw, and of every other metric."""
    mains = names.main_metrics(comparisons)
    titles, known = names.place_names(mains), {place_of(one): one for one in topics}
    metrics = set(mains.values())

    def table(caption: str, own: Sequence[Comparison], gains: bool = False) -> Table:
        columns: dict[Place, tuple[str, Sequence[str]]] = {}
        for place in [place for place in mains if any(place_of(one) == place for one in own)]:
            details = [metric_name(mains[place])] if len(metrics) > 1 else []
            details += [place.split] if place.split else []
            if found := known.get(place):
                details += [f"{len(found.queries):,} queries", f"{found.documents:,} documents"]
            columns[place] = titles[place], details
        return Table(caption, columns, own, gains)

    own = [one for one in comparisons if one.metric == mains[place_of(one)]]
    caption = f"{metric_name(next(iter(metrics)))} × 100" if len(metrics) == 1 else "Main metric of each set × 100"
    summary = table(f"{caption}, with its 95 % interval", own)
    if len(mains) > 1 and len(metrics) == 1:
        average = {Place(AVERAGE, ""): (AVERAGE, [f"of {len(mains)} sets"])}
        summary = Table(summary.caption, {**summary.columns, **average}, [*own, *_averages(_cells(own, mains), mains)])
    tables = [summary]
    if tested := [one for one in own if one.base is not None]:
        caption = "Gain over the raw vectors of the same encoder, in points, with its 95 % interval and p"
        tables.append(table(caption, tested, gains=True))
    others = [one for one in comparisons if one.metric != mains[place_of(one)]]
    for metric in dict.fromkeys(one.metric for one in others):
        found = [one for one in others if one.metric == metric]
        sure = ", with its 95 % interval" if any(math.isfinite(one.low) for one in found) else ""
        tables.append(table(f"{metric_name(metric)} × 100{sure}", found))
    return tables


def _averages(cells: Cells, places: Mapping[Place, str]) -> list[Comparison]:
    lines = [line for line in dict.fromkeys(line for line, _ in cells) if all((line, p) in cells for p in places)]
    means = {line: _mean(cells, line, list(places)) for line in lines}
    return [Comparison(AVERAGE, "", line, "", mean, math.nan, math.nan) for line, mean in means.items()]


def headline(comparisons: Sequence[Comparison]) -> str:
    """Name the best configuration for each metric: on average over its data sets, or on the only data set."""
    mains = names.main_metrics(comparisons)
    titles, cells = names.place_names(mains), _cells(comparisons, mains)
    parts = []
    for metric, places in _by_metric(mains).items():
        if found := _averages(cells, dict.fromkeys(places, metric)):
            best = max(found, key=lambda one: one.mean)
            where = f"On {titles[places[0]]}" if len(places) == 1 else f"On average over {len(places)} data sets"
            figure = f"{metric_name(metric)} {points(best.mean)}"
            parts.append(f"{where}, {names.named(best.configuration)} is best: {figure}.")
    return " ".join(parts) or "No configuration was measured on all data sets."


def gains(comparisons: Sequence[Comparison]) -> list[str]:
    """For each encoder, describe the figures of its raw vectors, of the flow and of the automatic choice."""
    mains = names.main_metrics(comparisons)
    cells = _cells(comparisons, mains)
    sentences = []
    for series in names.colours_of(comparisons):
        lines = [line for line in dict.fromkeys(line for line, _ in cells) if series_of(line) == series]
        raw = next((line for line in lines if line.transform == RAW), None)
        others = sorted((line for line in lines if line.transform != RAW), key=names.preference)
        shown = [line for line in others if line.transform in names.PREFERRED] or others[:1]
        if series != NO_ENCODER and raw and shown:
            clauses = [_change(cells, raw, shown, metric, places) for metric, places in _by_metric(mains).items()]
            sentences.append(f"{series}: {'; '.join(filter(None, clauses))}.")
    return sentences


def _change(
    cells: Cells, raw: Configuration, lines: Sequence[Configuration], metric: str, places: Sequence[Place]
) -> str:
    """Describe the metric of the raw vectors, and how each line changes it.

    Averages are over the sets that have figures for all of them.
    """
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
