"""The data of a retrieval benchmark: topics, rankings with their scores by query, and comparisons with raw vectors.

Tables, plots, the report and MTEB's files are made from these data. Rankings are read back from TREC run files.

The measures are those of ir_measures, which uses pytrec_eval (the code of trec_eval), and MS MARCO's code for
reciprocal rank. A document is relevant if its grade is at least 1. nDCG uses the grade as gain. A query without hits or
without a relevant document counts as 0. Intervals and p-values are those of `measures.intervals`, paired by query. No
p-value is corrected for the number of comparisons.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from retriever.evaluate.results import RAW, Configuration, Row, summarise

MAIN = "ndcg@10"
# The metrics in the notation of ir_measures. The relevance level is explicit, because its default differs by measure.
MEASURES = {
    "ndcg@10": "nDCG@10",
    "mrr@10": "RR(rel=1)@10",
    "map@100": "AP(rel=1)@100",
    "recall@10": "R(rel=1)@10",
    "recall@100": "R(rel=1)@100",
}
METRICS = tuple(MEASURES)
DEPTH = 100
"""The number of documents that are ranked for each query."""

Hits = Sequence[tuple[str, float]]
"""Document ids with their scores, best first."""
# Besides the figure itself, a metric has rows for its interval, for its gain over raw and for the gain's p-value.
PARTS = re.compile(r"(.+?)(?:_(gain_low|gain_high|gain|low|high|p))?")


@dataclass(frozen=True)
class Topics:
    """The judged queries of one split of a test collection."""

    dataset: str
    split: str
    queries: Mapping[str, str]
    """The text of each query by its id, in the order of the file. Only queries with judgements are included."""
    judgements: Mapping[str, Mapping[str, int]]
    """The grades by query id and document id. The grade 0 means judged as not relevant."""
    documents: int
    """The number of documents in the corpus."""
    text_of: Callable[[Sequence[str]], Mapping[str, tuple[str, str]]]
    """A function that returns the title and text of documents by id. It leaves out unknown ids."""
    notes: Sequence[str] = ()
    """One sentence for each kind of data that was left out, with the reason."""


@dataclass(frozen=True)
class Ranking:
    """The hits of one configuration for every query, and the scores of each query."""

    dataset: str
    split: str
    configuration: Configuration
    hits: Mapping[str, Hits]
    """The hits of every judged query, by query id."""
    scores: Mapping[str, Mapping[str, float]]
    """The values by metric and query id, from 0 to 1."""
    provenance: Mapping[str, object] = field(default_factory=dict)

    def mean(self, metric: str) -> float:
        return fmean(self.scores[metric].values())


@dataclass(frozen=True)
class Comparison:
    """The figure of a configuration with its 95 % interval and its paired gain over a base, from 0 to 1."""

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
    """The two-sided p-value of a paired test, or None if there is no base."""
    spread: float | None = None
    """The sample standard deviation over seeds, or None for a single seed."""


def comparisons(rows: Iterable[Row]) -> list[Comparison]:
    """Make a comparison of each configuration, set and metric: the mean over seeds, with their largest p-value."""
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
    interval = means.get("low", math.nan), means.get("high", math.nan)
    base = line._replace(transform=RAW) if tested else None
    spread = seeds.spread / 100 if seeds.seeds > 1 else None
    return Comparison(dataset, split, line, metric, means["mean"], *interval, base, **tested, spread=spread)


def scores(judgements: Mapping[str, Mapping[str, int]], hits: Mapping[str, Hits]) -> dict[str, dict[str, float]]:
    """Return the values by metric and query id, for every judged query.

    The scores of hits must be strictly decreasing (see `trec`). Otherwise ties would be broken by id.
    """
    import ir_measures

    measures = {ir_measures.parse_measure(name): metric for metric, name in MEASURES.items()}
    found: dict[str, dict[str, float]] = {metric: dict.fromkeys(judgements, 0.0) for metric in MEASURES}
    qrels = {query: dict(own) for query, own in judgements.items()}
    run = {query: dict(own) for query, own in hits.items()}
    for value in ir_measures.iter_calc(list(measures), qrels, run):
        found[measures[value.measure]][value.query_id] = float(value.value)
    return found
