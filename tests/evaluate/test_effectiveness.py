"""Measures and tests of rankings against figures computed by hand and by other means."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import average_precision_score, ndcg_score

from retriever.evaluate.measures.intervals import mean_interval, sign_flip_p
from retriever.evaluate.rankings import METRICS, Hits, Ranking, comparisons, scores
from retriever.evaluate.results import Configuration
from retriever.evaluate.retrieval import compare

LOG2_3 = np.log2(3)


def hits(documents: Sequence[str]) -> list[tuple[str, float]]:
    return [(document, float(-rank)) for rank, document in enumerate(documents)]


def test_by_hand() -> None:
    judgements = {
        "graded": {"a": 1, "b": 2, "c": 0},
        "missed": {"a": 1},
        "nothing found": {"a": 1},
        "hopeless": {"a": 0},
        "late": {"x11": 3, "unknown": 1},
    }
    answers = {
        "graded": hits(["c", "a", "b"]),
        "missed": hits(["b", "c"]),
        "nothing found": [],
        "hopeless": hits(["a"]),
        "late": hits([f"x{n}" for n in range(1, 101)]),
    }
    found = scores(judgements, answers)
    assert tuple(found) == METRICS
    assert all(list(by_query) == list(judgements) for by_query in found.values())
    for metric in METRICS:
        assert [found[metric][query] for query in ("missed", "nothing found", "hopeless")] == [0, 0, 0]
    assert found["ndcg@10"]["graded"] == pytest.approx((1 / LOG2_3 + 2 / 2) / (2 + 1 / LOG2_3))
    assert found["mrr@10"]["graded"] == pytest.approx(1 / 2)
    assert found["map@100"]["graded"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert found["recall@10"]["graded"] == 1
    late = {metric: found[metric]["late"] for metric in METRICS}
    assert late == pytest.approx(
        {"ndcg@10": 0, "mrr@10": 0, "map@100": 1 / 11 / 2, "recall@10": 0, "recall@100": 1 / 2}
    )


def test_as_scikit_learn_has_them() -> None:
    """On all documents ranked, with some at grade 0 and several grades."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        grades, order = rng.integers(0, 4, 30), rng.permutation(30)
        grades[0] = 1
        given = {"q": {f"d{n}": int(grade) for n, grade in enumerate(grades)}}
        found = scores(given, {"q": hits([f"d{n}" for n in order])})
        rank_scores = np.empty(30)
        rank_scores[order] = -np.arange(30)
        assert found["ndcg@10"]["q"] == pytest.approx(ndcg_score([grades], [rank_scores], k=10))
        assert found["map@100"]["q"] == pytest.approx(average_precision_score(grades > 0, rank_scores))


def ranking(encoder: str, transform: str, values: Mapping[str, float], pooling: str = "mean") -> Ranking:
    nothing: dict[str, Hits] = {query: [] for query in values}
    return Ranking("set", "test", Configuration(encoder, pooling, transform, "documents"), nothing, {"ndcg@10": values})


def test_each_is_compared_with_the_raw_of_its_own_encoder_and_pooling() -> None:
    queries = [f"q{n}" for n in range(40)]
    rng = np.random.default_rng(1)
    raw = dict(zip(queries, rng.uniform(0, 0.5, 40), strict=True))
    better = {query: raw[query] + rng.uniform(0.1, 0.5) for query in reversed(queries)}
    given = [
        ranking("one", "none", raw),
        ranking("one", "flow", better),
        ranking("one", "auto", raw),
        ranking("one", "flow", better, "cls"),
        ranking("bm25", "", better, ""),
    ]
    first, flow, same, other, bm25 = comparisons(compare(given))
    assert first.base is None and first.p is None and first.low < first.mean < first.high
    assert flow.base == given[0].configuration
    gains = np.array([better[query] - raw[query] for query in queries])
    assert flow.mean == pytest.approx(np.mean(list(better.values()))) and flow.gain == pytest.approx(gains.mean())
    assert flow.p is not None and flow.p < 0.001 and 0.1 < flow.gain_low < flow.gain < flow.gain_high < 0.5
    assert (same.gain, same.gain_low, same.gain_high, same.p) == (0, 0, 0, 1)
    assert other.base is None and bm25.base is None and bm25.mean == flow.mean
    assert compare(given) == compare(given)


def test_p_is_exact_where_all_signs_can_be_tried() -> None:
    gains = np.array([0.3, 0.1, -0.05, 0.2, 0.25, 0.0, 0.15])
    means = [np.mean(gains * signs) for signs in itertools.product([1, -1], repeat=len(gains))]
    share = np.mean([abs(mean) >= abs(gains.mean()) - 1e-12 for mean in means])
    assert sign_flip_p(gains) == pytest.approx(share) == sign_flip_p(-gains)


def test_p_and_interval_agree_with_the_normal_approximation() -> None:
    gains = np.random.default_rng(3).normal(0.01, 0.15, 400)
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    assert sign_flip_p(gains) == pytest.approx(2 * norm.sf(abs(gains.mean()) / error), rel=0.2)
    low, high = mean_interval(gains)
    assert (low, high) == pytest.approx((gains.mean() - 1.96 * error, gains.mean() + 1.96 * error), abs=0.15 * error)


def test_one_query_says_nothing() -> None:
    (_, found) = comparisons(compare([ranking("one", "none", {"q": 0.2}), ranking("one", "flow", {"q": 0.7})]))
    assert (found.low, found.high, found.gain_low, found.gain_high, found.p) == (0, 1, -1, 1, 1)
