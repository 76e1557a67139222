"""Writes the documents and vectors of a collection in Milvus, and transfers them for `retriever copy`.

The writer numbers documents and vectors in ascending order. A document keeps its number when it changes. A counter is
increased before its numbers are used. If a writer dies, some numbers may remain unused, but none is used twice.
"""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import vector_checksum
from indexes.faiss.vectors import unit_rows
from indexes.milvus.client import Client, in_list
from indexes.milvus.reader import Reader
from indexes.milvus.rows import document_record, document_row, index_rows, intact_vector, seal_of
from indexes.milvus.state import Sealed, State
from indexes.rows import VECTOR_TYPE, Apply, DocumentRow, NumberedDocument, NumberedVector

DELETE_DOCUMENTS = 1000
DELETE_VERSIONS = 100

Result = TypeVar("Result")


class MilvusStore(Reader):
    """Reads and writes the tables of documents and vectors.

    A writer must hold the write lock. Any number of readers may read.
    """

    owner_detects_replacement = True

    def __init__(self, client: Client, state: State) -> None:
        super().__init__(client, state)
        self.sample: tuple[object, NDArray[np.float64] | None] = (None, None)
        """The index that a sample of vectors was read from, and the sample, which later searches reuse."""
        self.apply: Apply | None = None
        """The transform of the published index, which is applied to new documents.

        Set only while a writer is active.
        """
        self._met: sqlite3.Connection | None = None

    def close(self) -> None:
        if self._met is not None:
            self._met.close()

    def consistent_read(self, work: Callable[[], Result]) -> Result:
        return work()

    def snapshot(self) -> AbstractContextManager[Any]:
        """Do nothing, because Milvus has no snapshots.

        A reader sees each document as it was before or after a change, never in between.
        """
        return contextlib.nullcontext()

    def refuse_if_replaced(self) -> None:
        pass

    def setting(self, key: str, *, checked: bool = True) -> Any:
        return self.state.read().settings.get(key)

    @property
    def language(self) -> str:
        """The language whose stems search by words compares."""
        return str(self.setting("language") or "")

    def set_settings(self, values: dict[str, Any]) -> None:
        self.state.change(settings=values)

    # ---- writing -------------------------------------------------------------------------------------------

    def add_vectors(self, hashes: Sequence[bytes], vectors: NDArray[np.floating[Any]]) -> None:
        """Store one raw vector per text. This happens before a document refers to it, so that no embedding is lost."""
        halves = np.ascontiguousarray(vectors, dtype=VECTOR_TYPE)
        known = self.vectors_of_texts(hashes)
        new = {text_hash: place for place, text_hash in reversed(list(enumerate(hashes))) if text_hash not in known}
        places = sorted(new.values())
        first = self.state.take_numbers("vector", len(places))
        self.put_vectors([(first + offset, hashes[place], halves[place]) for offset, place in enumerate(places)])

    def put_vectors(self, rows: Sequence[NumberedVector]) -> None:
        """Store raw vectors under the given numbers."""
        self.client.put(
            self.vectors_table,
            [
                {
                    "number": number,
                    "text_hash": text_hash.hex(),
                    "raw": half.astype(np.float32),
                    "checksum": vector_checksum(text_hash, half.tobytes()),
                }
                for number, text_hash, half in rows
            ],
        )

    def put_documents(self, documents: Iterable[DocumentRow]) -> None:
        """Add or replace documents. All their texts must have vectors.

        Readers see each document as it was before or after the change.
        """
        rows = {document.id: document for document in documents}
        before = self.heads(list(rows))
        new = [id_ for id_ in rows if id_ not in before]
        numbers = {id_: int(head["number"]) for id_, head in before.items()}
        first = self.state.counters()["document"] + 1
        numbers |= {id_: first + place for place, id_ in enumerate(new)}
        seals = {id_: seal_of(row) for id_, row in rows.items()}
        replaced = [(numbers[id_], head["seal"]) for id_, head in before.items() if head["seal"] != seals[id_]]
        unsettled = [*replaced, *((numbers[id_], seal) for id_, seal in seals.items())]
        self.state.take_numbers("document", len(new), len(rows), unsettled)
        self.put_numbered([(numbers[id_], rows[id_]) for id_ in rows])
        self._delete_versions(replaced)

    def put_numbered(self, rows: Sequence[NumberedDocument]) -> None:
        """Store documents under the given numbers: first their passages in the index, then the documents."""
        vectors = self.vectors_of_texts(list({text_hash: None for _, row in rows for _, _, text_hash in row.passages}))
        if (index := self.index_table) is not None:
            if self.apply is None:
                raise RuntimeError("the collection's `apply_of` must be set to write to a published index")
            numbers = list(dict.fromkeys(vectors.values()))
            mapped = unit_rows(self.apply(self.vectors(numbers, self.state.dimension, checked=True)))
            self.put_in_index(index, rows, vectors, dict(zip(numbers, mapped, strict=True)))
        records, language = self.records, self.language
        self.client.put(self.documents_table, [document_row(n, row, vectors, records, language) for n, row in rows])

    def put_in_index(
        self,
        index: str,
        rows: Sequence[NumberedDocument],
        vectors: Mapping[bytes, int],
        mapped: Mapping[int, NDArray[np.float32]],
    ) -> None:
        """Write the passages of documents to an index. `mapped` holds the transformed vectors by number."""
        self.client.put(index, [entry for number, row in rows for entry in index_rows(number, row, vectors, mapped)])

    def delete_documents(self, ids: Sequence[str]) -> list[str]:
        """Delete the given documents. Return the ids of those that existed."""
        heads = self.heads(ids)
        existing = [id_ for id_ in dict.fromkeys(ids) if id_ in heads]
        for start in range(0, len(existing), DELETE_DOCUMENTS):
            batch = [heads[id_] for id_ in existing[start : start + DELETE_DOCUMENTS]]
            versions = [(int(head["number"]), str(head["seal"])) for head in batch]
            self.state.take_numbers("document", 0, len(batch), versions)
            self.client.delete_in(self.documents_table, "number", [number for number, _ in versions])
            self._delete_versions(versions)
        return existing

    def remove_leftovers(self) -> None:
        """Remove the rows that a writer left behind when it died during a change."""
        versions = [(int(number), str(seal)) for number, seal in self.state.counters()["unsettled"]]
        seals = self.seals([number for number, _ in versions])
        outdated = [(number, seal) for number, seal in versions if seals.get(number) != seal]
        self._delete_versions(outdated)
        self.records.delete([document_record(number, seal) for number, seal in outdated], orphans=True)

    def _delete_versions(self, versions: Sealed) -> None:
        """Delete the passages and records of outdated versions of documents. No reader uses them any more."""
        if not versions:
            return
        if (index := self.index_table) is not None:
            for start in range(0, len(versions), DELETE_VERSIONS):
                numbers, seals = zip(*versions[start : start + DELETE_VERSIONS], strict=True)
                self.client.delete(index, f"{in_list('document', numbers)} and {in_list('seal', seals)}")
        self.records.delete([document_record(number, seal) for number, seal in versions])

    # ---- ids met in one run --------------------------------------------------------------------------------

    def start_run(self) -> None:
        """Start to record the ids of a source. They are kept in a temporary file, so that memory use stays constant."""
        self.close()
        self._met = sqlite3.connect("", check_same_thread=False)
        self._met.execute("CREATE TABLE met (id TEXT PRIMARY KEY) WITHOUT ROWID")

    def met_before(self, ids: Sequence[str]) -> set[str]:
        """Return which of the given ids this run has met before, and record all of them."""
        new = self._not_met(ids)
        assert self._met is not None
        self._met.executemany("INSERT OR IGNORE INTO met VALUES (?)", [[id_] for id_ in ids])
        return set(ids) - new

    def file_states(self) -> dict[str, str]:
        """Return nothing: the states of files are not kept in Milvus, so every file is read again."""
        return {}

    def set_file_states(self, states: Mapping[str, str]) -> None:
        """Do nothing, because the states of files are not kept in Milvus."""

    def not_met(self) -> Iterator[tuple[str, str]]:
        """Yield id and source of every document that this run has not met."""
        for block in self.each_row():
            missing = self._not_met([row.id for _, row, _ in block])
            yield from ((row.id, row.source) for _, row, _ in block if row.id in missing)

    def text_hashes(self, ids: Sequence[str]) -> dict[str, list[bytes]]:
        """Return the hashes of the texts of each document's passages, in order. Unknown ids are left out."""
        numbers = [int(head["number"]) for head in self.heads(ids).values()]
        return {row.id: [text_hash for _, _, text_hash in row.passages] for _, row, _ in self.rows(numbers)}

    def _not_met(self, ids: Sequence[str]) -> set[str]:
        assert self._met is not None
        query = "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT id FROM met)"
        return {str(row[0]) for row in self._met.execute(query, [json.dumps(list(ids))])}


