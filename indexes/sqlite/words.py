"""Search by words with SQLite's FTS5 over ids, titles and texts, scored by BM25.

The index of words is in the database of the documents and changes in the same transactions. It holds terms
(`indexes/terms.py`). A document is found if it contains at least one term of the query. If the query has quoted phrases
that occur in some document together, only documents that contain all these phrases are found. Every term is quoted, so
FTS5 does not interpret it as an operator. FTS5's BM25 uses k1 = 1.2 and b = 0.75. `postings.py` keeps in memory
what single terms find.
"""

import math
import sqlite3
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from indexes.rows import Match, Numbers, PassageRow
from indexes.sqlite.connections import Database, execute_script
from indexes.sqlite.database import is_transient
from indexes.sqlite.documents import DocumentStore
from indexes.sqlite.postings import Found, Postings
from indexes.sqlite.schema import WORDS, WORDS_PARTS
from indexes.terms import (
    MOST_TERMS,
    field_terms,
    is_unspaced,
    phrases,
    placed_terms,
    query_terms,
    query_words,
    replaced_words,
    text_terms,
    unquoted,
    words_of,
)

K1 = 1.2
MANY = 1000
"""From this number of documents on, terms that most documents have are not searched for."""
MOST_FOUND, MOST_FOUND_SHARE = 10_000, 0.05
"""The rarest terms are searched for, as long as this many documents, or this share of all if that is more, have them.

The work of FTS5 is proportional to this number. The common terms of a question are in most documents, so they
distinguish documents least.
"""
MOST_SUGGESTED = 10
"""A query with more words gets no suggestion, because each word costs a scan of the vocabulary."""
SIMILAR = 0.7
"""How similar a known term must be to an unknown one to be suggested: the share of its letters that need no edit."""


@dataclass(frozen=True)
class Parsed:
    """A query as FTS5 reads it."""

    terms: list[str]
    expressions: list[str]
    """The expressions of FTS5 that find what the query asks for. There is none if the query has no terms."""
    required: bool
    """Whether only documents with the quoted phrases of the query are found."""
    ceiling: float
    """The BM25 score of endlessly many occurrences of every term."""


