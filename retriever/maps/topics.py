"""Groups of documents that belong together, each named by the words that are its own.

A word is characteristic of a group when many of its documents have it and few of the others: its weight is
p log(p / q) log(1 / q), with p the share of the group's documents that have it and q the share of all. The first two
factors are what it adds to the divergence of the one from the other, the last is its idf. What every text has, such as
"the", weighs nothing, so no list of stop words is needed in any language.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import import_faiss
from indexes.sqlite.words import query_words
from retriever.terminal import cut, one_line

MOST = 20
ITERATIONS = 25
WORDS_SHOWN = 3
LONGEST_WORD = 24
SHORTEST_WORD = 3
SHARED_BY = 2
"""So many documents of a group must have a word."""
TELLING = 1.2
"""A word that is not so many times as common in a group as everywhere says nothing of it."""
# Scripts that put no spaces between words are cut into pairs of characters.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff]")


def groups(vectors: NDArray[np.float32], seed: int = 0) -> NDArray[np.int64]:
    """The group of each unit vector, by k-means over cosines; about sqrt(n / 2) groups, largest first."""
    count = min(MOST, max(1, round(math.sqrt(len(vectors) / 2))), _distinct(vectors))
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
    number = {int(group): place for place, group in enumerate(found[np.argsort(-sizes, kind="stable")])}
    return np.array([number[int(group)] for group in nearest[:, 0]], np.int64)


def _distinct(vectors: NDArray[np.float32]) -> int:
    """How many of them differ, as far as that matters."""
    seen: set[bytes] = set()
    for row in vectors:
        seen.add(row.tobytes())
        if len(seen) == MOST:
            break
    return len(seen)


def labels(texts: Sequence[Sequence[str]]) -> list[str]:
    """A name for each group of texts: the words most characteristic of it."""
    spelled: dict[str, Counter[str]] = {}
    holding = [Counter[str]() for _ in texts]
    for own, group in zip(holding, texts, strict=True):
        for text in group:
            forms = {word.casefold(): word for word in _words(text)}
            own.update(forms.keys())
            for folded, word in forms.items():
                spelled.setdefault(folded, Counter())[word] += 1
    documents = sum(map(len, texts))
    everywhere = sum(holding, Counter[str]())
    named = []
    for own, group in zip(holding, texts, strict=True):
        least = min(SHARED_BY, len(group))
        shared = {word: many / len(group) for word, many in own.items() if many >= least}
        usual = {word: everywhere[word] / documents for word in shared}
        telling = [word for word in shared if shared[word] > TELLING * usual[word]]
        # Where there is one group alone, its commonest words are all there is to say.
        score = {word: _weight(shared[word], usual[word]) for word in telling} or shared
        ranked = sorted(score, key=lambda word: (-score[word], word))
        named.append(", ".join(_spelling(spelled[word]) for word in _different(ranked)))
    return named


def _words(text: str) -> list[str]:
    found = []
    for run in query_words(text):
        if _UNSPACED.match(run):
            found += [run[place : place + 2] for place in range(max(1, len(run) - 1))]
        elif len(run) >= SHORTEST_WORD and not run[0].isdigit():
            found.append(run)
    return found


def _weight(own: float, everywhere: float) -> float:
    return own * math.log(own / everywhere) * -math.log(everywhere)


def _different(ranked: Sequence[str]) -> list[str]:
    """The first that are not forms of one another, as `cell` and `cells` are."""
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
