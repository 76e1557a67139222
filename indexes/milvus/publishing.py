"""Builds an index in Milvus and publishes it.

The index is a new table, next to that of the published index. It has one row with a transformed vector for every
passage of every document. The progress is recorded. If a build is interrupted, the next build continues it, unless
documents or the transform have changed.
"""

import base64
import hashlib
import json
import time
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.building import Stage
from indexes.faiss.recall import RECALL_AT, WANTED, Nearest, recall_facts
from indexes.generation import Publication
from indexes.milvus import schema
from indexes.milvus.client import Row
from indexes.milvus.store import MilvusStore
from indexes.rows import Blocks, DocumentRow

BUILDING = "building"
# The number of documents that are transformed together, and the number of vectors after which the progress is recorded.
BATCH_DOCUMENTS = 500
RECORD_AFTER = 20_000
TIMED_QUERIES = 32

Batch = tuple[list[tuple[int, DocumentRow]], dict[bytes, int]]
"""Numbered documents, and the vector number of each of their text hashes."""


def publish(store: MilvusStore, publication: Publication, progress: Stage) -> None:
    """Build an index, switch to it, and remove the index that it replaces."""
    state = store.state
    before = state.read()
    number = before.last_generation + 1
    name = f"{number:06d}"
    build = _Build(store, store.table_of(name), publication)
    measured = build.run(progress)
    with TemporaryDirectory() as folder:
        files = {file: (Path(folder) / file).read_bytes() for file in publication.write_transform(Path(folder))}
    for file, data in files.items():
        state.records.write(file_record(number, file), base64.b64encode(data).decode())
    manifest = publication.manifest(
        factory=build.kind,
        settings=build.settings,
        measured=measured,
        note="",
        last_vector=store.last_vector(),
        count=build.count,
        files={file: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for file, data in files.items()},
    )
    state.renew()
    replaced = _replaced(before.generation)
    generation = {
        "number": number,
        "name": name,
        "sha256": manifest_sha256(manifest),
        "manifest": manifest,
        "replaces": replaced,
    }
    state.change(settings=publication.settings, generation=generation, last_generation=number)
    store.apply = publication.apply
    store.records.delete([BUILDING])
    if publication.compact:
        _delete_unused_vectors(store)
    for old in replaced:
        store.client.drop(store.table_of(old["name"]))
        state.records.delete(file_record(old["number"], file) for file in old["files"])


def file_record(number: int, name: str) -> str:
    """Return the name of the record that holds a file of the transform."""
    return f"file/{number}/{name}"


