"""What single terms find in the index of words, kept in memory as long as the database does not change.

The BM25 of a query is the sum of that of its terms. So what FTS5 has computed for a term serves every query that has
it. The common terms, which are the most work, are in most queries.
"""

import json
import sqlite3
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from indexes.rows import Numbers

MOST_KEPT = 2_000_000
"""The number of documents of all kept terms together. Each needs 16 bytes."""
WEIGHTS = (1.0, 2.0, 1.0, 4.0)
"""How much a term counts in the id, the title, the text, and as a compound in the text."""
FOUND = f"SELECT rowid, -bm25(words, {', '.join(map(str, WEIGHTS))}) FROM words WHERE words MATCH ? ORDER BY rowid"  # noqa: S608 - constant text
ROW = np.dtype([("number", np.int64), ("score", np.float64)])

Found = tuple[Numbers, NDArray[np.float64]]
"""The numbers of documents in ascending order, and their scores."""
NOTHING: Found = (np.zeros(0, np.int64), np.zeros(0))


class Postings:
    """The documents with each term, for one connection and one state of its database."""

    def __init__(self, connection: sqlite3.Connection, version: object) -> None:
        self._connection = connection
        self.version = version
        self._counts: dict[str, int] = {}
        self._found: dict[str, Found] = {}
        self._kept = 0

    @cached_property
    def count(self) -> int:
        """The number of documents."""
        return int(self._connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def document_counts(self, terms: Sequence[str]) -> dict[str, int]:
        """Return how many documents contain each term. FTS5 reads all of them to count them."""
        if unknown := [term for term in terms if term not in self._counts]:
            if len(self._counts) > MOST_KEPT:
                self._counts.clear()
                unknown = list(terms)
            rows = self._connection.execute(
                "SELECT term, doc FROM words_vocabulary WHERE term IN (SELECT value FROM json_each(?))",
                [json.dumps(unknown)],
            )
            self._counts |= {**dict.fromkeys(unknown, 0), **dict(rows)}
        return {term: self._counts[term] for term in terms}

    def sum_of(self, expressions: Sequence[str]) -> Found:
        """Return the documents that match at least one of the expressions of FTS5, with the sums of their BM25."""
        found = [self._of(expression) for expression in expressions]
        if len(found) < 2:
            return found[0] if found else NOTHING
        numbers = np.concatenate([own for own, _ in found])
        order = np.argsort(numbers, kind="stable")  # the scores of a document are added in the order of FTS5
        numbers = numbers[order]
        first = np.concatenate([[True], numbers[1:] != numbers[:-1]])[: len(numbers)]
        scores = np.concatenate([own for _, own in found])[order]
        sums = np.bincount(np.cumsum(first) - 1, weights=scores)
        return numbers[first], np.asarray(sums, np.float64)

    def _of(self, expression: str) -> Found:
        found = self._found.pop(expression, None)
        if found is None:
            rows = np.fromiter(self._connection.execute(FOUND, [expression]), ROW)
            found = np.ascontiguousarray(rows["number"]), np.ascontiguousarray(rows["score"])
            self._kept += len(rows)
        self._found[expression] = found  # the last one is the one that was used last
        while self._kept > MOST_KEPT:
            self._kept -= len(self._found.pop(next(iter(self._found)))[0])
        return found
