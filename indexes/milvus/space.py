"""Where a search in Milvus looks: one field of vectors, and the documents that the rows found belong to.

Milvus gives candidates; their scores are computed again in float64, as they are of an index in a folder, so that the
order does not depend on how a server sums. Rows of documents that have changed or gone meanwhile are passed over.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import SPARE, TIE, unit_rows
from indexes.folder.space import SAMPLED, background_of, nearest_among, products
from indexes.milvus.client import MOST_ROWS, Changed, Row, both
from indexes.milvus.rows import fields_of, passage_of, seal_of
from indexes.milvus.store import MilvusStore
from indexes.rows import LOOKED_AT, Apply, Match, Nearest

INDEX_FIELDS = ("key", "document", "position", "start", "end", "vector", "seal")
# What a request brings back stays well below what a server gives at once.
MOST_BYTES = 32_000_000
QUERIES_TOGETHER = 100
NONE_LEFT = float("-inf")


@dataclass(frozen=True)
class MilvusSpace:
    """The published index (`mapped`), or the encoder's own space (`raw`), as one search sees it."""

    store: MilvusStore
    dimension: int
    index: str
    apply: Apply
    raw: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    exact: bool = True
    """Whether the index finds all there is."""
    seen: dict[int, str] = field(default_factory=dict)
    """The seals of the documents that passages were found of."""

    def nearest_documents(
        self, queries: NDArray[np.float32], k: int, *, documents: str | None = None
    ) -> list[list[Match]]:
        """The k documents nearest to each query (raw vectors), each by its best passage, best first."""
        return self.matches(self.nearest_passages(queries, k, documents=documents))

    def matches(self, found: Sequence[Sequence[Nearest]]) -> list[list[Match]]:
        """The same with the documents' fields; nothing is given that is not as it was stored."""
        numbers = list({passage.document: None for own in found for passage, _ in own})
        stored = {number: (row, passages) for number, row, passages in self.store.rows(numbers)}
        for number in numbers:
            if number not in stored or seal_of(stored[number][0]) != self.seen[number]:
                raise Changed(f"{self.store.client.address}: document number {number} was changed meanwhile.")
        matches: list[list[Match]] = []
        for own in found:
            matches.append([])
            for passage, score in own:
                row, passages = stored[passage.document]
                if passage not in passages:
                    raise self.store.not_as_stored(f"a passage of document {row.id!r}")
                matches[-1].append(Match(passage, score, fields_of(row)))
        return matches

    def similar_documents(self, number: int, k: int, documents: str | None = None) -> list[Match]:
        """The k documents nearest to a stored one, by their nearest pair of passages, itself left out."""
        own = [passage.vector for passage in self.store.passages_of_documents([number])[number]]
        others = both(f"document != {number}", documents or "")
        best: dict[int, Nearest] = {}
        for found in self.nearest_passages(self.store.vectors(own, self.dimension), k, documents=others):
            for passage, score in found:
                if passage.document not in best or score > best[passage.document][1]:
                    best[passage.document] = (passage, score)
        return self.matches([sorted(best.values(), key=_best_first)[:k]])[0]

    def nearest_passages(
        self, queries: NDArray[np.float32], k: int, *, documents: str | None = None
    ) -> list[list[Nearest]]:
        """The best passage of each of the k documents nearest to each query, best first."""
        mapped = unit_rows(self.apply(queries))
        found: list[list[Nearest]] = [[] for _ in mapped]
        look = self._in_raw if self.raw else self._in_index
        for start in range(0, len(mapped), QUERIES_TOGETHER):
            some = list(range(start, min(start + QUERIES_TOGETHER, len(mapped))))
            limit = min(LOOKED_AT * k + SPARE, MOST_ROWS)
            while some:
                left: list[int] = []
                scan: list[int] = []
                together = max(1, MOST_BYTES // (limit * 4 * max(self.dimension, mapped.shape[1])))
                parts = (some[first : first + together] for first in range(0, len(some), together))
                looked = [one for part in parts for one in look(mapped[part], limit, documents or "")]
                for place, (own, bound) in zip(some, looked, strict=True):
                    found[place] = _by_document(own, k)
                    if len(found[place]) == k and found[place][-1][1] - bound >= TIE:
                        continue
                    if bound == NONE_LEFT:
                        scan += [] if self.exact or self.raw else [place]
                    else:
                        (scan if limit == MOST_ROWS else left).append(place)
                if scan:
                    for place, own in zip(scan, self._scanned(mapped[scan], documents or ""), strict=True):
                        found[place] = _by_document(own, k)
                some, limit = left, min(4 * limit, MOST_ROWS)
        return found

    def _in_index(self, queries: NDArray[np.float32], limit: int, expression: str) -> list[tuple[list[Nearest], float]]:
        """For each query the nearest passages that are alive, and a score that no other one is above."""
        settings = dict(self.settings)
        if "ef" in settings:  # Milvus wants it to be no less than what is asked for
            settings["ef"] = max(settings["ef"], limit)
        fields = [*INDEX_FIELDS, "mapped"]
        rows = self.store.client.search(
            self.index, "mapped", queries, limit, fields, expression=expression, settings=settings
        )
        alive, instead = self._alive([row for own in rows for row in own], fields, expression)
        found = []
        for own, query in zip(rows, queries, strict=True):
            scored = _scored([row for row in own if row["key"] in alive], query, _mapped)
            bound = NONE_LEFT if len(own) < limit else (scored[-1][1] if scored else 1.0)
            found.append((scored + _scored(instead, query, _mapped), bound))
        return found

    def _in_raw(self, queries: NDArray[np.float32], limit: int, expression: str) -> list[tuple[list[Nearest], float]]:
        """The same by the encoder's own vectors, which stand for passages that the index knows.

        A document that is replaced between the two has another vector then, which nothing here leads to.
        """
        client, changes = self.store.client, self.store.state.counters()["changes"]
        rows = client.search(self.store.vectors_table, "raw", queries, limit, ["number", "raw"], metric="COSINE")
        raw_of = {row["number"]: row["raw"] for own in rows for row in own}
        passages = client.select_among(self.index, "vector", list(raw_of), INDEX_FIELDS, expression)
        alive, instead = self._alive(passages, INDEX_FIELDS, expression)
        if self.store.state.counters()["changes"] != changes:
            raise Changed(f"{client.address}: documents were changed meanwhile.")
        instead = self._with_raw(instead)
        of_vector: dict[int, list[Row]] = {}
        for row in passages:
            if row["key"] in alive:
                of_vector.setdefault(row["vector"], []).append({**row, "raw": raw_of[row["vector"]]})
        found = []
        for own, query in zip(rows, queries, strict=True):
            scored = _scored([row for one in own for row in of_vector.get(one["number"], [])], query, _raw)
            last = products(_raw(own[-1:]).astype(np.float64), query.astype(np.float64)) if own else np.ones(1)
            bound = NONE_LEFT if len(own) < limit else float(last[0])
            found.append((scored + _scored(instead, query, _raw), bound))
        return found

    def _scanned(self, queries: NDArray[np.float32], expression: str) -> list[list[Nearest]]:
        """The best passage of every document, by a look at each: Milvus gives no more than so many at once, and an
        approximate index may give fewer than there are."""
        fields = INDEX_FIELDS if self.raw else [*INDEX_FIELDS, "mapped"]
        best: list[dict[int, Nearest]] = [{} for _ in queries]
        for rows in self.store.client.blocks(self.index, fields, expression):
            alive, instead = self._alive(rows, fields, expression)
            rows = [row for row in rows if row["key"] in alive] + instead
            rows = self._with_raw(rows) if self.raw else rows
            for own, query in zip(best, queries, strict=True):
                for passage, score in _scored(rows, query, _raw if self.raw else _mapped):
                    if passage.document not in own or _better((passage, score), own[passage.document]):
                        own[passage.document] = (passage, score)
        return [list(own.values()) for own in best]

    def _alive(self, rows: Sequence[Row], fields: Sequence[str], expression: str) -> tuple[set[str], list[Row]]:
        """The keys of rows that belong to documents as they are, and the rows of those that were replaced since."""
        seals = self.store.seals([row["document"] for row in rows])
        alive = {row["key"] for row in rows if seals.get(row["document"]) == row["seal"]}
        instead: list[Row] = []
        if replaced := {row["document"] for row in rows if row["key"] not in alive and row["document"] in seals}:
            among_those = self.store.client.select_among(self.index, "document", list(replaced), fields, expression)
            instead = [row for row in among_those if row["key"] not in alive and seals[row["document"]] == row["seal"]]
            if self.store.seals(list(replaced)) != {number: seals[number] for number in replaced}:
                raise Changed(f"{self.store.client.address}: documents were changed meanwhile.")
        self.seen.update(seals)
        return alive, instead

    def _with_raw(self, rows: Sequence[Row]) -> list[Row]:
        raw = self.store.vectors([row["vector"] for row in rows], self.dimension)
        return [{**row, "raw": own} for row, own in zip(rows, raw, strict=True)]

    def nearest_of(self, query: NDArray[np.float32], documents: Sequence[int]) -> dict[int, Nearest]:
        """The passage of each of these documents that is nearest to the query (a raw vector)."""
        passages = {}
        for number, row, own in self.store.rows(documents):
            passages[number], self.seen[number] = own, seal_of(row)
        return nearest_among(query, passages, lambda numbers: self.store.vectors(numbers, self.dimension), self.apply)

    def background(self, queries: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of each query's cosines with the vectors of the collection, from a sample."""
        return background_of(self._sample(), queries, self.apply)

    def _sample(self) -> NDArray[np.float64]:
        """Unit vectors of a seeded choice of the vectors that were ever given a number; fetched once for an index."""
        of, sample = self.store.sampled
        if sample is None or of != (self.index, self.raw):
            sample = self._fetched_sample()
            self.store.sampled = ((self.index, self.raw), sample)
        return sample

    def _fetched_sample(self) -> NDArray[np.float64]:
        last = self.store.last_vector()
        numbers = np.arange(1, last + 1)
        if last > SAMPLED:
            numbers = np.unique(np.random.default_rng(0).integers(1, last + 1, SAMPLED))
        rows = self.store.client.select_among(self.store.vectors_table, "number", numbers.tolist(), ["raw"])
        raw = np.array([row["raw"] for row in rows], np.float32).reshape(len(rows), self.dimension)
        return unit_rows(self.apply(raw)).astype(np.float64)


def _mapped(rows: Sequence[Row]) -> NDArray[np.float32]:
    return np.array([row["mapped"] for row in rows], np.float32)


def _raw(rows: Sequence[Row]) -> NDArray[np.float32]:
    return unit_rows(np.array([row["raw"] for row in rows], np.float32))


def _scored(
    rows: Sequence[Row], query: NDArray[np.float32], vectors: Callable[[Sequence[Row]], NDArray[np.float32]]
) -> list[Nearest]:
    """Passages with their cosines, best first, those that tie by the number of their vector."""
    if not rows:
        return []
    scores = products(vectors(rows).astype(np.float64), query.astype(np.float64)).tolist()
    ranked = zip(map(passage_of, rows), scores, strict=True)
    return sorted(ranked, key=lambda pair: (-pair[1], pair[0].vector, pair[0].document, pair[0].position))


def _by_document(scored: Sequence[Nearest], k: int) -> list[Nearest]:
    """The k best documents by their best passage."""
    best: dict[int, Nearest] = {}
    for found in scored:
        if found[0].document not in best or _better(found, best[found[0].document]):
            best[found[0].document] = found
    return sorted(best.values(), key=_best_first)[:k]


def _better(one: Nearest, other: Nearest) -> bool:
    """Whether a passage stands for its document rather than another of the same."""
    return (-one[1], one[0].vector, one[0].position) < (-other[1], other[0].vector, other[0].position)


def _best_first(found: Nearest) -> tuple[float, int]:
    return -found[1], found[0].document
