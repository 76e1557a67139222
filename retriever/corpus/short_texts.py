"""Cut short texts from passages. To an encoder they look like queries, but no real queries are needed to make them.

Vectors of short texts differ from vectors of long passages. This difference says nothing about meaning. If a transform
is fitted on long passages alone, the difference dominates the search. If the transform is fitted on both, the
difference is one more direction of high variance, and whitening removes it. About half of the short texts are whole
sentences. The others are phrases of a few words, like those that people type.

The gain was measured as nDCG@10 after soft whitening, with a BERT that was never tuned for similarity. On the abstracts
of Cranfield, 400 sentences and phrases raise it from 17.1 to 24. On the sentences of WikiQA, where only the phrases are
shorter than the passages, they raise it from 41.1 to 43.7.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from retriever.corpus.passages import sentences

# Minimum and maximum number of words.
PHRASE = (2, 12)
SENTENCE = (4, 40)
# With up to four short texts of each passage instead of one, soft whitening gained 0.3 to 3.5 points of nDCG@10 on
# five collections of 240 to 300 passages.
MOST_OF_A_PASSAGE = 4


def short_texts(passages: Sequence[str], count: int, seed: int) -> list[str]:
    """Cut up to `count` different short texts from random passages, at most MOST_OF_A_PASSAGE from each."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    rounds = (rng.permutation(len(passages)) for _ in range(MOST_OF_A_PASSAGE))
    for number, place in enumerate(chain.from_iterable(rounds)):
        if len(found) == count:
            break
        text = passages[place]
        spans = sentences(text)
        usable = [(a, b) for a, b in spans if len(word_units(text[a:b])[0]) >= SENTENCE[0]]
        if not usable:
            continue
        a, b = usable[rng.integers(len(usable))]
        # If a passage has only one sentence, only a phrase is shorter than the passage.
        whole = number % 2 == 0 and len(spans) > 1
        short = (first_words(text[a:b], SENTENCE[1]) if whole else _phrase(text[a:b], rng)).strip()
        if short and short.split() != text.split():
            found[short] = None
    return list(found)


def first_words(sentence: str, most: int) -> str:
    units, separator = word_units(sentence)
    return separator.join(units[:most])


def _phrase(sentence: str, rng: np.random.Generator) -> str:
    """Choose a random run of consecutive words that is shorter than the sentence."""
    units, separator = word_units(sentence)
    least, most = PHRASE
    size = int(rng.integers(least, min(most, len(units) - 1) + 1))
    start = int(rng.integers(0, len(units) - size + 1))
    return separator.join(units[start : start + size])


def word_units(sentence: str) -> tuple[list[str], str]:
    """Return the words of a sentence, and the separator between them.

    In scripts without spaces between words, return pairs of characters and an empty separator.
    """
    words = sentence.split()
    if len(words) > 1 and len(sentence) < 20 * len(words):
        return words, " "
    return [sentence[place : place + 2] for place in range(0, len(sentence), 2)], ""
