"""BM25 over a small list of texts in memory, and a tokenizer that splits text into words.

BM25 is as in Robertson and Zaragoza (2009), with the usual k1 = 0.9 and b = 0.4. A score is the sum over the query's
words of idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length)), with idf = log(1 + (N - n + 0.5) / (n +
0.5)).
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

K1, B = 0.9, 0.4
# In scripts without spaces between words, every character counts as a word.
_WORD = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff]|[^\W\u2e80-\u9fff\uf900-\ufaff]+")


def tokenize(text: str) -> list[str]:
    """Return the words of a text in lower case. In scripts without spaces, every character is a word."""
    return _WORD.findall(text.lower())


class Bm25:
    """Scores queries against a fixed list of texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        from scipy import sparse  # imported here, because a search imports this module but does not need scipy

        counts = [Counter(tokenize(text)) for text in texts]
        self.vocabulary = {word: number for number, word in enumerate(dict.fromkeys(w for c in counts for w in c))}
        lengths = np.array([sum(count.values()) for count in counts], np.float64)
        rows = np.repeat(np.arange(len(texts)), [len(count) for count in counts])
        columns = np.array([self.vocabulary[word] for count in counts for word in count], np.int64)
        frequencies = np.array([n for count in counts for n in count.values()], np.float64)
        holding = np.bincount(columns, minlength=len(self.vocabulary))
        idf = np.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        norm = K1 * (1 - B + B * lengths / max(lengths.mean(), 1e-9))
        weights = idf[columns] * frequencies * (K1 + 1) / (frequencies + norm[rows])
        shape = (len(texts), len(self.vocabulary))
        self._weights = sparse.csr_matrix((weights, (rows, columns)), shape=shape)

    def scores(self, queries: Sequence[str]) -> NDArray[np.float64]:
        """Return the scores, with one row per query and one column per text."""
        from scipy import sparse

        found = [[self.vocabulary[w] for w in tokenize(query) if w in self.vocabulary] for query in queries]
        rows = np.repeat(np.arange(len(queries)), [len(own) for own in found])
        columns = np.array([word for own in found for word in own], np.int64)
        shape = (len(queries), len(self.vocabulary))
        matrix = sparse.csr_matrix((np.ones(len(columns)), (rows, columns)), shape=shape)
        return np.asarray((matrix @ self._weights.T).toarray())
