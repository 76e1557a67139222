"""Clusters of similar documents, and their labels, which consist of characteristic words.

A word is characteristic of a cluster if many documents of the cluster contain it, and few other documents do. Its
weight is p log(p / q) log(1 / q). Here p is the share of the cluster's documents that contain the word, and q is the
share of all documents that contain it. The factors p log(p / q) are the word's part of the Kullback-Leibler divergence.
The factor log(1 / q) is its idf. A word that every text contains, such as "the", has the weight 0, so no list of stop
words is needed.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import import_faiss
from indexes.terms import is_unspaced, words_of
from retriever.terminal import cut, one_line

MOST_CLUSTERS = 10
"""As many as the map has colours that everybody can tell apart."""
ITERATIONS = 25
WORDS_SHOWN = 3
LONGEST_WORD = 24
SHORTEST_WORD = 3
SHARED_BY = 2
"""Minimum number of documents of a cluster that contain a word of its label."""
MORE_FREQUENT = 1.2
"""A word of a label must be more than this many times as frequent in the cluster as in all documents."""


def groups(vectors: NDArray[np.float32], seed: int = 0) -> NDArray[np.int64]:
    """Return the cluster of each unit vector, by k-means over cosines.

    There are about sqrt(n / 2) clusters, and at most MOST_CLUSTERS. Cluster 0 is the largest.
    """
    distinct = len({hash(row.tobytes()) for row in vectors})
    count = min(MOST_CLUSTERS, max(1, round(math.sqrt(len(vectors) / 2))), distinct)
    if count <= 1:
        return np.zeros(len(vectors), np.int64)
    means = import_faiss().Kmeans(
        vectors.shape[1],
        count,
        niter=ITERATIONS,
        nredo=1,
        seed=seed + 1,
        spherical=True,
        min_points_per_centroid=1,
        max_points_per_centroid=len(vectors),
    )
    means.train(vectors)
    _, nearest = means.index.search(vectors, 1)
    found, sizes = np.unique(nearest[:, 0], return_counts=True)
    number = {int(group): rank for rank, group in enumerate(found[np.argsort(-sizes, kind="stable")])}
    return np.array([number[int(group)] for group in nearest[:, 0]], np.int64)


def labels(texts: Sequence[Sequence[str]]) -> list[str]:
    """Return a label for each cluster of texts. A label consists of the cluster's most characteristic words."""
    spellings: dict[str, Counter[str]] = {}
    counts = [Counter[str]() for _ in texts]
    for own, group in zip(counts, texts, strict=True):
        for text in group:
            forms = {word.casefold(): word for word in _words(text)}
            own.update(forms.keys())
            for folded, word in forms.items():
                spellings.setdefault(folded, Counter())[word] += 1
    documents = sum(map(len, texts))
    everywhere = sum(counts, Counter[str]())
    found = []
    for own, group in zip(counts, texts, strict=True):
        least = min(SHARED_BY, len(group))
        p = {word: count / len(group) for word, count in own.items() if count >= least}
        q = {word: everywhere[word] / documents for word in p}
        weights = {w: p[w] * math.log(p[w] / q[w]) * -math.log(q[w]) for w in p if p[w] > MORE_FREQUENT * q[w]}
        weights = weights or p  # a single cluster is labelled with its most frequent words
        ranked = sorted(weights, key=lambda word: (-weights[word], word))
        found.append(", ".join(_spelling(spellings[word]) for word in _unrelated(ranked)))
    return found


def _words(text: str) -> list[str]:
    found = []
    for run in words_of(text):
        if is_unspaced(run):
            found += [run[place : place + 2] for place in range(max(1, len(run) - 1))]
        elif len(run) >= SHORTEST_WORD and not run[0].isdigit():
            found.append(run)
    return found


def _unrelated(ranked: Sequence[str]) -> list[str]:
    """Return the first WORDS_SHOWN words, without other forms of the same word, e.g. `cells` after `cell`."""
    chosen: list[str] = []
    for word in ranked:
        stem = word[: max(4, len(word) - 3)]
        if not any(other.startswith(stem) or word.startswith(other[: max(4, len(other) - 3)]) for other in chosen):
            chosen.append(word)
        if len(chosen) == WORDS_SHOWN:
            break
    return chosen


def _spelling(forms: Counter[str]) -> str:
    form = max(sorted(forms), key=lambda form: forms[form])
    return cut(one_line(form), LONGEST_WORD)
