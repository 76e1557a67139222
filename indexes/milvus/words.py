"""Search by words in Milvus: its BM25 over titles and texts.

Its words are whole ones without case; stems, which SQLite compares, it does not know everywhere, so the two find
different documents. Of a document longer than a field holds, the words of the first 65,000 bytes count.
"""

import contextlib
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import groupby

from indexes.milvus.client import MOST_ROWS, Changed, among
from indexes.milvus.rows import fields_of
from indexes.milvus.store import MilvusStore
from indexes.rows import Match, PassageRow
from indexes.sqlite.words import query_words

TRIES = 5


class MilvusWords:
    """The index of words of one store."""

    def __init__(self, store: MilvusStore) -> None:
        self._store = store

    def best(self, query: str, k: int, documents: str | None = None) -> list[tuple[int, float]]:
        """The k documents with the highest BM25, best first, those that tie by arrival: (number, score)."""
        asked = " ".join(query_words(query))
        if not asked:
            return []
        store = self._store
        found = store.client.search(
            store.documents_table,
            "words",
            [asked],
            min(k, MOST_ROWS),
            ["number"],
            expression=documents or "",
            metric="BM25",
        )
        # BM25 is never below zero, and Milvus Lite gives it as a distance, with a minus.
        scored = [(int(row["number"]), abs(float(row["distance"]))) for row in found[0]]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0]))

    def scores(self, query: str, documents: Iterable[int]) -> dict[int, float]:
        """The BM25 of each of these documents that holds a word of the query."""
        numbers = list(documents)
        return dict(self.best(query, len(numbers), among("number", numbers))) if numbers else {}

    def matches(self, query: str, k: int, documents: str | None = None) -> list[Match]:
        """The best as matches, each by the passage that holds the most words of the query."""
        for _ in range(TRIES):
            with contextlib.suppress(Changed):
                return self._matches(query, k, documents)
        return self._matches(query, k, documents)

    def _matches(self, query: str, k: int, documents: str | None) -> list[Match]:
        found = self.best(query, k, documents)
        stored = {number: (row, passages) for number, row, passages in self._store.rows([n for n, _ in found])}
        matches = []
        for number, score in found:
            if number in stored:
                row, passages = stored[number]
                places = _places(query, row.text)
                matches.append(Match(_fullest(passages, places), score, fields_of(row), places))
        return matches


def _fullest(passages: Sequence[PassageRow], places: Sequence[int]) -> PassageRow:
    return max(passages, key=lambda passage: sum(passage.start <= place < passage.end for place in places))


def _places(query: str, text: str) -> tuple[int, ...]:
    """Where words of the query stand in a text, as offsets of their first characters."""
    wanted = {word.lower() for word in query_words(query)}
    places, position = [], 0
    for is_word, run in groupby(text, lambda c: c.isalnum() or unicodedata.category(c)[0] == "M"):
        word = "".join(run)
        if is_word and word.lower() in wanted:
            places.append(position)
        position += len(word)
    return tuple(places)
