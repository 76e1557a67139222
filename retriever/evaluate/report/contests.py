"""The main comparisons of a benchmark: the flow against raw vectors, and search by both against search by words.

A contest is the paired gain of one system over another on one data set, with a test of significance. It is within
chance if its p-value is 0.05 or more.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from retriever.evaluate.measures.intervals import mean_interval, sign_flip_p
from retriever.evaluate.rankings import Comparison, Ranking
from retriever.evaluate.report import names
from retriever.evaluate.report.names import Place, Series, metric_name, place_of, points, series_of, system_of
from retriever.evaluate.results import RAW
from retriever.evaluate.systems import BM25, HYBRID

CHANCE = 0.05
ROOM = 1.08
"""The axis of the picture is this much longer than its longest interval."""


@dataclass(frozen=True)
class Contest:
    """The gain of `system` over `rival`, from -1 to 1, with its 95 % interval and its p-value."""

    system: str
    rival: str
    place: str
    series: str
    metric: str
    gain: float
    low: float
    high: float
    p: float

    @property
    def outcome(self) -> str:
        if self.p >= CHANCE:
            return "within chance"
        return "better" if self.gain > 0 else "worse"


def contests(
    comparisons: Sequence[Comparison],
    rankings: Sequence[Ranking],
    mains: Mapping[Place, str],
    titles: Mapping[Place, str],
) -> list[Contest]:
    """Return the contests that were measured: first those of the flow, then those of search by both."""
    return [*_against_raw(comparisons, mains, titles), *_against_words(rankings, mains, titles)]


def _against_raw(
    comparisons: Sequence[Comparison], mains: Mapping[Place, str], titles: Mapping[Place, str]
) -> Iterator[Contest]:
    """For each encoder and data set, yield the contest of the flow, or of the transform that was measured instead."""
    best: dict[tuple[Series, Place], Comparison] = {}
    for one in comparisons:
        line, place = one.configuration, place_of(one)
        if one.p is None or one.metric != mains.get(place) or line.transform in (RAW, HYBRID):
            continue
        key = series_of(line), place
        if key not in best or names.preference(line) < names.preference(best[key].configuration):
            best[key] = one
    for (series, place), one in best.items():
        assert one.p is not None
        figures = (one.gain, one.gain_low, one.gain_high, one.p)
        yield Contest(system_of(one.configuration), "raw", titles[place], str(series), one.metric, *figures)


def _against_words(
    rankings: Sequence[Ranking], mains: Mapping[Place, str], titles: Mapping[Place, str]
) -> Iterator[Contest]:
    words = {place_of(one): one for one in rankings if system_of(one.configuration) == BM25}
    for one in rankings:
        place = place_of(one)
        rival, metric = words.get(place), mains.get(place, "")
        if one.configuration.transform != HYBRID or rival is None:
            continue
        own, other = one.scores.get(metric, {}), rival.scores.get(metric, {})
        if not (shared := [query for query in own if query in other]):
            continue
        gains = np.array([own[query] - other[query] for query in shared])
        series = str(series_of(one.configuration)._replace(fit=""))
        figures = (float(gains.mean()), *mean_interval(gains, least=-1.0), sign_flip_p(gains))
        yield Contest(HYBRID, BM25, titles[place], series, metric, *figures)


def verdict(found: Sequence[Contest]) -> str:
    """Say in one sentence who wins: by how much if there is one contest of a kind, else on how many data sets."""
    kinds: dict[tuple[str, str], list[Contest]] = {}
    for one in found:
        kinds.setdefault((one.system, one.rival), []).append(one)
    text = "; ".join(_said(system, rival, own) for (system, rival), own in kinds.items())
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _said(system: str, rival: str, own: Sequence[Contest]) -> str:
    rival = {"raw": "the raw vectors", BM25: "BM25"}.get(rival, rival)
    if len(own) == 1:
        (one,) = own
        figure = f"{points(one.gain, '+')} points of {metric_name(one.metric)}"
        if one.outcome == "within chance":
            return f"the difference between {system} and {rival} is within chance ({figure})"
        return f"{system} is {one.outcome} than {rival} ({figure})"
    better, worse, chance = (sum(one.outcome == kind for one in own) for kind in ("better", "worse", "within chance"))
    of = "comparisons" if len({one.series for one in own}) > 1 else "data sets"
    told = [f"{system} is better than {rival} on {better or 'none'} of {len(own)} {of}"]
    told += [f"worse on {worse}"] if worse else []
    told += [f"and within chance on {chance}"] if chance else []
    return ", ".join(told)


@dataclass(frozen=True)
class Row:
    """A contest in the picture. Positions are percentages of the width."""

    contest: Contest
    low: float
    at: float
    high: float

    @property
    def words(self) -> str:
        return f"{points(self.contest.gain, '+')}, {self.contest.outcome}"


def picture(found: Sequence[Contest]) -> tuple[list[Row], float]:
    """Return the rows of the picture, and where a gain of zero is."""
    ends = [end for one in found for end in (one.low, one.high, one.gain) if math.isfinite(end)]
    least, most = min([0.0, *ends]) * ROOM, max([0.0, *ends]) * ROOM
    span = (most - least) or 1.0

    def across(value: float) -> float:
        return round(2 + 96 * (value - least) / span, 2)

    return [Row(one, across(one.low), across(one.gain), across(one.high)) for one in found], across(0.0)
