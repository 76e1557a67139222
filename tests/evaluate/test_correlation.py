"""Correlations and edit distance against computations by hand."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from retriever.evaluate.measures.similarity import edit_distance, pair_cosines, pearson, spearman, spearman_wmean


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1 on, ties at their mean."""
    return np.array([1 + (values < v).sum() + ((values == v).sum() - 1) / 2 for v in values])


def by_hand(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    a, b = ranks(one), ranks(other)
    a, b = a - a.mean(), b - b.mean()
    return 100 * float((a * b).sum() / math.sqrt((a * a).sum() * (b * b).sum()))


@pytest.fixture
def scored() -> tuple[NDArray[np.float64], NDArray[np.float64], list[str]]:
    rng = np.random.default_rng(0)
    gold = np.round(rng.uniform(0, 5, 90), 1)
    subsets = ["a"] * 50 + ["b"] * 30 + ["c"] * 10
    # A shift between the subsets, so that the two aggregations differ.
    similarity = gold / 5 + rng.normal(0, 0.3, 90) + np.repeat([0.0, 2.0, 4.0], [50, 30, 10])
    return np.round(similarity, 2), gold, subsets


def test_all_is_one_correlation(scored: tuple[NDArray[np.float64], NDArray[np.float64], list[str]]) -> None:
    similarity, gold, _ = scored
    assert spearman(similarity, gold) == pytest.approx(by_hand(similarity, gold), abs=1e-9)


def test_wmean_weighs_subsets_by_size(scored: tuple[NDArray[np.float64], NDArray[np.float64], list[str]]) -> None:
    similarity, gold, subsets = scored
    parts = [slice(0, 50), slice(50, 80), slice(80, 90)]
    expected = sum((p.stop - p.start) * by_hand(similarity[p], gold[p]) for p in parts) / 90
    assert spearman_wmean(similarity, gold, subsets) == pytest.approx(expected, abs=1e-9)
    assert abs(expected - spearman(similarity, gold)) > 5
    order = np.random.default_rng(1).permutation(90)
    shuffled = spearman_wmean(similarity[order], gold[order], [subsets[n] for n in order])
    assert shuffled == pytest.approx(expected, abs=1e-9)
    assert spearman_wmean(similarity, gold, [""] * 90) == pytest.approx(spearman(similarity, gold), abs=1e-9)


def test_a_constant_side_has_no_correlation() -> None:
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3])) and math.isnan(pearson([1, 2, 3], [2, 2, 2]))


def test_cosines_of_pairs() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(10, 5)).astype(np.float32)
    rows[7] = 0
    first, second = [0, 3, 7], [1, 3, 2]
    found = pair_cosines(rows, first, second)
    a, b = rows[0].astype(float), rows[1].astype(float)
    assert found[0] == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-12)
    assert found[1] == pytest.approx(1) and found[2] == 0


def levenshtein(one: list[str], other: list[str]) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        previous, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]


def test_edit_distance_by_the_textbook() -> None:
    one, other = "A man is playing, slowly, the guitar.", "a Woman plays the guitar"
    assert edit_distance(one, other, "character") == levenshtein(list(one), list(other))
    words = ["a", "man", "is", "playing", ",", "slowly", ",", "the", "guitar", "."]
    assert edit_distance(one, other) == levenshtein(words, ["a", "woman", "plays", "the", "guitar"]) == 7