@dataclass(frozen=True)
class MilvusTransfer:
    """The numbered rows of a collection, for copying it. The counters show how far a copy has come."""

    store: MilvusStore

    def last(self) -> tuple[int, int]:
        counters = self.store.state.counters()
        return counters["vector"], counters["document"]

    def vectors(self, after: int) -> Iterator[list[NumberedVector]]:
        store, fields = self.store, ["text_hash", "raw", "checksum"]
        for block in store.client.numbered_blocks(store.vectors_table, fields, f"number > {after}"):
            found: list[NumberedVector] = []
            for row in block:
                half = intact_vector(row)
                if half is None:
                    raise store.damaged(f"vector {row['number']}")
                found.append((int(row["number"]), bytes.fromhex(row["text_hash"]), half))
            yield found

    def documents(self, after: int) -> Iterator[list[NumberedDocument]]:
        for block in self.store.each_row(after):
            yield [(number, row) for number, row, _ in block]

    def put_vectors(self, rows: Sequence[NumberedVector]) -> None:
        self.store.put_vectors(rows)
        self._advance("vector", rows[-1][0])

    def put_documents(self, rows: Sequence[NumberedDocument]) -> None:
        self.store.put_numbered(rows)
        self._advance("document", rows[-1][0])

    def _advance(self, kind: str, number: int) -> None:
        state = self.store.state
        state.renew()
        counters = state.counters()
        state.set_counters({**counters, kind: max(number, counters[kind])})

    def seals(self) -> Iterator[tuple[int, str]]:
        for block in self.store.client.numbered_blocks(self.store.documents_table, ["seal"]):
            for row in block:
                yield int(row["number"]), str(row["seal"])
