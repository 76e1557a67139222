"""Searches a collection in Milvus by meaning (vectors) and by words (BM25).

Milvus finds candidates. Their scores are computed again in float64, as for a collection in a folder. The order of the
results therefore does not depend on the order in which a server adds numbers. Rows of documents that have been replaced
or deleted are ignored.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import SPARE, TIE, unit_rows
from indexes.milvus.client import MAX_ROWS, Row, in_list, join_conditions
from indexes.milvus.rows import PASSAGE_FIELDS, hit_fields, indexed_passage, seal_of, tokens
from indexes.milvus.schema import EXACT
from indexes.milvus.store import MilvusStore
from indexes.protocol import SAMPLED, AnySpace, products, rank
from indexes.rows import LOOKED_AT, Apply, Match, Matrix, Nearest, PassageRow
from indexes.sqlite.words import best_passage
from indexes.terms import query_terms

INDEX_FIELDS = ("key", *PASSAGE_FIELDS, "seal")
# A server returns at most 64 MB from one call.
RESPONSE_BYTES = 32_000_000
QUERIES_PER_CALL = 100
Bounded = tuple[list[Nearest], float]
"""Passages with their scores, and an upper bound of the scores of all other passages."""
COMPLETE = float("-inf")
"""The bound that means that there are no other passages, because the search has found every row."""


@dataclass(frozen=True)
class MilvusSpace(AnySpace):
    """The space of one search: the published index or, if `raw`, the untransformed vectors of the encoder."""

    store: MilvusStore
    dimension: int
    apply: Apply
    manifest: dict[str, Any]
    index: str
    """The name of the table of the index."""
    raw: bool = False
    seals: dict[int, str] = field(default_factory=dict)
    """The seals that the found documents had when they were found."""

    def matches(self, found: Sequence[Sequence[Nearest]]) -> list[list[Match]]:
        """Add the fields of the documents.

        Raise `Changed` if a document was replaced since it was found, and `Damaged` if it is not intact.
        """
        numbers = list({passage.document: None for passages in found for passage, _ in passages})
        stored = {number: (row, passages) for number, row, passages in self.store.rows(numbers)}
        if any(number not in stored or seal_of(stored[number][0]) != self.seals[number] for number in numbers):
            raise self.store.changed()
        matches: list[list[Match]] = [[] for _ in found]
        for own, nearest in zip(matches, found, strict=True):
            for passage, score in nearest:
                row, passages = stored[passage.document]
                if passage not in passages:
                    raise self.store.damaged(f"a passage of document {row.id!r}")
                own.append(Match(passage, score, hit_fields(row)))
        return matches

    def nearest_passages(
        self, queries: Matrix, k: int, *, documents: str | None = None, without: int | None = None
    ) -> list[list[Nearest]]:
        mapped = unit_rows(self.apply(queries))
        expression = join_conditions("" if without is None else f"document != {without}", documents or "")
        found: list[list[Nearest]] = [[] for _ in mapped]
        search = self._search_raw if self.raw else self._search_index
        exact = self.raw or self.manifest["factory"] == EXACT
        for start in range(0, len(mapped), QUERIES_PER_CALL):
            pending = list(range(start, min(start + QUERIES_PER_CALL, len(mapped))))
            limit = min(LOOKED_AT * k + SPARE, MAX_ROWS)
            while pending:  # the limit grows if several rows belong to one document
                unfinished: list[int] = []
                to_scan: list[int] = []
                size = max(1, RESPONSE_BYTES // (limit * 4 * max(self.dimension, mapped.shape[1])))
                batches = (pending[first : first + size] for first in range(0, len(pending), size))
                results = [result for batch in batches for result in search(mapped[batch], limit, expression)]
                for place, (passages, bound) in zip(pending, results, strict=True):
                    found[place] = _best_documents(passages, k)
                    enough = len(found[place]) == k and found[place][-1][1] - bound >= TIE
                    if not enough and not (exact and bound == COMPLETE):
                        (to_scan if bound == COMPLETE or limit == MAX_ROWS else unfinished).append(place)
                if to_scan:
                    for place, passages in zip(to_scan, self._scan(mapped[to_scan], expression), strict=True):
                        found[place] = _best_documents(passages, k)
                pending, limit = unfinished, min(4 * limit, MAX_ROWS)
        return found

    def _search_index(self, queries: Matrix, limit: int, expression: str) -> list[Bounded]:
        """Search the published index. Return the nearest current passages of each query."""
        settings = dict(self.manifest["search_settings"])
        if "ef" in settings:  # Milvus rejects an ef below the limit
            settings["ef"] = max(settings["ef"], limit)
        fields = [*INDEX_FIELDS, "mapped"]
        rows = self.store.client.search(
            self.index, "mapped", queries, limit, fields, expression=expression, settings=settings
        )
        current, replacements = self._current([row for own in rows for row in own], fields, expression)
        found = []
        for own, query in zip(rows, queries, strict=True):
            scored = _scored([row for row in own if row["key"] in current], query)
            bound = COMPLETE if len(own) < limit else (scored[-1][1] if scored else 1.0)
            found.append((scored + _scored(replacements, query), bound))
        return found

    def _search_raw(self, queries: Matrix, limit: int, expression: str) -> list[Bounded]:
        """Search by raw vectors. Return the nearest current passages of each query.

        Milvus first returns the nearest raw vectors. Then the index is read to find the passages of these vectors. If a
        document is replaced between these two reads, its new vector may be missed, so `Changed` is raised.
        """
        client, changes = self.store.client, self.store.state.counters()["changes"]
        rows = client.search(self.store.vectors_table, "raw", queries, limit, ["number", "raw"], metric="COSINE")
        raw = {row["number"]: row["raw"] for own in rows for row in own}
        passages = client.select_in(self.index, "vector", list(raw), INDEX_FIELDS, expression)
        current, replacements = self._current(passages, INDEX_FIELDS, expression)
        if self.store.state.counters()["changes"] != changes:
            raise self.store.changed()
        replacements = self._add_raw(replacements)
        by_vector: dict[int, list[Row]] = {}
        for row in passages:
            if row["key"] in current:
                by_vector.setdefault(row["vector"], []).append({**row, "raw": raw[row["vector"]]})
        found = []
        for own, query in zip(rows, queries, strict=True):
            scored = _scored([row for hit in own for row in by_vector.get(hit["number"], [])], query)
            bound = COMPLETE if len(own) < limit else float(_cosines(own[-1:], query)[0])
            found.append((scored + _scored(replacements, query), bound))
        return found

    def _scan(self, queries: Matrix, expression: str) -> list[list[Nearest]]:
        """Return the best passage of every document for each query, by reading the whole index.

        This is needed because a search returns at most MAX_ROWS rows, and an approximate index may return fewer rows
        than exist.
        """
        fields = INDEX_FIELDS if self.raw else [*INDEX_FIELDS, "mapped"]
        best: list[dict[int, Nearest]] = [{} for _ in queries]
        for rows in self.store.client.blocks(self.index, fields, expression):
            current, replacements = self._current(rows, fields, expression)
            rows = [row for row in rows if row["key"] in current] + replacements
            rows = self._add_raw(rows) if self.raw else rows
            for own, query in zip(best, queries, strict=True):
                _keep_best(own, _scored(rows, query))
        return [list(own.values()) for own in best]

    def _current(self, rows: Sequence[Row], fields: Sequence[str], expression: str) -> tuple[set[str], list[Row]]:
        """Return the keys of the given rows that are current, and replacements for the others.

        A row is current if it has the same seal as its document. The replacements are the current rows of documents
        whose given rows are not current.
        """
        seals = self.store.seals([row["document"] for row in rows])
        current = {row["key"] for row in rows if seals.get(row["document"]) == row["seal"]}
        replacements: list[Row] = []
        if replaced := {row["document"] for row in rows if row["key"] not in current and row["document"] in seals}:
            found = self.store.client.select_in(self.index, "document", list(replaced), fields, expression)
            replacements = [row for row in found if row["key"] not in current and seals[row["document"]] == row["seal"]]
            if self.store.seals(list(replaced)) != {number: seals[number] for number in replaced}:
                raise self.store.changed()
        self.seals.update(seals)
        return current, replacements

    def _add_raw(self, rows: Sequence[Row]) -> list[Row]:
        raw = self.store.vectors([row["vector"] for row in rows], self.dimension)
        return [{**row, "raw": vector} for row, vector in zip(rows, raw, strict=True)]

    def _passages_of(self, documents: Sequence[int]) -> dict[int, list[PassageRow]]:
        passages = {}
        for number, row, own in self.store.rows(documents):
            passages[number], self.seals[number] = own, seal_of(row)
        return passages

    def _sample(self) -> NDArray[np.float64]:
        key, sample = self.store.sample
        if sample is None or key != (self.index, self.raw):
            last = self.store.last_vector()
            numbers = np.arange(1, last + 1)
            if last > SAMPLED:
                numbers = np.unique(np.random.default_rng(0).integers(1, last + 1, SAMPLED))
            used = sorted(self.store.passages_of_vectors(numbers.tolist()))
            rows = self.store.client.select_in(self.store.vectors_table, "number", used, ["raw"])
            raw = np.array([row["raw"] for row in rows], np.float32).reshape(len(rows), self.dimension)
            sample = unit_rows(self.apply(raw)).astype(np.float64)
            self.store.sample = ((self.index, self.raw), sample)
        return sample


def _cosines(rows: Sequence[Row], query: Matrix) -> NDArray[np.float64]:
    name = "raw" if "raw" in rows[0] else "mapped"
    vectors = np.array([row[name] for row in rows], np.float32)
    vectors = unit_rows(vectors) if name == "raw" else vectors
    return products(vectors.astype(np.float64), query.astype(np.float64))


def _scored(rows: Sequence[Row], query: Matrix) -> list[Nearest]:
    """Return passages with their cosines, best first. Ties are ordered by vector number."""
    if not rows:
        return []
    scored = zip(map(indexed_passage, rows), _cosines(rows, query).tolist(), strict=True)
    return sorted(scored, key=lambda pair: (-pair[1], pair[0].vector, pair[0].document, pair[0].position))


def _best_documents(scored: Sequence[Nearest], k: int) -> list[Nearest]:
    """Return the k best documents, each with its best passage."""
    best: dict[int, Nearest] = {}
    _keep_best(best, scored)
    return sorted(best.values(), key=rank)[:k]


def _keep_best(best: dict[int, Nearest], scored: Sequence[Nearest]) -> None:
    """Update `best` with the best passage of each document. Ties are decided by vector number and position."""
    for passage, score in scored:
        known, known_score = best.get(passage.document, (passage, COMPLETE))
        if (-score, passage.vector, passage.position) < (-known_score, known.vector, known.position):
            best[passage.document] = (passage, score)


@dataclass(frozen=True)
class MilvusWords:
    """Search by words with the BM25 of Milvus over ids, titles and texts.

    Milvus gets the same terms as SQLite. A quoted phrase is searched by its words. If a document is too long for a row,
    only its first 65,000 bytes are searched.
    """

    store: MilvusStore

    @property
    def language(self) -> str:
        return self.store.language

    def terms(self, query: str) -> list[str]:
        """Return the different terms of a query, at most MOST_TERMS."""
        return query_terms(query, self.language)

    def best(self, query: str, k: int, documents: str | None = None) -> list[tuple[int, float]]:
        """Return the numbers and scores of the k documents with the highest BM25, best first.

        Documents with equal scores are in ascending order of their numbers.
        """
        text, table = tokens(self.terms(query)), self.store.documents_table
        if not text:
            return []
        (rows,) = self.store.client.search(
            table, "words", [text], k, ["number"], expression=documents or "", metric="BM25"
        )
        # Milvus Lite returns BM25 as a negative distance.
        scored = [(int(row["number"]), abs(float(row["distance"]))) for row in rows]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0]))

    def scores(self, query: str, documents: Iterable[int]) -> dict[int, float]:
        """Return the BM25 score of each document. Documents that contain no word of the query are left out."""
        numbers = list(documents)
        return dict(self.best(query, len(numbers), in_list("number", numbers))) if numbers else {}

    def ceiling(self, query: str) -> float:
        """Return twice the highest score. Milvus does not tell how many documents contain a term."""
        return 2 * max((score for _, score in self.best(query, 1)), default=0.0)

    def required(self, query: str) -> bool:
        """Return False: a quoted phrase is searched by its words."""
        return False

    def searched(self, query: str, documents: str | None = None) -> str:
        return query

    def suggestion(self, query: str) -> str | None:
        """Return None: Milvus does not list the terms of a collection."""
        return None

    def matches(self, query: str, k: int, documents: str | None = None) -> list[Match]:
        """Return the best documents, each with the passage that contains the most words of the query."""
        return self.store.retry_if_changed(lambda: self._matches(query, k, documents))

    def _matches(self, query: str, k: int, documents: str | None) -> list[Match]:
        found, terms = dict(self.best(query, k, documents)), set(self.terms(query))
        stored = {number: (row, passages) for number, row, passages in self.store.rows(list(found))}
        matches = []
        for number, score in found.items():
            if number in stored:
                row, passages = stored[number]
                best = best_passage(passages, row.text, terms, self.language)
                matches.append(Match(best, score, hit_fields(row)))
        return matches
