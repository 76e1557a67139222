"""What shared words alone say about a question and a sentence: the baselines that any encoder is judged against.

Words are lower-cased and counted once, as sets; BM25 counts them all, and knows how rare each is among the sentences.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from retriever.transforms.bm25 import Bm25, tokenize

Floats = NDArray[np.float64]

BATCH = 256


def jaccard(questions: Sequence[str], sentences: Sequence[str]) -> Floats:
    """Words in both over words in either; 0 where there are none."""
    pairs = zip(map(_set, questions), map(_set, sentences), strict=True)
    return np.array([len(one & other) / max(len(one | other), 1) for one, other in pairs])


def containment(questions: Sequence[str], sentences: Sequence[str]) -> Floats:
    """The share of the question's words that the sentence has; 0 where it has no words."""
    pairs = zip(map(_set, questions), map(_set, sentences), strict=True)
    return np.array([len(one & other) / max(len(one), 1) for one, other in pairs])


def bm25(questions: Sequence[str], sentences: Sequence[str]) -> Floats:
    """BM25 of the question for the sentence, among all different sentences given."""
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
    return set(tokenize(text))
