"""Search by words: SQLite's FTS5 over titles and texts, scored by BM25, in the same tables and transactions.

A query is data: its words are quoted one by one, so that nothing in it means anything to FTS5. Whatever holds one of
the words is found. Words are compared by their stems, without case or diacritics (`porter unicode61`). FTS5's BM25
has k1 = 1.2 and b = 0.75, and its scores count downwards; here they count upwards. Scripts that put no space between
words are one long word to it: there it finds little.
"""

import json
import sqlite3
import sys
import unicodedata
from collections.abc import Iterable
from itertools import groupby, islice
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from indexes.folder.space import Match
from indexes.sqlite.documents import DocumentStore, PassageRow, is_transient
from indexes.sqlite.schema import WORDS_TRIGGERS, make_words

K1 = 1.2
MOST_WORDS = 1000
"""Of a query longer than any question, a whole document pasted, the first so many different words."""
LISTED = 10_000
"""Up to so many documents are named to SQLite; of more, it is quicker to pass over what may not be found."""
MARK = f"\x02{uuid4().hex}\x03"
"""What highlight() puts before a match; no document holds it."""


class Words:
    """The index of words of one store."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    def best(self, query: str, k: int, documents: NDArray[np.int64] | None = None) -> list[tuple[int, float]]:
        """The k documents with the highest BM25: (number, score); `documents` are those that may be found."""
        return best(self._store, query, k, documents)

    def scores(self, query: str, documents: Iterable[int]) -> dict[int, float]:
        """The BM25 of each of these documents that holds a word of the query."""
        return scores(self._store, query, documents)

    def matches(self, query: str, k: int, documents: NDArray[np.int64] | None = None) -> list[Match]:
        """The best as matches, each by the passage that holds the most words of the query."""
        return matches(self._store, query, k, documents)


def words(query: str) -> list[str]:
    """The different words of a query: runs of letters, digits and the marks that belong to them."""
    runs = ("".join(run) for is_word, run in groupby(query, _in_word) if is_word)
    # As they were typed: FTS5 folds case by older tables than Python, and must fold queries as it did documents.
    return list({run.lower(): run for run in runs}.values())[:MOST_WORDS]


def _in_word(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character) in ("Mn", "Mc", "Me", "Co")


def _expression(query: str) -> str:
    """The query as FTS5 takes it; a quoted word can mean nothing but itself, and holds no quote."""
    return " OR ".join(f'"{word}"' for word in words(query))


def best(
    store: DocumentStore, query: str, k: int, documents: NDArray[np.int64] | None = None
) -> list[tuple[int, float]]:
    """The k documents with the highest BM25, best first, those that tie by arrival: (number, score).

    `documents` are the numbers of those that may be found, None for all.
    """
    expression = _expression(query)
    if not expression:
        return []
    few = documents is not None and len(documents) <= LISTED
    allowed, values = _among(documents.tolist()) if documents is not None and few else ("", [])
    rows = store.db.conn.execute(
        f"SELECT rowid, bm25(words) AS score FROM words WHERE words MATCH ?{allowed} ORDER BY score, rowid",  # noqa: S608 - constant text
        [expression, *values],
    )
    passed = rows if documents is None or few else (row for row in rows if _holds(documents, row[0]))
    return [(number, -score) for number, score in islice(passed, min(k, sys.maxsize))]


def _holds(documents: NDArray[np.int64], number: int) -> bool:
    place = int(np.searchsorted(documents, number))
    return place < len(documents) and int(documents[place]) == number


def scores(store: DocumentStore, query: str, documents: Iterable[int]) -> dict[int, float]:
    """The BM25 of each of these documents that holds a word of the query."""
    return {number: -score for number, score in _of(store, "bm25(words)", [], query, documents)}


def matches(store: DocumentStore, query: str, k: int, documents: NDArray[np.int64] | None = None) -> list[Match]:
    """The same k documents, each by the passage that holds the most words of the query."""
    found = best(store, query, k, documents)
    numbers = [number for number, _ in found]
    places_of, passages = places(store, query, numbers), store.passages_of_documents(numbers)

    def held(passage: PassageRow) -> int:
        return sum(passage.start <= place < passage.end for place in places_of.get(passage.document, []))

    store.refuse_without_passages(passages)
    chosen = {number: max(passages[number], key=held) for number in numbers}
    fields = store.documents(numbers, chosen.values())
    return [Match(chosen[number], score, fields[number], tuple(places_of.get(number, ()))) for number, score in found]


def places(store: DocumentStore, query: str, documents: Iterable[int]) -> dict[int, list[int]]:
    """Where words of the query stand in the texts of these documents, as offsets of their first characters."""
    marked = _of(store, "highlight(words, 1, ?, '')", [MARK], query, documents)
    return {number: _offsets(text) for number, text in marked}


def _of(
    store: DocumentStore, what: str, bound: list[str], query: str, documents: Iterable[int]
) -> Iterable[tuple[int, Any]]:
    """What FTS5 says of each of these documents that holds a word of the query; `what` is constant text."""
    expression = _expression(query)
    if not expression:
        return []
    allowed, values = _among(list(documents))
    return store.db.conn.execute(
        f"SELECT rowid, {what} FROM words WHERE words MATCH ?{allowed}",  # noqa: S608 - constant text
        [*bound, expression, *values],
    )


def _offsets(marked: str) -> list[int]:
    parts = marked.split(MARK)[:-1]
    offsets, position = [], 0
    for part in parts:
        position += len(part)
        offsets.append(position)
    return offsets


def _among(documents: list[int]) -> tuple[str, list[str]]:
    # The plus keeps SQLite from asking FTS5 for one document after the other, which is far slower.
    return " AND +rowid IN (SELECT value FROM json_each(?))", [json.dumps(documents)]


def problem(store: DocumentStore) -> str:
    """What is wrong with the index of words; empty when all is well.

    FTS5 checks its own index against the documents by what is a write to SQLite, though nothing changes: where that
    cannot be, only the documents are counted.
    """
    there = {name for (name,) in store.db.conn.execute("SELECT name FROM sqlite_master")}
    if gone := sorted({"words", "words_docsize", *WORDS_TRIGGERS} - there):
        return f"the index of words is not whole: {', '.join(gone)} is gone"
    missing, stray = store.db.conn.execute(
        "SELECT (SELECT count(*) FROM documents WHERE number NOT IN (SELECT id FROM words_docsize)),"
        " (SELECT count(*) FROM words_docsize WHERE id NOT IN (SELECT number FROM documents))"
    ).fetchone()
    if missing or stray:
        return f"the index of words lacks {missing:,} documents and has {stray:,} that are not there"
    try:
        with store.changing():
            store.db.conn.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and is_transient(error):  # read-only, or another process writes
            return ""
        return "the index of words is not that of the documents"
    return ""


def rebuild(store: DocumentStore) -> None:
    """Make the index of words again from the documents, whatever is left of it."""
    with store.changing():
        for trigger in WORDS_TRIGGERS:
            store.db.conn.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        store.db.conn.execute("DROP TABLE IF EXISTS words")
        make_words(store.db)
