"""Lexical baselines: the similarity of a question and a sentence by their shared words.

Jaccard and containment use sets of lower-cased words. BM25 counts repeated words and gives rare words more weight.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from retriever.corpus.passages import words
from retriever.transforms.agreement import Bm25

Floats = NDArray[np.float64]

BATCH = 256


def jaccard(questions: Sequence[str], sentences: Sequence[str]) -> Floats:
    """Return the number of shared words divided by the number of all words, or 0 if there are no words."""
    pairs = zip(map(_set, questions), map(_set, sentences), strict=True)
    return np.array([len(one & other) / max(len(one | other), 1) for one, other in pairs])


def containment(questions: Sequence[str], sentences: Sequence[str]) -> Floats:
    """Return the share of the question's words that the sentence has, or 0 if the question has no words."""
    pairs = zip(map(_set, questions), map(_set, sentences), strict=True)
    return np.array([len(one & other) / max(len(one), 1) for one, other in pairs])


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


BASELINES: dict[str, Callable[[Sequence[str], Sequence[str]], Floats]] = {
    "jaccard": jaccard,
    "containment": containment,
    "bm25": bm25,
}


def _set(text: str) -> set[str]:
    return set(words(text))