def manifest_sha256(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _replaced(generation: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the generations to remove when this generation is replaced.

    These are this generation and its predecessor. The predecessor still exists if a writer died before removing it.
    """
    if generation is None:
        return []
    own = {"number": int(generation["number"]), "name": generation["name"], "files": [*generation["manifest"]["files"]]}
    return [own, *generation.get("replaces", [])[:1]]


def _delete_unused_vectors(store: MilvusStore) -> None:
    used = set(store.used_vectors().tolist())
    for block in store.client.numbered_blocks(store.vectors_table, []):
        if unused := [row["number"] for row in block if row["number"] not in used]:
            store.client.delete_in(store.vectors_table, "number", unused)


class _Build:
    """Fills the table of one index, and measures its recall and speed."""

    def __init__(self, store: MilvusStore, table: str, publication: Publication) -> None:
        self._kind = schema.index_kind(publication.request.type, store.count("vectors"), publication.dimension_out)
        self.kind = self._kind[0]
        self.settings = schema.SEARCH_SETTINGS.get(self.kind, {})
        self.count = 0
        self._store = store
        self._table = table
        self._publication = publication
        self._exact = self.kind == schema.EXACT

    def run(self, progress: Stage) -> dict[str, Any]:
        store, client, publication = self._store, self._store.client, self._publication
        queries = publication.held_out_queries()
        documents, done, unrecorded = store.count("documents"), 0, 0
        nearest = Nearest(queries, documents) if queries else None
        after = self._last_document() if self._exact else 0  # only one whole run can measure the recall
        if after:
            done = client.count(store.documents_table, f"number <= {after}")
        else:
            client.drop(self._table)
        table = schema.index_table(client.pymilvus, publication.dimension_out, self._kind)
        client.create(self._table, *table)
        progress("building the index", done, documents)
        batches: deque[Batch] = deque()
        for numbers, mapped in publication.mapped(self._raw_vectors(after, batches)):
            rows, vectors = batches.popleft()
            store.put_in_index(self._table, rows, vectors, dict(zip(numbers.tolist(), mapped, strict=True)))
            if nearest is not None and not self._exact:
                nearest.see(numbers, mapped)
            unrecorded += len(numbers)
            done += len(rows)
            store.state.renew()
            progress("building the index", done, documents)
            if unrecorded >= RECORD_AFTER:
                unrecorded = 0
                store.records.write(BUILDING, json.dumps({"build": self._identity(), "done": rows[-1][0]}))
        client.flush(self._table)
        if not self._exact:
            client.wait_for_index(self._table, "mapped")
        self.count = client.count(self._table)
        return self._measure(nearest)

    def _raw_vectors(self, after: int, batches: "deque[Batch]") -> Blocks:
        """Yield the raw vectors of documents in batches. Append each batch to `batches` before yielding its vectors."""
        for block in self._store.each_row(after):
            for start in range(0, len(block), BATCH_DOCUMENTS):
                documents = block[start : start + BATCH_DOCUMENTS]
                vectors = {
                    text_hash: passage.vector
                    for _, row, passages in documents
                    for (_, _, text_hash), passage in zip(row.passages, passages, strict=True)
                }
                numbers = list(dict.fromkeys(vectors.values()))
                batches.append(([(number, row) for number, row, _ in documents], vectors))
                raw = self._store.vectors(numbers, self._store.state.dimension, checked=True)
                yield np.array(numbers, np.int64), raw

    def _last_document(self) -> int:
        """Return the last document that an interrupted build of the same index has written, or 0."""
        text = self._store.records.read(BUILDING)
        record = json.loads(text) if text else None
        if record is None or record["build"] != self._identity() or not self._store.client.has(self._table):
            return 0
        return int(record["done"])

    def _identity(self) -> list[Any]:
        fingerprint = str(self._publication.facts["transform"]["fingerprint"])
        return [self._table, fingerprint, self.kind, self._store.state.counters()["changes"]]

    def _measure(self, nearest: Nearest | None) -> dict[str, Any]:
        """Measure the recall of the index and the time of a query, for the manifest."""
        held_out = nearest.held_out() if nearest is not None else None
        if held_out is None or not self.count:
            return {"recall": 1.0 if self._exact else None, "exact": self._exact}
        test = held_out.half(1)
        timed = test.queries.vectors[:TIMED_QUERIES]
        start = time.perf_counter()
        for query in timed:
            self._search(query)
        found: dict[str, Any] = {
            "at": RECALL_AT,
            "wall_ms": round(1000 * (time.perf_counter() - start) / len(timed), 3),
        }
        if self._exact:
            return found | {"recall": 1.0, "exact": True}
        k = test.numbers.shape[1]
        recalls = []
        for query, lowest in zip(test.queries.vectors, test.scores[:, -1] - 1e-6, strict=True):
            recalls.append(sum(hit["distance"] >= lowest for hit in self._search(query)[:k]) / k)
        return found | recall_facts(np.array(recalls), test.queries)

    def _search(self, query: NDArray[np.float32]) -> list[Row]:
        """Return the nearest rows of the index, one per distinct vector."""
        client = self._store.client
        (hits,) = client.search(self._table, "mapped", query[None], WANTED, ["vector"], settings=self.settings)
        return list({hit["vector"]: hit for hit in hits}.values())
