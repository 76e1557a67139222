"""Fuse search by meaning and by words into one ranking, without labels, by adding their surprises.

The surprise of a score is -log P in nats, where P is the probability that a random passage scores at least as high.
The surprises of independent evidence can be added:

- Meaning: the cosines of a query with all passages are close to a Gaussian, above all in the space of the flow. A
  passage z standard deviations above the mean has the surprise -log P(N(0, 1) > z).
- Words: BM25 sums idf * tf * (k1 + 1) / (tf + ...) over the words found. The idf of a word is about -log of the share
  of documents that contain the word, which is the surprise of finding it. The factor beside the idf grows with the
  frequency of the word, up to k1 + 1. So the surprise is BM25 / (k1 + 1).

The side that separates the documents of a query more sharply therefore has more weight. Reciprocal rank fusion uses
only ranks. It gives both sides the same weight, so one poor side makes its results worse.

A surprise does not tell whether the encoder and people agree on what is similar. If a transform improves the agreement
of an encoder with the words of the text by more than `choice.MARGIN`, the encoder was never tuned for similarity. The
surprise of its vectors is then multiplied by 0.1. At full weight, an untuned BERT made the ranking worse than BM25
alone on Cranfield, SciFact and WikiQA. Of the weights that were tried there, 0.1 was the best; expect a somewhat
smaller gain on other data.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.protocol import AnySpace
from indexes.rows import Match, Nearest
from indexes.sqlite.words import K1
from indexes.stores import AnyWords

DEPTH = 100
"""The number of documents that each side proposes, unless 2 k is more."""
# Above this z, the tail of the Gaussian underflows in float64, and its asymptotic series is exact enough.
FAR = 30.0


def surprise(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute -log P(N(0, 1) > z) in nats. scipy is not used, because importing it takes longer than a search."""
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
    """Return the k best documents of each query. The score is the weighted sum of both surprises, in nats.

    Each side proposes its best documents, and both sides score all proposed documents. `trust` is the weight of the
    vectors. `documents` limits the search to the documents that `store.matching` returned; None means all documents.
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
