"""Builds an index in Milvus: every passage of every document, mapped, in a table beside the published one.

How far it has come is written down: a run that dies goes on from there, unless documents or the transform have changed.
"""

import json
import time
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.building import Stage
from indexes.faiss.recall import RECALL_AT, WANTED, Nearest, recall_facts
from indexes.milvus import schema
from indexes.milvus.client import Row
from indexes.milvus.store import MilvusStore
from indexes.publication import Publication
from indexes.rows import Blocks, DocumentRow

BUILDING = "building"
# Documents that are mapped together, and passages after which it is written down how far it has come.
TOGETHER = 500
NOTED_AFTER = 20_000
TIMED = 32


class MilvusPublisher:
    """One index on its way."""

    def __init__(self, store: MilvusStore, table: str, publication: Publication) -> None:
        self.store = store
        self.table = table
        self.count = 0
        self._edition = publication
        self._asked = publication.request

    def build(self, progress: Stage) -> dict[str, Any]:
        """Fill the table, and measure what it finds."""
        store, client = self.store, self.store.client
        queries = self._edition.held_out_queries()
        asking = Nearest(queries, store.count("documents")) if queries else None
        exact = schema.INDEXES[self._asked.type][0] == schema.EXACT
        after = self._begun() if exact else 0  # what is measured has to be seen whole
        if not after:
            client.drop(self.table)
            client.create(self.table, *schema.index_table(client.maker, self._edition.dimension_out, self._asked))
        client.load(self.table)
        documents, done, noted = store.count("documents"), 0, 0
        if after:
            done = client.count(store.documents_table, f"number <= {after}")
        progress("building the index", done, documents)
        waiting: deque[tuple[list[tuple[int, DocumentRow]], dict[bytes, int]]] = deque()
        for numbers, mapped in self._edition.mapped(self._raw(after, waiting)):
            some, vectors = waiting.popleft()
            store.put_in_index(self.table, some, vectors, dict(zip(numbers.tolist(), mapped, strict=True)))
            if asking is not None and not exact:
                asking.see(numbers, mapped)
            noted += len(numbers)
            done += len(some)
            store.state.renew()
            progress("building the index", done, documents)
            if noted >= NOTED_AFTER:
                noted = 0
                self._note(some[-1][0])
        client.flush(self.table)
        if not exact:
            client.wait_for_index(self.table, "mapped")
        self.count = client.count(self.table)
        return self._measured(asking, exact)

    def _raw(self, after: int, waiting: "deque[tuple[list[tuple[int, DocumentRow]], dict[bytes, int]]]") -> Blocks:
        """The raw vectors of some documents after others, which are left in `waiting` until they are mapped."""
        for block in self.store.each_row(after):
            for start in range(0, len(block), TOGETHER):
                some = block[start : start + TOGETHER]
                vectors = {
                    text_hash: passage.vector
                    for _, row, passages in some
                    for (_, _, text_hash), passage in zip(row.passages, passages, strict=True)
                }
                numbers = list(dict.fromkeys(vectors.values()))
                waiting.append(([(number, row) for number, row, _ in some], vectors))
                yield (
                    np.array(numbers, np.int64),
                    self.store.vectors(numbers, self.store.state.dimension, checked=True),
                )

    def _begun(self) -> int:
        """The last document that a run before this one has put into the same index."""
        text = self.store.records.read(BUILDING)
        told = json.loads(text) if text else None
        if told is None or told["of"] != self._of() or not self.store.client.has(self.table):
            return 0
        return int(told["done"])

    def _note(self, done: int) -> None:
        self.store.records.write(BUILDING, json.dumps({"of": self._of(), "done": done}))

    def _of(self) -> list[Any]:
        fingerprint = str(self._edition.facts["transform"]["fingerprint"])
        return [self.table, fingerprint, self._asked.type, self.store.state.counters()["changes"]]

    def done(self) -> None:
        """It is published, and nothing is left to go on with."""
        self.store.records.delete([BUILDING])

    def _measured(self, asking: Nearest | None, exact: bool) -> dict[str, Any]:
        """What is written down of the index: how many of the true nearest it finds, and the time of a query."""
        held_out = asking.held_out() if asking is not None else None
        if held_out is None or not self.count:
            return {"recall": 1.0 if exact else None, "exact": exact}
        telling = held_out.half(1)
        began = time.perf_counter()
        for query in telling.queries.vectors[:TIMED]:
            self._search(query[None])
        passed = 1000 * (time.perf_counter() - began) / len(telling.queries.vectors[:TIMED])
        found: dict[str, Any] = {"at": RECALL_AT, "wall_ms": round(passed, 3)}
        if exact:
            return found | {"recall": 1.0, "exact": True}
        least = telling.scores[:, -1] - 1e-6
        shares = np.array(
            [
                np.count_nonzero([hit["distance"] >= least[place] for hit in hits][: telling.numbers.shape[1]])
                / telling.numbers.shape[1]
                for place, query in enumerate(telling.queries.vectors)
                for hits in [self._search(query[None])]
            ]
        )
        return found | recall_facts(shares, telling.queries)

    def _search(self, query: NDArray[np.float32]) -> list[Row]:
        """The nearest distinct vectors."""
        settings = schema.SEARCH_SETTINGS.get(schema.INDEXES[self._asked.type][0], {})
        (hits,) = self.store.client.search(self.table, "mapped", query, WANTED, ["vector"], settings=settings)
        return list({hit["vector"]: hit for hit in hits}.values())

    def drop_unused(self) -> None:
        """Forget the raw vectors that no passage points to."""
        used = set(self.store.used_vectors().tolist())
        for block in self.store.client.each(self.store.vectors_table, "number", []):
            gone = [row["number"] for row in block if row["number"] not in used]
            if gone:
                self.store.client.delete_among(self.store.vectors_table, "number", gone)
