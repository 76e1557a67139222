"""Compare raw vectors with a transform query by query.

The report shows a scatter plot of all queries, and the hits of the queries that changed most.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from retriever.evaluate.rankings import Ranking, Topics
from retriever.evaluate.report import names
from retriever.evaluate.report.names import NO_ENCODER, Place, Series, place_of, points, series_of
from retriever.evaluate.results import RAW
from retriever.terminal import cut, one_line

MOVED = 5
SHOWN_HITS = 5
# Longer than any text that the report shows.
LONGEST_TEXT = 500
QUERY_LENGTH = 80
SAME = 1e-9
# Lengths of the scatter plot in units of its view box.
SIDE, LEFT, BELOW, AROUND = 280.0, 42.0, 40.0, 12.0
SMALLEST_DOT, LARGEST_DOT = 3.0, 13.0


@dataclass(frozen=True)
class Pair:
    """The raw ranking of an encoder on a data set, and the ranking of one of its transforms."""

    name: str
    series: Series
    metric: str
    topics: Topics
    base: Ranking
    other: Ranking
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @cached_property
    def figures(self) -> dict[str, tuple[float, float]]:
        """Return the figures of each query before and after the transform, by query id."""
        before, after = self.base.scores[self.metric], self.other.scores[self.metric]
        return {query: (value, after[query]) for query, value in before.items() if query in after}

    @property
    def means(self) -> tuple[str, str]:
        before, after = zip(*self.figures.values(), strict=True)
        return points(math.fsum(before) / len(before)), points(math.fsum(after) / len(after))

    @cached_property
    def directions(self) -> dict[str, int]:
        """Map each query id to 1 if the query gained, -1 if it lost, and 0 if it did not change."""
        return {q: 0 if abs(b - a) <= SAME else int(math.copysign(1, b - a)) for q, (a, b) in self.figures.items()}

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return how many queries gained, lost and did not change."""
        found = list(self.directions.values())
        return found.count(1), found.count(-1), found.count(0)

    def most(self, direction: int) -> list[str]:
        """Return the queries that gained or lost most, the largest change first."""
        found = [query for query, own in self.directions.items() if own == direction]
        return sorted(found, key=lambda query: -abs(self.figures[query][1] - self.figures[query][0]))[:MOVED]

    def text(self, query: str) -> str:
        return one_line(self.topics.queries.get(query, query))

    def hits(self, query: str, shown: Ranking, against: Ranking) -> list[tuple[str, str, str, int | None, str]]:
        """Return the first hits of a ranking: id, title, text, grade, and the rank in the other ranking."""
        ranks = {document: rank for rank, (document, _) in enumerate(against.hits.get(query, ()), 1)}
        grades = self.topics.judgements.get(query, {})
        found = []
        for rank, (document, _) in enumerate(shown.hits.get(query, ())[:SHOWN_HITS], 1):
            title, text = (one_line(part[:LONGEST_TEXT]) for part in self.texts.get(document, ("", "")))
            move = _move(rank, ranks.get(document), before=shown is self.base)
            found.append((document, title, text, grades.get(document), move))
        return found

    def dots(self, grid: int, most: int) -> dict[str, list[dict[str, object]]]:
        """Return dots on a grid, by the figures of queries before (x) and after (y).

        A tooltip names at most `most` queries.
        """
        places: dict[tuple[int, int, int], list[str]] = {}
        for query, (before, after) in self.figures.items():
            places.setdefault((round(before * grid), round(after * grid), self.directions[query]), []).append(query)
        dots: dict[str, list[dict[str, object]]] = {"same": [], "lost": [], "gained": []}
        for (x, y, sign), queries in sorted(places.items(), key=lambda item: -len(item[1])):
            before, after = self.figures[queries[0]]
            shown = [cut(self.text(query), QUERY_LENGTH) for query in queries[:most]]
            if len(queries) > len(shown):
                shown.append(f"and {len(queries) - len(shown)} more" if shown else f"{len(queries)} queries")
            radius = round(min(SMALLEST_DOT * len(queries) ** 0.35, LARGEST_DOT), 1)
            tooltip = f"{points(before)} → {points(after)}: {'; '.join(shown)}"
            place = {"x": round(LEFT + x / grid * SIDE, 1), "y": round(AROUND + (1 - y / grid) * SIDE, 1)}
            dots[("same", "gained", "lost")[sign]].append({**place, "radius": radius, "tooltip": tooltip})
        return dots


def pairs(
    topics: Sequence[Topics], rankings: Sequence[Ranking], mains: Mapping[Place, str], titles: Mapping[Place, str]
) -> tuple[list[Pair], list[str]]:
    """Return the pairs of rankings to compare query by query, and a sentence for each place where there is none."""
    found: list[Pair] = []
    missing: list[str] = []
    for one in topics:
        place = place_of(one)
        by_encoder: dict[tuple[str, str], list[Ranking]] = {}
        for ranking in rankings:
            if place_of(ranking) == place and series_of(ranking.configuration) != NO_ENCODER:
                by_encoder.setdefault(ranking.configuration[:2], []).append(ranking)
        made = [_pair(one, titles[place], mains.get(place), own) for own in by_encoder.values()]
        missing += [one for one in made if isinstance(one, str)]
        own_pairs = [one for one in made if isinstance(one, Pair)]
        wanted = {
            document: None
            for pair in own_pairs
            for query in [*pair.most(1), *pair.most(-1)]
            for ranking in (pair.base, pair.other)
            for document, _ in ranking.hits.get(query, ())[:SHOWN_HITS]
        }
        texts = one.text_of(list(wanted)) if wanted else {}
        found += [replace(pair, texts=texts) for pair in own_pairs]
    return found, missing


def _pair(topics: Topics, name: str, main: str | None, rankings: Sequence[Ranking]) -> Pair | str:
    """Return the two rankings of an encoder to compare, or the reason why they cannot be compared."""
    series = series_of(rankings[0].configuration)._replace(fit="")
    others = [ranking for ranking in rankings if ranking.configuration.transform != RAW]
    raws = [ranking for ranking in rankings if ranking.configuration.transform == RAW]
    if not raws:
        return f"{name}, {series}: the raw vectors (none) were not measured, so there is nothing to compare with."
    if not others:
        return f"{name}, {series}: only the raw vectors were measured, so there is nothing to compare them with."
    other = min(others, key=lambda ranking: names.preference(ranking.configuration))
    raw = next((one for one in raws if one.configuration.fit == other.configuration.fit), raws[0])
    shared = [metric for metric in raw.scores if metric in other.scores]
    metric = main if main in shared else next(iter(shared), "")
    made = Pair(name, series, metric, topics, raw, other)
    if not metric or not made.figures:
        return f"{name}, {series}: raw and {names.system_of(other.configuration)} have no query in common."
    return made


def _move(rank: int, other: int | None, *, before: bool) -> str:
    """Say where a hit of the first ranking goes to, or where a hit of the second ranking comes from."""
    if other is None:
        return "gone" if before else "new"
    if other == rank:
        return f"= {rank}"
    rises = other < rank if before else rank < other
    return f"{'▲' if rises else '▼'} {'to' if before else 'from'} {other}"
