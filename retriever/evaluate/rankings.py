"""The data of a retrieval benchmark: topics, rankings with their scores by query, and comparisons with raw vectors.

Tables, plots, the report and MTEB's files are made from these. Rankings are read back from TREC run files, so an
unchanged run is not searched again.

The measures are those of ir_measures (trec_eval's code through pytrec_eval; MS MARCO's for reciprocal rank). A document
is relevant if its grade is at least 1; nDCG takes the grade as gain. A query without hits or without a relevant
document counts as 0.

The interval of a mean is a percentile bootstrap over queries. A gain is paired by query: its interval is the same
bootstrap of the differences, its p a two-sided permutation test that swaps the two rankings query by query. Nothing is
corrected for the number of comparisons.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from retriever.evaluate.measures.intervals import mean_interval, sign_flip_p
from retriever.evaluate.results import RAW, Configuration, Row, summarise

MAIN = "ndcg@10"
# The metrics in the notation of ir_measures, with the relevance level, whose default depends on the measure.
MEASURES = {
    "ndcg@10": "nDCG@10",
    "mrr@10": "RR(rel=1)@10",
    "map@100": "AP(rel=1)@100",
    "recall@10": "R(rel=1)@10",
    "recall@100": "R(rel=1)@100",
}
METRICS = tuple(MEASURES)
DEPTH = 100
"""How many documents are ranked for each query."""

Hits = Sequence[tuple[str, float]]
"""Document ids with their scores, best first."""
# Besides the figure itself, a metric has rows for its interval, its gain over raw and the p of the gain.
PARTS = re.compile(r"(.+?)(?:_(gain_low|gain_high|gain|low|high|p))?")


@dataclass(frozen=True)
class Topics:
    """The judged queries of one split of a test collection."""

    dataset: str
    split: str
    queries: Mapping[str, str]
    """Id to text, in the order of the file; only queries that have judgements."""
    judgements: Mapping[str, Mapping[str, int]]
    """Query id to document id to grade; 0 is judged and not relevant."""
    documents: int
    """The number of documents in the corpus."""
    text_of: Callable[[Sequence[str]], Mapping[str, tuple[str, str]]]
    """Returns title and text of documents by id; unknown ids are left out."""
    notes: Sequence[str] = ()
    """What was left out of the data and why, one sentence each."""


@dataclass(frozen=True)
class Ranking:
    """The hits of one configuration for every query, and the scores of each query."""

    dataset: str
    split: str
    configuration: Configuration
    hits: Mapping[str, Hits]
    """Query id to hits, for every judged query."""
    scores: Mapping[str, Mapping[str, float]]
    """Metric to query id to value, from 0 to 1."""
    provenance: Mapping[str, object] = field(default_factory=dict)

    def mean(self, metric: str) -> float:
        values = self.scores[metric]
        return sum(values.values()) / len(values)


@dataclass(frozen=True)
class Comparison:
    """The figure of a configuration with its 95 % interval and its paired gain over a base, as rows divided by 100."""

    dataset: str
    split: str
    configuration: Configuration
    metric: str
    mean: float
    low: float
    high: float
    base: Configuration | None = None
    """The raw vectors of the same encoder and pooling, if they were measured."""
    gain: float = 0.0
    gain_low: float = 0.0
    gain_high: float = 0.0
    p: float | None = None
    """Two-sided, from a paired test; None without a base."""
    spread: float | None = None
    """The sample standard deviation over seeds; None for a single seed."""


def comparisons(rows: Iterable[Row]) -> list[Comparison]:
    """The rows of each configuration, data set and metric as one figure: over seeds the mean, and the largest p."""
    found: dict[tuple[str, str, Configuration, str], dict[str, list[float]]] = {}
    for row in rows:
        if parts := PARTS.fullmatch(row.metric):
            key = row.dataset, row.split, row.configuration, parts[1]
            found.setdefault(key, {}).setdefault(parts[2] or "mean", []).append(row.value)
    return [_comparison(*key, values) for key, values in found.items() if "mean" in values]


def _comparison(
    dataset: str, split: str, line: Configuration, metric: str, values: Mapping[str, list[float]]
) -> Comparison:
    seeds = summarise(values["mean"])
    means = {name: summarise(own).mean / 100 for name, own in values.items()}
    tested: dict[str, float] = {}
    if "p" in values and line.transform != RAW:
        tested = {name: means[name] for name in ("gain", "gain_low", "gain_high")} | {"p": max(values["p"])}
    return Comparison(
        dataset,
        split,
        line,
        metric,
        means["mean"],
        means.get("low", math.nan),
        means.get("high", math.nan),
        line._replace(transform=RAW) if tested else None,
        **tested,
        spread=seeds.spread / 100 if seeds.seeds > 1 else None,
    )


def scores(judgements: Mapping[str, Mapping[str, int]], hits: Mapping[str, Hits]) -> dict[str, dict[str, float]]:
    """Metric to query id to value, for every judged query.

    The scores of hits must be strictly decreasing (`trec.strictly_decreasing`), else ties would be broken by id.
    """
    import ir_measures

    measures = {ir_measures.parse_measure(name): metric for metric, name in MEASURES.items()}
    found: dict[str, dict[str, float]] = {metric: dict.fromkeys(judgements, 0.0) for metric in MEASURES}
    qrels = {query: dict(own) for query, own in judgements.items()}
    run = {query: dict(own) for query, own in hits.items()}
    for value in ir_measures.iter_calc(list(measures), qrels, run):
        found[measures[value.measure]][value.query_id] = float(value.value)
    return found


def compare(rankings: Sequence[Ranking], metric: str = MAIN) -> list[Comparison]:
    """Each ranking with its interval and its gain over the raw ranking of the same encoder and pooling, if any."""

    def family(ranking: Ranking) -> tuple[str, str, str, str]:
        return ranking.dataset, ranking.split, ranking.configuration.encoder, ranking.configuration.pooling

    raw = {family(ranking): ranking for ranking in rankings if ranking.configuration.transform == RAW}
    return [_compared(ranking, raw.get(family(ranking)), metric) for ranking in rankings]


def _compared(ranking: Ranking, base: Ranking | None, metric: str) -> Comparison:
    own = ranking.scores[metric]
    values = np.array(list(own.values()), np.float64)
    low, high = mean_interval(values)
    place = ranking.dataset, ranking.split, ranking.configuration, metric, float(values.mean()), low, high
    if base is None or base is ranking:
        return Comparison(*place)
    gains = values - np.array([base.scores[metric][query] for query in own], np.float64)
    gain_low, gain_high = mean_interval(gains, least=-1.0)
    gain = float(gains.mean())
    return Comparison(*place, base.configuration, gain, gain_low, gain_high, sign_flip_p(gains))
