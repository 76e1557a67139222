"""Fuse search by meaning and by words into one ranking, without labels, by adding their surprises.

A surprise is the negative logarithm of the probability that chance does as well, in nats. Independent evidence adds:

- Meaning: the cosines of a query with all passages are close to a Gaussian, the more so in the space of the flow. A
  passage z standard deviations above the mean has the surprise -log P(N(0, 1) > z).
- Words: BM25 sums idf * tf * (k1 + 1) / (tf + ...) over the words found. The idf of a word is about the logarithm of
  how rarely a document holds it, which is its surprise. The factor grows with the frequency up to k1 + 1. So the
  surprise is BM25 / (k1 + 1).

The side that separates the documents of a query more sharply therefore weighs more. Reciprocal rank fusion sees only
ranks: it weighs both sides equally, and loses if one of them is poor.

A surprise does not tell whether an encoder finds similar what people find similar. An encoder whose agreement with the
words of the text a transform improves by more than `choice.MARGIN` was never tuned for similarity. Its surprise then
counts a tenth. At full weight, an untuned BERT made the ranking worse than BM25 alone on Cranfield, SciFact and WikiQA.
A tenth was the best of the weights tried there; expect somewhat less on other data.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.protocol import AnySpace, AnyWords
from indexes.rows import Match, Nearest
from indexes.sqlite.words import K1

DEPTH = 100
"""Each side proposes this many documents, or 2 k if that is more."""
# Beyond this z, the tail of the Gaussian underflows and its asymptotic series is exact.
FAR = 30.0


def surprise(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute -log P(N(0, 1) > z) in nats, without scipy, because importing it takes longer than a search."""
    return np.array([_surprise(value) for value in z.ravel().tolist()], np.float64).reshape(z.shape)


def _surprise(z: float) -> float:
    if z < 0:
        return -math.log1p(-math.erfc(-z / math.sqrt(2)) / 2)
    if z < FAR:
        return -math.log(math.erfc(z / math.sqrt(2)) / 2)
    return z * z / 2 + math.log(z * math.sqrt(2 * math.pi)) - math.log1p(-1 / z**2 + 3 / z**4 - 15 / z**6)


def fuse(
    space: AnySpace,
    words: AnyWords,
    queries: Sequence[str],
    vectors: NDArray[np.float32],
    k: int,
    *,
    trust: float,
    documents: Any = None,
) -> list[list[Match]]:
    """Return the k best documents of each query; the score is the weighted sum of both surprises, in nats.

    Each side proposes its best documents, and both sides score all of them. `trust` is the weight of the vectors.
    `documents` limits the search to the documents that `store.matching` returned; None stands for all.
    """
    depth = max(DEPTH, 2 * k)
    nearest = space.nearest_passages(vectors, depth, documents=documents)
    means, spreads = space.background(vectors)
    results = []
    for query, vector, near, mean, spread in zip(queries, vectors, nearest, means, spreads, strict=True):
        proposed = [passage.document for passage, _ in near]
        proposed += [number for number, _ in words.best(query, depth, documents)]
        found = space.nearest_of(vector, list(dict.fromkeys(proposed)))
        by_words = words.scores(query, found)
        cosines = np.array([cosine for _, cosine in found.values()])
        lexical = np.array([by_words.get(number, 0.0) for number in found])
        scores = trust * surprise((cosines - mean) / spread) + lexical / (K1 + 1)
        passages = (passage for passage, _ in found.values())
        results.append(sorted(zip(passages, scores.tolist(), strict=True), key=_best_first)[:k])
    return space.matches(results)


def _best_first(scored: Nearest) -> tuple[float, int]:
    return -scored[1], scored[0].document
