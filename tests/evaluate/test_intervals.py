"""Areas under ROC, intervals and paired tests against scikit-learn, scipy and the definitions."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from retriever.evaluate.measures.intervals import area_figures, mean_figures, placements, sign_flip_p


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=4, max_size=60))
def test_the_area_is_scikit_learns_whatever_ties(pairs: list[tuple[int, bool]]) -> None:
    scores, labels = np.array([s for s, _ in pairs], np.float64), np.array([label for _, label in pairs])
    if labels.all() or not labels.any():
        return
    expected = roc_auc_score(labels, scores)
    assert area_figures(scores, labels)["auc"] == pytest.approx(100 * expected)
    assert [part.mean() for part in placements(scores, labels)] == pytest.approx([expected, expected])
    u = stats.mannwhitneyu(scores[labels], scores[~labels]).statistic
    assert expected == pytest.approx(u / (labels.sum() * (~labels).sum()))


def two_scorings(seed: int, count: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.random(count) < 0.4
    shared = rng.normal(size=count) + labels
    return labels, shared + 0.5 * rng.normal(size=count), shared + 1.5 * rng.normal(size=count)


@pytest.mark.heavy
def test_delong_is_what_resampling_gives() -> None:
    labels, own, raw = two_scorings(0)
    figures = area_figures(own, labels, raw)
    rng, areas, gains = np.random.default_rng(1), [], []
    for _ in range(800):
        drawn = rng.integers(0, len(labels), len(labels))
        area = roc_auc_score(labels[drawn], own[drawn])
        areas.append(area)
        gains.append(area - roc_auc_score(labels[drawn], raw[drawn]))
    for name, resampled in (("auc", areas), ("auc_gain", gains)):
        low, high = 100 * np.quantile(resampled, [0.025, 0.975])
        assert figures[f"{name}_low"] == pytest.approx(low, abs=0.12 * (high - low))
        assert figures[f"{name}_high"] == pytest.approx(high, abs=0.12 * (high - low))
    assert figures["auc_gain"] == pytest.approx(100 * (roc_auc_score(labels, own) - roc_auc_score(labels, raw)))
    assert figures["auc_p"] < 0.01
    assert area_figures(own, labels, own)["auc_p"] == 1


def test_delong_by_its_definition() -> None:
    labels, own, raw = two_scorings(2, 40)
    beats = [[(a > b) + (a == b) / 2 for b in own[~labels]] for a in own[labels]]
    of_raw = [[(a > b) + (a == b) / 2 for b in raw[~labels]] for a in raw[labels]]
    difference = np.array(beats) - np.array(of_raw)
    variance = sum(difference.mean(axis=axis).var(ddof=1) / difference.shape[1 - axis] for axis in (0, 1))
    figures = area_figures(own, labels, raw)
    assert figures["auc_gain_high"] - figures["auc_gain"] == pytest.approx(196 * variance**0.5, rel=1e-3)
    assert figures["auc_p"] == pytest.approx(2 * stats.norm.sf(abs(difference.mean()) / variance**0.5))


def test_a_mean_by_questions_is_scipys() -> None:
    rng = np.random.default_rng(5)
    raw = rng.random(120)
    own = np.clip(raw + rng.normal(0.05, 0.2, 120), 0, 1)
    figures = mean_figures("map", own, raw)
    for name, values in (("map", own), ("map_gain", own - raw)):
        found = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=9999, rng=1).confidence_interval
        width = 100 * (found.high - found.low)
        assert figures[name] == pytest.approx(100 * values.mean())
        assert figures[f"{name}_low"] == pytest.approx(100 * found.low, abs=0.05 * width)
        assert figures[f"{name}_high"] == pytest.approx(100 * found.high, abs=0.05 * width)
    expected = stats.permutation_test(
        (own, raw), lambda a, b, axis: (a - b).mean(axis), permutation_type="samples", n_resamples=9999, rng=2
    )
    assert figures["map_p"] == pytest.approx(expected.pvalue, abs=0.01)


def test_sign_flips_against_all_of_them() -> None:
    differences = np.array([0.4, 0.1, 0.3, -0.2, 0.25, 0.0, 0.15, 0.3])
    sums = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=len(differences))]
    exact = np.mean([total >= abs(differences.sum()) - 1e-9 for total in sums])
    assert sign_flip_p(differences) == pytest.approx(exact, abs=0.01)
    assert sign_flip_p(np.zeros(10)) == 1
