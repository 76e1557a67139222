"""Documents of random words, and BM25 over them, written again from the formula that FTS5 documents."""

import math
from collections import Counter

import numpy as np

from retriever import Document

WORDS = "ant bee cat dog elk fox gnu hen owl pig rat yak sea sun ice fog oak elm ash run dig eat".split()


def some_documents(count: int, seed: int = 0) -> list[Document]:
    """Documents of 2 to 29 words with titles of none to two; each is one passage."""
    rng = np.random.default_rng(seed)
    return [
        Document(
            f"d{i}", " ".join(rng.choice(WORDS, rng.integers(2, 30))), " ".join(rng.choice(WORDS, rng.integers(3)))
        )
        for i in range(count)
    ]


def bm25(query: str, texts: list[str], k1: float = 1.2, b: float = 0.75) -> list[float]:
    """The score of each text; 0 for those that hold no word of the query."""
    counts = [Counter(text.lower().split()) for text in texts]
    lengths = [sum(count.values()) for count in counts]
    mean = sum(lengths) / len(lengths)
    scores = [0.0] * len(texts)
    for word in dict.fromkeys(query.lower().split()):
        holding = sum(word in count for count in counts)
        idf = math.log((len(texts) - holding + 0.5) / (holding + 0.5))
        idf = idf if idf > 0 else 1e-6
        for place, count in enumerate(counts):
            frequency = count[word]
            scores[place] += (
                idf * frequency * (k1 + 1) / (frequency + k1 * (1 - b + b * lengths[place] / mean)) if frequency else 0
            )
    return scores
