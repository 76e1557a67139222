"""Compute correlations with human scores, times 100, and edit distances.

STS12 to STS16 have subsets, and the literature scores them in two ways that differ by up to 20 points. We compute both.
`spearman_all` is one correlation over all pairs (SBERT, SimCSE). `spearman_wmean` is the mean of the correlations of
the subsets, weighted by their size (BERT-flow, BERT-whitening).
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retriever.transforms.isotropy import Floats, unit_rows

WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")


def pair_cosines(rows: NDArray[np.float32], first: Sequence[int], second: Sequence[int]) -> Floats:
    """Return the cosine of rows[first[i]] and rows[second[i]] for each i."""
    unit = unit_rows(rows)
    return np.asarray(np.einsum("ij,ij->i", unit[list(first)], unit[list(second)]))


def spearman(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> float:
    """Return Spearman's rank correlation times 100, or NaN if either side is constant."""
    from scipy.stats import spearmanr

    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return float("nan")
    return 100 * float(spearmanr(one, other).statistic)


def pearson(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> float:
    """Return Pearson's correlation times 100, or NaN if either side is constant."""
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return float("nan")
    return 100 * float(np.corrcoef(one, other)[0, 1])


def spearman_wmean(similarity: Floats, gold: Floats, subsets: Sequence[str]) -> float:
    """Return the mean of the subsets' Spearman correlations, weighted by their number of pairs."""
    names = np.asarray(subsets)
    total, weight = 0.0, 0
    for name in dict.fromkeys(subsets):
        inside = names == name
        total += float(inside.sum()) * spearman(similarity[inside], gold[inside])
        weight += int(inside.sum())
    return total / weight


def edit_distance(one: str, other: str, unit: str = "word") -> int:
    """Return Levenshtein's distance between two sentences.

    The unit is a lower-cased word or punctuation mark, or a character.
    """
    from rapidfuzz.distance import Levenshtein

    if unit == "character":
        return Levenshtein.distance(one, other)
    return Levenshtein.distance(WORD_OR_MARK.findall(one.lower()), WORD_OR_MARK.findall(other.lower()))
