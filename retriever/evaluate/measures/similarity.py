"""Compute similarities of texts by cosine, edit distance and shared words, and correlations with human scores.

STS12 to STS16 have subsets, and the literature scores them in two ways that differ by up to 20 points. We compute both.
`spearman_all` is one correlation over all pairs (SBERT, SimCSE). `spearman_wmean` is the mean of the correlations of
the subsets, weighted by their size (BERT-flow, BERT-whitening).
"""

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from retriever.corpus.passages import words
from retriever.transforms.agreement import Bm25
from retriever.transforms.isotropy import Floats, unit_rows

BATCH = 256
WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")


def pair_cosines(rows: NDArray[np.float32], first: Sequence[int], second: Sequence[int]) -> Floats:
    """Return the cosine of rows[first[i]] and rows[second[i]] for each i."""
    unit = unit_rows(rows)
    return np.asarray(np.einsum("ij,ij->i", unit[list(first)], unit[list(second)]))


def pearson(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> float:
    """Return Pearson's correlation times 100, or NaN if either side is constant."""
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return float("nan")
    return 100 * float(np.corrcoef(one, other)[0, 1])


def spearman(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> float:
    """Return Spearman's rank correlation times 100, or NaN if either side is constant."""
    from scipy.stats import rankdata

    return pearson(rankdata(one), rankdata(other))


def spearman_wmean(similarity: Floats, gold: Floats, subsets: Sequence[str]) -> float:
    """Return the mean of the subsets' Spearman correlations, weighted by their number of pairs."""
    parts = [np.asarray(subsets) == name for name in dict.fromkeys(subsets)]
    found = [spearman(similarity[inside], gold[inside]) for inside in parts]
    return float(np.average(found, weights=[inside.sum() for inside in parts]))


def edit_distance(one: str, other: str, unit: str = "word") -> int:
    """Return Levenshtein's distance between two sentences, in lower-cased words and marks, or in characters."""
    from rapidfuzz.distance import Levenshtein

    if unit == "character":
        return Levenshtein.distance(one, other)
    return Levenshtein.distance(WORD_OR_MARK.findall(one.lower()), WORD_OR_MARK.findall(other.lower()))


def jaccard(questions: Sequence[str], sentences: Sequence[str]) -> Floats:
    """Return the number of shared words divided by the number of all words, or 0 if there are no words."""
    return np.array([len(one & other) / max(len(one | other), 1) for one, other in _sets(questions, sentences)])


def containment(questions: Sequence[str], sentences: Sequence[str]) -> Floats:
    """Return the share of the question's words that the sentence has, or 0 if the question has no words."""
    return np.array([len(one & other) / max(len(one), 1) for one, other in _sets(questions, sentences)])


def bm25(questions: Sequence[str], sentences: Sequence[str]) -> Floats:
    """Return the BM25 score of each sentence for its question. The corpus is all different sentences given."""
    texts = list(dict.fromkeys(sentences))
    number = {text: n for n, text in enumerate(texts)}
    columns = np.array([number[sentence] for sentence in sentences], np.int64)
    index, scores = Bm25(texts), np.empty(len(questions))
    for start in range(0, len(questions), BATCH):
        batch = slice(start, start + BATCH)
        found = index.scores(questions[batch])
        scores[batch] = found[np.arange(len(found)), columns[batch]]
    return scores


def _sets(questions: Sequence[str], sentences: Sequence[str]) -> list[tuple[set[str], set[str]]]:
    """Return the lower-cased words of each question and of its sentence."""
    return [(set(words(one)), set(words(other))) for one, other in zip(questions, sentences, strict=True)]


Baseline = Callable[[Sequence[str], Sequence[str]], Floats]
BASELINES: dict[str, Baseline] = {"jaccard": jaccard, "containment": containment, "bm25": bm25}
