"""Documents of random words, and BM25 over them, written again from the formula that FTS5 documents."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from retriever import Document

WORDS = "ant bee cat dog elk fox gnu hen owl pig rat yak sea sun ice fog oak elm ash run dig eat".split()
TITLE_WEIGHT = 2


def some_documents(count: int, seed: int = 0) -> list[Document]:
    """Documents of 2 to 29 words with titles of none to two; each is one passage."""
    rng = np.random.default_rng(seed)
    return [
        Document(
            f"d{i}", " ".join(rng.choice(WORDS, rng.integers(2, 30))), " ".join(rng.choice(WORDS, rng.integers(3)))
        )
        for i in range(count)
    ]


def bm25(query: str, documents: Sequence[Document], k1: float = 1.2, b: float = 0.75) -> list[float]:
    """The score of each document; 0 for those that hold no word of the query.

    A word of the title counts twice. Ids count as one word each, as those of `some_documents` do.
    """
    fields = [(document.id, document.title, document.text) for document in documents]
    counts = [[Counter(field.lower().split()) for field in own] for own in fields]
    lengths = [sum(sum(count.values()) for count in own) for own in counts]
    mean = sum(lengths) / len(lengths)
    scores = [0.0] * len(documents)
    for word in dict.fromkeys(query.lower().split()):
        idf = inverse_frequency(word, documents)
        for place, (id_, title, text) in enumerate(counts):
            frequency = id_[word] + TITLE_WEIGHT * title[word] + text[word]
            scores[place] += (
                idf * frequency * (k1 + 1) / (frequency + k1 * (1 - b + b * lengths[place] / mean)) if frequency else 0
            )
    return scores


def ceiling(query: str, documents: Sequence[Document], k1: float = 1.2) -> float:
    """The score of endlessly many occurrences of every word of the query."""
    return sum((k1 + 1) * inverse_frequency(word, documents) for word in dict.fromkeys(query.lower().split()))


def inverse_frequency(word: str, documents: Sequence[Document]) -> float:
    holding = sum(word in f"{one.id} {one.title} {one.text}".lower().split() for one in documents)
    idf = math.log((len(documents) - holding + 0.5) / (holding + 0.5))
    return idf if idf > 0 else 1e-6
