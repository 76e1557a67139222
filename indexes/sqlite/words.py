"""Search by words with SQLite's FTS5 over titles and texts, scored by BM25.

The index of words is in the database of the documents and changes in the same transactions. Every word of a query is
quoted, so that FTS5 does not interpret it as an operator. A document is found if it contains at least one of the words.
Words are compared by their stems, without case and diacritics (`porter unicode61`). FTS5's BM25 uses k1 = 1.2 and
b = 0.75. FTS5 returns negative scores, which are negated here. FTS5 treats a text without spaces between words as one
long word, so it finds little in such scripts.
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

from indexes.rows import Match, Numbers, PassageRow
from indexes.sqlite.connections import execute_script
from indexes.sqlite.database import is_transient
from indexes.sqlite.documents import DocumentStore
from indexes.sqlite.schema import WORDS, WORDS_TRIGGERS

K1 = 1.2
MOST_WORDS = 1000
"""Maximum number of different words of a query. It matters e.g. if a whole document was pasted as a query."""
LISTED = 10_000
"""Maximum number of allowed documents to pass to SQLite. For more, it is faster to skip the other rows here."""
MARK = f"\x02{uuid4().hex}\x03"
"""The mark that highlight() puts before a match. It is random, so no document contains it."""


class Words:
    """The index of words of one store.

    Where a method takes `documents`, it returns only documents with these numbers. None means all documents.
    """

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    def best(self, query: str, k: int, documents: Numbers | None = None) -> list[tuple[int, float]]:
        """Return the numbers and scores of the k documents with the highest BM25, best first.

        Documents with equal scores are in ascending order of the number.
        """
        listed = documents.tolist() if documents is not None and len(documents) <= LISTED else None
        rows = self._select("bm25(words)", [], query, listed, " ORDER BY 2, 1")
        if documents is not None and listed is None:
            rows = (row for row in rows if _holds(documents, row[0]))
        return [(number, -score) for number, score in islice(rows, min(k, sys.maxsize))]

    def scores(self, query: str, documents: Iterable[int]) -> dict[int, float]:
        """Return the BM25 score of each document. Documents that contain no word of the query are left out."""
        return {number: -score for number, score in self._select("bm25(words)", [], query, documents)}

    def matches(self, query: str, k: int, documents: Numbers | None = None) -> list[Match]:
        """Return the best documents, each with the passage that contains the most words of the query."""
        store, found = self._store, self.best(query, k, documents)
        numbers = [number for number, _ in found]
        offsets, passages = self._offsets(query, numbers), store.passages_of_documents(numbers)

        def words_held(passage: PassageRow) -> int:
            return sum(passage.start <= offset < passage.end for offset in offsets.get(passage.document, []))

        store.refuse_without_passages(passages)
        best = {number: max(passages[number], key=words_held) for number in numbers}
        fields = store.documents(numbers, best.values())
        return [Match(best[number], score, fields[number], tuple(offsets.get(number, ()))) for number, score in found]

    def _offsets(self, query: str, documents: Iterable[int]) -> dict[int, list[int]]:
        """Return the offsets at which words of the query begin in the texts of the given documents."""
        found = {}
        for number, text in self._select("highlight(words, 1, ?, '')", [MARK], query, documents):
            if not isinstance(text, str):
                raise self._store.not_as_stored(f"document number {number}")
            offsets, position = [], 0
            for part in text.split(MARK)[:-1]:
                position += len(part)
                offsets.append(position)
            found[number] = offsets
        return found

    def _select(
        self, what: str, bound: list[str], query: str, documents: Iterable[int] | None, order: str = ""
    ) -> Iterable[tuple[int, Any]]:
        """Select a value for each of the given documents that contains a word of the query.

        None means all documents.
        """
        expression = " OR ".join(f'"{word}"' for word in query_words(query))
        if not expression:
            return []
        # Without the plus, SQLite would query FTS5 once for each document, which is far slower.
        among = "" if documents is None else " AND +rowid IN (SELECT value FROM json_each(?))"
        values = [] if documents is None else [json.dumps(list(documents))]
        return self._store.db.conn.execute(
            f"SELECT rowid, {what} FROM words WHERE words MATCH ?{among}{order}",  # noqa: S608 - constant text
            [*bound, expression, *values],
        )

    def problem(self) -> str:
        """Describe what is wrong with the index of words. Return an empty string if nothing is wrong.

        The check of FTS5 changes nothing, but to SQLite it is a write. If this user cannot write, the check only
        compares which documents the index contains.
        """
        connection = self._store.db.conn
        existing = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if missing := sorted({"words", "words_docsize", *WORDS_TRIGGERS} - existing):
            return f"the index of words is incomplete: {', '.join(missing)} is missing"
        lacking, stray = connection.execute(
            "SELECT (SELECT count(*) FROM documents WHERE number NOT IN (SELECT id FROM words_docsize)),"
            " (SELECT count(*) FROM words_docsize WHERE id NOT IN (SELECT number FROM documents))"
        ).fetchone()
        if lacking or stray:
            return f"the index of words lacks {lacking:,} documents and has {stray:,} that do not exist"
        try:
            with self._store.changing():
                connection.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
        except sqlite3.DatabaseError as error:
            # The database is read-only or locked, so the check is not possible.
            return "" if is_transient(error) else "the index of words does not match the documents"
        return ""

    def rebuild(self) -> None:
        """Rebuild the index of words from the documents."""
        with self._store.changing() as db:
            for trigger in WORDS_TRIGGERS:
                db.conn.execute(f"DROP TRIGGER IF EXISTS {trigger}")
            db.conn.execute("DROP TABLE IF EXISTS words")
            execute_script(db.conn, WORDS)


def query_words(query: str) -> list[str]:
    """Return the different words of a query: runs of letters, digits and the marks that belong to them."""
    runs = ("".join(run) for is_word, run in groupby(query, _in_word) if is_word)
    # The words keep their case: FTS5 must fold it as in the documents, and its tables are older than those of Python.
    return list({run.lower(): run for run in runs}.values())[:MOST_WORDS]


def _in_word(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character) in ("Mn", "Mc", "Me", "Co")


def _holds(documents: Numbers, number: int) -> bool:
    place = int(np.searchsorted(documents, number))
    return place < len(documents) and int(documents[place]) == number