class Words:
    """The index of words of one store.

    Where a method takes `documents`, it returns only documents with these numbers. None means all documents.
    """

    def __init__(self, store: DocumentStore) -> None:
        self._store = store
        self._last: tuple[Any, Parsed] | None = None
        self._of_connections: weakref.WeakKeyDictionary[Database, Postings] = weakref.WeakKeyDictionary()

    @property
    def language(self) -> str:
        """The language whose stems the index holds, as a code of `indexes.terms.LANGUAGES`."""
        return str(self._store.setting("language") or "")

    def terms(self, query: str) -> list[str]:
        """Return the different terms of a query, at most MOST_TERMS."""
        return self._parsed(query).terms

    def best(self, query: str, k: int, documents: Numbers | None = None) -> list[tuple[int, float]]:
        """Return the numbers and scores of the k documents with the highest BM25, best first.

        Documents with equal scores are in ascending order of their numbers.
        """
        numbers, scores = self._found(query)
        if documents is not None:
            inside = np.isin(numbers, documents, assume_unique=True)
            numbers, scores = numbers[inside], scores[inside]
        if len(scores) > k:
            some = scores >= np.partition(scores, -k)[-k]
            numbers, scores = numbers[some], scores[some]
        order = np.lexsort((numbers, -scores))[:k]
        return list(zip(numbers[order].tolist(), scores[order].tolist(), strict=True))

    def scores(self, query: str, documents: Iterable[int]) -> dict[int, float]:
        """Return the BM25 score of each document. Documents that the query does not find are left out."""
        numbers, scores = self._found(query)
        wanted = np.array(list(documents), np.int64)
        if not len(numbers):
            return {}
        places = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
        there = numbers[places] == wanted
        return dict(zip(wanted[there].tolist(), scores[places[there]].tolist(), strict=True))

    def ceiling(self, query: str) -> float:
        """Return the BM25 score that no document can exceed: that of endlessly many occurrences of every term."""
        return self._parsed(query).ceiling

    def required(self, query: str) -> bool:
        """Return whether only documents with the quoted phrases of the query are found."""
        return self._parsed(query).required

    def searched(self, query: str, documents: Numbers | None = None) -> str:
        """Return the query without its quotation marks if none of the documents has its phrases."""
        if documents is None or not self.required(query) or np.isin(self._found(query)[0], documents).any():
            return query
        return unquoted(query)

    def _parsed(self, query: str) -> Parsed:
        """Parse a query. The last one is kept as long as the database does not change."""
        last, key = self._last, (query, self._store.data_version)
        if last is None or last[0] != key:
            last = self._last = (key, self._parse(query))
        return last[1]

    def _parse(self, query: str) -> Parsed:
        terms = query_terms(query, self.language)
        postings = self._postings()
        holding, count = postings.document_counts(terms), postings.count
        searched = _rarest_terms(terms, holding, count)
        ceiling = sum(
            (K1 + 1) * max(math.log((count - n + 0.5) / (n + 0.5)), 1e-6) for n in map(holding.__getitem__, searched)
        )
        expressions = [_quoted(term) for term in searched]
        if (phrases := self._phrases(query)) and expressions:
            expressions = [f"({phrases}) AND ({' OR '.join(expressions)})"]
        return Parsed(terms, expressions, bool(phrases), ceiling)

    def _postings(self) -> Postings:
        """Return what the terms of the present state of the database find."""
        db, version = self._store.db, self._store.data_version
        found = self._of_connections.get(db)
        if found is None or found.version != version:
            found = self._of_connections[db] = Postings(db.conn, version)
        return found

    def _found(self, query: str) -> Found:
        """Return all documents that the query finds, with their BM25."""
        return self._postings().sum_of(self._parsed(query).expressions)

    def matches(self, query: str, k: int, documents: Numbers | None = None) -> list[Match]:
        """Return the best documents, each with the passage that contains the most terms of the query."""
        store, found, language = self._store, self.best(query, k, documents), self.language
        terms = set(self.terms(query))
        numbers = [number for number, _ in found]
        passages = store.passages_of_documents(numbers)
        store.refuse_without_passages(passages)
        fields = store.documents(numbers, [passage for own in passages.values() for passage in own])
        best = {n: best_passage(passages[n], fields[n]["text"], terms, language) for n in numbers}
        return [Match(best[number], score, fields[number]) for number, score in found]

    def suggestion(self, query: str) -> str | None:
        """Return the query with the nearest known word in place of each unknown one.

        Return None if a word of the query is known, if no known word is near enough, or if the query is long.
        """
        from rapidfuzz.distance import OSA
        from rapidfuzz.process import extractOne

        words = query_words(query)
        if len(words) > MOST_SUGGESTED:
            return None
        terms = {word: text_terms(word, self.language) for word in words}
        if not words or any(
            self._postings().document_counts([term for own in terms.values() for term in own]).values()
        ):
            return None
        meant: dict[str, str] = {}
        for word, own in terms.items():
            if word.isnumeric():
                continue
            known = [term for (term,) in self._near(own[0])] if len(own) == 1 else []
            found = extractOne(own[0], known, scorer=OSA.normalized_similarity, score_cutoff=SIMILAR) if known else None
            if found and (written := self._written(str(found[0]))):
                meant[word.lower()] = written
        changed = replaced_words(query, meant)
        return changed if changed != query else None

    def _near(self, term: str) -> Iterable[tuple[str]]:
        """Select the terms of the collection that are about as long as a term and share its first or last letter."""
        return self._store.db.conn.execute(
            "SELECT term FROM words_vocabulary WHERE length(term) BETWEEN ? AND ?"
            " AND (substr(term, 1, 1) = ? OR substr(term, -1) = ?)",
            [len(term) - 2, len(term) + 2, term[0], term[-1]],
        )

    def _written(self, term: str) -> str | None:
        """Return a word of the collection that has this term, as it is written there."""
        rows = self._store.db.conn.execute(
            "SELECT id, title, text FROM documents"
            " WHERE number = (SELECT rowid FROM words WHERE words MATCH ? LIMIT 1)",
            [_quoted(term)],
        )
        for row in rows:
            for word in words_of(" ".join(row)):
                if term in field_terms(word, self.language):
                    return word
        return None

    def _phrases(self, query: str) -> str:
        """Return the expression of FTS5 for the quoted phrases of a query. It is empty if no document has them all."""
        quoted = phrases(query, self.language)
        if not quoted or sum(map(len, quoted)) > MOST_TERMS:
            return ""
        expression = " AND ".join(" + ".join(map(_quoted, phrase)) for phrase in quoted)
        found = self._store.db.conn.execute("SELECT 1 FROM words WHERE words MATCH ? LIMIT 1", [expression]).fetchone()
        return expression if found else ""

    def problem(self) -> str:
        """Describe what is wrong with the index of words. Return an empty string if nothing is wrong.

        The check of FTS5 changes nothing, but to SQLite it is a write. If this user cannot write, the check only
        compares which documents the index contains.
        """
        connection = self._store.db.conn
        existing = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if missing := sorted(set(WORDS_PARTS) - existing):
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
            execute_script(db.conn, WORDS)


def _rarest_terms(terms: Sequence[str], holding: Mapping[str, int], count: int) -> Sequence[str]:
    """Return the terms to search for. `holding` has the number of documents with each term, `count` that of all
    documents.

    A term that more than half of the documents have adds nothing to a BM25 score, and takes FTS5 the most time.
    """
    telling = sorted((term for term in terms if 2 * holding[term] <= count), key=holding.__getitem__)
    if count < MANY or not telling:
        return terms
    found = accumulate(map(holding.__getitem__, telling))
    most = max(MOST_FOUND, MOST_FOUND_SHARE * count)
    return [term for number, (term, sum_) in enumerate(zip(telling, found, strict=True)) if not number or sum_ <= most]


def best_passage(passages: Sequence[PassageRow], text: str, terms: set[str], language: str) -> PassageRow:
    """Return the passage of a document that contains the most terms of a query."""
    if len(passages) == 1:
        return passages[0]
    places = [term.start for term in placed_terms(text, language) if term.text in terms]
    return max(passages, key=lambda passage: sum(passage.start <= place < passage.end for place in places))


def _quoted(term: str) -> str:
    """Quote a term for FTS5. One character of a script without spaces stands for all pairs that begin with it."""
    return f'"{term}"*' if len(term) == 1 and is_unspaced(term) else f'"{term}"'
