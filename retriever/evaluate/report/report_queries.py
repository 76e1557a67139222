"""Raw vectors against a transform, query by query: which queries moved, and what stood at the top before and after."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from retriever.evaluate.rankings import Ranking, Topics
from retriever.evaluate.report.grouping import (
    NO_ENCODER,
    Place,
    Series,
    metric_name,
    place_of,
    preference,
    series_of,
    system_of,
)
from retriever.evaluate.report.report_tables import points
from retriever.evaluate.results import RAW
from retriever.terminal import one_line

MOVED = 5
SHOWN_HITS = 5
# More of a text than any report shows.
LONGEST_TEXT = 500
SAME = 1e-9


@dataclass(frozen=True)
class Hit:
    """A document in a list, how it is judged, and where the other list has it."""

    document: str
    title: str
    text: str
    grade: int | None
    move: str


@dataclass(frozen=True)
class Moved:
    """A query whose figure changed, with the beginnings of both lists."""

    query: str
    before: str
    after: str
    gain: str
    base_hits: Sequence[Hit]
    other_hits: Sequence[Hit]


@dataclass(frozen=True)
class Pair:
    """The raw ranking of an encoder on a data set and the one that is held against it."""

    name: str
    series: Series
    metric: str
    topics: Topics
    base: Ranking
    other: Ranking
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def base_name(self) -> str:
        return system_of(self.base.configuration)

    @property
    def other_name(self) -> str:
        return system_of(self.other.configuration)

    @property
    def metric_name(self) -> str:
        return metric_name(self.metric)

    @cached_property
    def figures(self) -> dict[str, tuple[float, float]]:
        """Query id to its figure before and after."""
        before, after = self.base.scores[self.metric], self.other.scores[self.metric]
        return {query: (value, after[query]) for query, value in before.items() if query in after}

    def text(self, query: str) -> str:
        return one_line(self.topics.queries.get(query, query))

    def gain(self, query: str) -> float:
        before, after = self.figures[query]
        return after - before

    def direction(self, query: str) -> int:
        gain = self.gain(query)
        return 0 if abs(gain) <= SAME else int(math.copysign(1, gain))

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many queries gained, lost and stayed."""
        directions = [self.direction(query) for query in self.figures]
        return directions.count(1), directions.count(-1), directions.count(0)

    @property
    def means(self) -> tuple[str, str]:
        before, after = zip(*self.figures.values(), strict=True)
        return points(math.fsum(before) / len(before)), points(math.fsum(after) / len(after))

    @cached_property
    def gained(self) -> list[Moved]:
        return [self._moved(query) for query in self.most(1)]

    @cached_property
    def lost(self) -> list[Moved]:
        return [self._moved(query) for query in self.most(-1)]

    def most(self, direction: int) -> list[str]:
        """The queries that moved farthest one way, farthest first."""
        found = [query for query in self.figures if self.direction(query) == direction]
        return sorted(found, key=lambda query: -abs(self.gain(query)))[:MOVED]

    def _moved(self, query: str) -> Moved:
        before, after = self.figures[query]
        return Moved(
            query=self.text(query),
            before=points(before),
            after=points(after),
            gain=points(after - before, "+"),
            base_hits=self._hits(query, self.base, self.other, forward=True),
            other_hits=self._hits(query, self.other, self.base, forward=False),
        )

    def _hits(self, query: str, shown: Ranking, held_against: Ranking, *, forward: bool) -> list[Hit]:
        """`forward` where `shown` is the list before."""
        elsewhere = {document: rank for rank, (document, _) in enumerate(held_against.hits.get(query, ()), 1)}
        grades = self.topics.judgements.get(query, {})
        found = []
        for rank, (document, _) in enumerate(shown.hits.get(query, ())[:SHOWN_HITS], 1):
            title, text = (one_line(part[:LONGEST_TEXT]) for part in self.texts.get(document, ("", "")))
            move = _move(rank, elsewhere.get(document), forward=forward)
            found.append(Hit(document, title, text, grades.get(document), move))
        return found


def pairs(
    topics: Sequence[Topics], rankings: Sequence[Ranking], mains: Mapping[Place, str], names: Mapping[Place, str]
) -> tuple[list[Pair], list[str]]:
    """What can be compared query by query, and a sentence for each encoder and data set where nothing can."""
    found, missing = [], []
    for one in topics:
        place = place_of(one)
        by_encoder: dict[tuple[str, str], list[Ranking]] = {}
        for ranking in rankings:
            if place_of(ranking) == place and series_of(ranking.configuration) != NO_ENCODER:
                by_encoder.setdefault(ranking.configuration[:2], []).append(ranking)
        own = [_pair(one, names[place], mains.get(place), here) for here in by_encoder.values()]
        missing += [made for made in own if isinstance(made, str)]
        found += _with_texts(one, [made for made in own if isinstance(made, Pair)])
    return found, missing


def _pair(topics: Topics, name: str, main: str | None, rankings: Sequence[Ranking]) -> Pair | str:
    """Of the rankings of one encoder and pooling those to compare, or why there are none."""
    series = series_of(rankings[0].configuration)._replace(fit="")
    others = [ranking for ranking in rankings if ranking.configuration.transform != RAW]
    if len(others) == len(rankings):
        return f"{name}, {series}: the raw vectors (none) were not measured, so there is nothing to compare with."
    if not others:
        return f"{name}, {series}: only the raw vectors were measured, so there is nothing to compare them with."
    other = min(others, key=lambda ranking: preference(ranking.configuration))
    raws = [ranking for ranking in rankings if ranking.configuration.transform == RAW]
    raw = next((one for one in raws if one.configuration.fit == other.configuration.fit), raws[0])
    shared = [metric for metric in raw.scores if metric in other.scores]
    metric = main if main in shared else next(iter(shared), "")
    made = Pair(name, series, metric, topics, raw, other)
    if not metric or not made.figures:
        return f"{name}, {series}: raw and {made.other_name} have no query in common."
    return made


def _with_texts(topics: Topics, own: Sequence[Pair]) -> list[Pair]:
    """The same pairs with the texts of every document they show, read at once."""
    wanted = {
        document: None
        for pair in own
        for query in [*pair.most(1), *pair.most(-1)]
        for ranking in (pair.base, pair.other)
        for document, _ in ranking.hits.get(query, ())[:SHOWN_HITS]
    }
    texts = topics.text_of(list(wanted)) if wanted else {}
    return [replace(pair, texts=texts) for pair in own]


def _move(rank: int, elsewhere: int | None, *, forward: bool) -> str:
    """Where a document goes from the list before, or comes from in the list after."""
    if elsewhere is None:
        return "gone" if forward else "new"
    if elsewhere == rank:
        return f"= {rank}"
    rises = elsewhere < rank if forward else rank < elsewhere
    return f"{'▲' if rises else '▼'} {'to' if forward else 'from'} {elsewhere}"
