"""BM25 as FTS5 documents it, written again from its formula: over plain lower-case words, title and text together."""

import math
from collections import Counter


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
