"""Measures of retrieval by query, and comparisons of rankings.

The measures are those of ir_measures (trec_eval's code through pytrec_eval; MS MARCO's for reciprocal rank). A document
is relevant if its grade is at least 1; nDCG takes the grade as gain. A query without hits or without a relevant
document counts as 0.

The interval of a mean is a percentile bootstrap over queries. A gain is paired by query: its interval is the same
bootstrap of the differences, its p a two-sided permutation test that swaps the two rankings query by query. Nothing is
corrected for the number of comparisons.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from retriever.evaluate.measures.intervals import mean_interval, sign_flip_p
from retriever.evaluate.rankings import MAIN, Comparison, Hits, Ranking
from retriever.evaluate.results import RAW

# In the notation of ir_measures, with the relevance level, whose default depends on the measure.
NAMES = {
    "ndcg@10": "nDCG@10",
    "mrr@10": "RR(rel=1)@10",
    "map@100": "AP(rel=1)@100",
    "recall@10": "R(rel=1)@10",
    "recall@100": "R(rel=1)@100",
}

Values = NDArray[np.float64]


def scores(judgements: Mapping[str, Mapping[str, int]], hits: Mapping[str, Hits]) -> dict[str, dict[str, float]]:
    """Metric to query id to value, for every judged query.

    The scores of hits must be strictly decreasing (`trec.strictly_decreasing`), else ties would be broken by id.
    """
    import ir_measures

    measures = {ir_measures.parse_measure(name): metric for metric, name in NAMES.items()}
    found: dict[str, dict[str, float]] = {metric: dict.fromkeys(judgements, 0.0) for metric in NAMES}
    qrels = {query: dict(own) for query, own in judgements.items()}
    run = {query: dict(own) for query, own in hits.items()}
    for value in ir_measures.iter_calc(list(measures), qrels, run):
        found[measures[value.measure]][value.query_id] = float(value.value)
    return found


def compare(rankings: Sequence[Ranking], metric: str = MAIN) -> list[Comparison]:
    """Each ranking with its interval and its gain over the raw ranking of the same encoder and pooling, if any."""
    raw = {_family(ranking): ranking for ranking in rankings if ranking.configuration.transform == RAW}
    return [_compared(ranking, raw.get(_family(ranking)), metric) for ranking in rankings]


def _family(ranking: Ranking) -> tuple[str, str, str, str]:
    return ranking.dataset, ranking.split, ranking.configuration.encoder, ranking.configuration.pooling


def _compared(ranking: Ranking, base: Ranking | None, metric: str) -> Comparison:
    queries = list(ranking.scores[metric])
    values = _values(ranking, metric, queries)
    low, high = mean_interval(values)
    place = ranking.dataset, ranking.split, ranking.configuration, metric, float(values.mean()), low, high
    if base is None or base is ranking:
        return Comparison(*place)
    gains = values - _values(base, metric, queries)
    gain_low, gain_high = mean_interval(gains, least=-1.0)
    gain = float(gains.mean())
    return Comparison(*place, base.configuration, gain, gain_low, gain_high, sign_flip_p(gains))


def _values(ranking: Ranking, metric: str, queries: Sequence[str]) -> Values:
    return np.array([ranking.scores[metric][query] for query in queries], np.float64)
