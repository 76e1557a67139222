"""Vectors and words in one ranking, without labels: how surprising is it that a document is so like the query?

Both are brought to the same unit, nats, the logarithm of how rarely chance would do as well, and added, as the
evidence of two witnesses is:

- The cosines of a query with the passages of a collection are near a Gaussian, the more so in the flow's space. A
  passage that stands z standard deviations above their mean has a surprise of -log P(N(0, 1) > z).
- BM25 sums over the words found idf * tf * (k1 + 1) / (tf + …). A word's idf is about the logarithm of how rarely a
  document holds it, its surprise in nats; what it is multiplied by grows with its frequency to at most k1 + 1. So the
  surprise is BM25 / (k1 + 1).

So whichever of the two tells documents apart more sharply for this query weighs more. Reciprocal rank fusion, which
sees only ranks, weighs both alike and loses where one of them is poor.

One thing surprise cannot tell is whether what stands out to an encoder is what people mean. An encoder that the words
of the text say is bettered by a transform (`choosing.MARGIN`) was never taught that, through its transform no more than
raw: its nats count a tenth. With all of them the un-tuned BERT drew the ranking below what BM25 gives alone on
Cranfield, SciFact and WikiQA; a tenth was best there of the weights tried, so expect somewhat less elsewhere.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.folder.space import Match, Nearest
from indexes.protocol import AnySpace, AnyWords
from indexes.sqlite.words import K1
from retriever.transforms.choice import MARGIN

DEPTH = 100
"""How many documents each side puts forward, where fewer than half as many are asked for."""
UNTAUGHT = 0.1
"""What a nat of an encoder counts that was never tuned for similarity."""


def trust(choice: Mapping[str, Any] | None, family: str) -> float:
    """What a nat of the vectors counts beside one of the words.

    `choice` is the evidence that a transform was chosen by; without any, that one is there at all is the evidence.
    """
    agreement = {candidate["spec"]: candidate["agreement"] for candidate in (choice or {}).get("candidates", ())}
    if none := agreement.get("none"):
        return 1.0 if max(agreement.values()) < (1 + MARGIN) * none else UNTAUGHT
    return 1.0 if family == "none" else UNTAUGHT


# From here on the tail of the Gaussian is told by its asymptotic series.
FAR = 30.0


def surprise(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """-log P(N(0, 1) > z), in nats; by the standard library, as importing scipy takes longer than a search."""
    return np.array([_surprise(value) for value in z.ravel().tolist()], np.float64).reshape(z.shape)


def _surprise(z: float) -> float:
    if z < 0:
        return -math.log1p(-math.erfc(-z / math.sqrt(2)) / 2)
    if z < FAR:
        return -math.log(math.erfc(z / math.sqrt(2)) / 2)
    # The tail is nothing to floating point here: its first terms are exact to the last digits.
    return z * z / 2 + math.log(z * math.sqrt(2 * math.pi)) - math.log1p(-1 / z**2 + 3 / z**4 - 15 / z**6)


def fused(
    space: AnySpace,
    words: AnyWords,
    queries: Sequence[str],
    vectors: NDArray[np.float32],
    k: int,
    *,
    trust: float,
    documents: Any = None,
) -> list[list[Match]]:
    """The k best documents of each query by both; a score is the sum of the two surprises, in nats.

    Each side puts its best forward, and all of these are scored by both. `trust` is what a nat of the vectors counts.
    `documents` are those that may be found, as the store gives them for conditions, None for all.
    """
    depth = max(DEPTH, 2 * k)
    nearest = space.nearest_passages(vectors, depth, documents=documents)
    means, spreads = space.background(vectors)
    results = []
    for query, vector, near, mean, spread in zip(queries, vectors, nearest, means, spreads, strict=True):
        forward = [passage.document for passage, _ in near]
        forward += [number for number, _ in words.best(query, depth, documents)]
        found = space.nearest_of(vector, list(dict.fromkeys(forward)))
        by_words = words.scores(query, found)
        cosines = np.array([cosine for _, cosine in found.values()])
        lexical = np.array([by_words.get(number, 0.0) for number in found])
        scores = trust * surprise((cosines - mean) / spread) + lexical / (K1 + 1)
        passages = (passage for passage, _ in found.values())
        results.append(sorted(zip(passages, scores.tolist(), strict=True), key=_best_first)[:k])
    return space.matches(results)


def _best_first(scored: Nearest) -> tuple[float, int]:
    return -scored[1], scored[0].document
