"""The documents of a collection in Milvus, their passages, and the raw vector of every distinct text.

Numbers are given out by the one who writes, and rise: documents keep theirs when they change. A counter is moved before
the numbers are used, so that a writer which dies leaves a gap at worst.
"""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import is_unicode, vector_checksum
from indexes.errors import Damaged
from indexes.faiss.vectors import unit_rows
from indexes.milvus import facts
from indexes.milvus.client import Changed, Client, Row, among
from indexes.milvus.rows import (
    DOCUMENT_FIELDS,
    document_row,
    fields_of,
    id_hash,
    index_rows,
    long_name,
    metadata_in,
    passage_of,
    passages_in,
    places_in,
    seal_of,
    sound_half,
    stored_document,
)
from indexes.milvus.state import Sealed, State
from indexes.rows import VECTOR_TYPE, Apply, DocumentRow, PassageRow
from indexes.sqlite.conditions import Condition, names_in, no_such_field

DELETED_TOGETHER = 1000
# Whole documents, of a quarter of a megabyte at most, within the 100 MB that a server gives at once.
READ_TOGETHER = 200

Result = TypeVar("Result")


class MilvusStore:
    """The tables of documents and vectors. Writers hold the collection's lock; any number may read."""

    owner_detects_replacement = True

    def __init__(self, client: Client, state: State) -> None:
        self.client = client
        self.state = state
        self.records = state.records
        self.documents_table = f"{client.address.name}_documents"
        self.vectors_table = f"{client.address.name}_vectors"
        self.sampled: tuple[object, NDArray[np.float64] | None] = (None, None)
        """Of which index a sample of vectors was fetched, for searches to come, and the sample."""
        self.apply: Apply | None = None
        """While somebody writes: the transform of the published index, which takes what is written at once."""
        self._met: sqlite3.Connection | None = None

    def consistent_read(self, work: Callable[[], Result]) -> Result:
        return work()

    def snapshot(self) -> AbstractContextManager[Any]:
        """Milvus has no snapshots; a document is seen as it was or as it is, never between."""
        return contextlib.nullcontext()

    def refuse_if_replaced(self) -> None:
        pass

    def setting(self, key: str, *, checked: bool = True) -> Any:
        return self.state.read().settings.get(key)

    def set_settings(self, values: dict[str, Any]) -> None:
        self.state.change(settings=values)

    @property
    def index_table(self) -> str | None:
        """The table of the published index."""
        published = self.state.read().published
        return None if published is None else self.table_of(published[1])

    def table_of(self, generation: str) -> str:
        """The table that holds the index of a generation, by its name."""
        return f"{self.client.address.name}_{generation}"

    # ---- what is there -------------------------------------------------------------------------------------

    def count(self, table: str) -> int:
        if table in ("unused", "quarantine"):  # what is no longer used leaves the index at once, or with a rebuild
            return 0
        if table == "passages":
            index = self.index_table
            return self.client.count(index) if index else sum(1 for _ in self._each_passage())
        return self.client.count({"documents": self.documents_table, "vectors": self.vectors_table}[table])

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The stored content hash of each of these documents that exists."""
        return {id_: bytes.fromhex(row["content_hash"]) for id_, row in self._heads(ids).items()}

    def _heads(self, ids: Sequence[str]) -> dict[str, Row]:
        """Number, content hash and seal of each of these documents that exists."""
        hashes = {id_hash(id_): id_ for id_ in ids}
        fields = ("number", "id_hash", "content_hash", "seal", "whole")
        rows = self.client.select_among(self.documents_table, "id_hash", list(hashes), fields)
        return {hashes[row["id_hash"]]: row for row in rows}

    def document_number(self, id_: str) -> int | None:
        found = self._heads([id_]) if is_unicode(id_) else {}
        return int(found[id_]["number"]) if found else None

    def seals(self, numbers: Sequence[int]) -> dict[int, str]:
        """The seal of each of these documents that is there."""
        rows = self.client.select_among(self.documents_table, "number", numbers, ["number", "seal"])
        return {int(row["number"]): str(row["seal"]) for row in rows}

    def documents(self, numbers: Sequence[int], found: Iterable[PassageRow] = ()) -> dict[int, dict[str, Any]]:
        """The stored fields of these documents, refused where they are not what was stored; `found` are some of their
        passages, as the index has them."""
        stored = {}
        passages: dict[int, list[PassageRow]] = {}
        for number, row, places in self.rows(numbers):
            passages[number] = places
            stored[number] = fields_of(row)
        for passage in found:
            own = passages.get(passage.document, [])
            if passage.document in stored and passage not in own:
                raise self.not_as_stored(f"a passage of document {stored[passage.document]['id']!r}")
        return stored

    def rows(self, numbers: Sequence[int]) -> Iterator[tuple[int, DocumentRow, list[PassageRow]]]:
        """These documents as they were stored, with their passages; refused where one is not what was stored."""
        for start in range(0, len(numbers), READ_TOGETHER):
            some = numbers[start : start + READ_TOGETHER]
            for row in self.client.select_among(self.documents_table, "number", some, DOCUMENT_FIELDS):
                yield self._document(row)

    def each_row(self, after: int = 0) -> Iterator[list[tuple[int, DocumentRow, list[PassageRow]]]]:
        """All documents numbered after `after`, rising, some at a time."""
        blocks = self.client.each(
            self.documents_table, "number", DOCUMENT_FIELDS, f"number > {after}", together=READ_TOGETHER
        )
        for block in blocks:
            yield [self._document(row) for row in block]

    def _document(self, row: Row) -> tuple[int, DocumentRow, list[PassageRow]]:
        number = int(row["number"])
        try:
            return number, *stored_document(row, self.records)
        except (ValueError, KeyError, TypeError, Damaged) as error:
            if self.seals([number]).get(number) != row["seal"]:  # and what it said is gone with it
                raise Changed(f"{self.client.address}: document number {number} was changed meanwhile.") from error
            raise self.not_as_stored(f"document number {number}") from error

    def not_as_stored(self, what: str) -> Damaged:
        return Damaged(
            f"{self.client.address}: {what} is not what was stored; "
            f"run: retriever verify --repair --store {self.client.address}"
        )

    # ---- passages ------------------------------------------------------------------------------------------

    def passages_of_documents(self, numbers: Sequence[int]) -> dict[int, list[PassageRow]]:
        """The passages of each of these documents, in order; none for one that is not there."""
        found: dict[int, list[PassageRow]] = {number: [] for number in numbers}
        for number, _, passages in self.rows(numbers):
            found[number] = passages
        return found

    def passages_of_vectors(self, vectors: Sequence[int]) -> dict[int, list[PassageRow]]:
        """Every live passage that each vector stands for, in the order of the documents' arrival."""
        wanted = set(vectors)
        index = self.index_table
        if index is None:
            passages = [passage for passage in self._each_passage() if passage.vector in wanted]
        else:
            fields = ("document", "position", "start", "end", "vector", "seal")
            rows = self.client.select_among(index, "vector", list(wanted), fields)
            seals = self.seals([row["document"] for row in rows])
            passages = [passage_of(row) for row in rows if seals.get(row["document"]) == row["seal"]]
        found: dict[int, list[PassageRow]] = {}
        for passage in sorted(passages, key=lambda passage: (passage.document, passage.position)):
            found.setdefault(passage.vector, []).append(passage)
        return found

    def _each_passage(self, after: int = 0) -> Iterator[PassageRow]:
        """The passages of all documents that have a vector newer than `after`, in the order of arrival."""
        fields = ("number", "seal", "passages", "whole")
        for block in self.client.each(self.documents_table, "number", fields, f"last_vector > {after}"):
            for row in block:
                yield from self._passages(row)

    def _passages(self, row: Row) -> list[PassageRow]:
        try:
            return passages_in(int(row["number"]), places_in(row, self.records))
        except (ValueError, KeyError, TypeError) as error:
            raise self.not_as_stored(f"document number {row['number']}") from error

    def passage_sample(self, most: int, seed: int) -> list[PassageRow]:
        """Passages in the order of the documents' arrival: all of them or a seeded random choice."""
        count = sum(1 for _ in self._each_passage())  # twice, so that only those chosen are held
        wanted = set(np.random.default_rng(seed).permutation(count)[:most].tolist())
        return [passage for place, passage in enumerate(self._each_passage()) if place in wanted]

    # ---- vectors -------------------------------------------------------------------------------------------

    def vectors_of_texts(self, hashes: Sequence[bytes]) -> dict[bytes, int]:
        """The vector number of each of these text hashes that was embedded before."""
        rows = self.client.select_among(
            self.vectors_table, "text_hash", [text_hash.hex() for text_hash in hashes], ["number", "text_hash"]
        )
        return {bytes.fromhex(row["text_hash"]): int(row["number"]) for row in rows}

    def vectors(self, numbers: Sequence[int], dimension: int, *, checked: bool = False) -> NDArray[np.float32]:
        """The raw vectors with these numbers, in that order; `checked` holds each against its checksum."""
        fields = ["number", "raw", *(["text_hash", "checksum"] if checked else [])]
        found = {
            int(row["number"]): self._sound(row) if checked else row["raw"]
            for row in self.client.select_among(self.vectors_table, "number", numbers, fields)
        }
        if missing := [number for number in numbers if number not in found]:
            raise self.not_as_stored(f"vector {missing[0]}, which is gone,")
        return np.array([found[number] for number in numbers], np.float32).reshape(len(numbers), dimension)

    def _sound(self, row: Row) -> Any:
        if sound_half(row) is None:
            raise self.not_as_stored(f"vector {row['number']}")
        return row["raw"]

    def last_vector(self) -> int:
        return int(self.state.counters()["vector"])

    def used_vectors(self, after: int = 0) -> NDArray[np.int64]:
        """The vectors newer than `after` that a passage points to, rising."""
        numbers = (passage.vector for passage in self._each_passage(after) if passage.vector > after)
        return np.unique(np.fromiter(numbers, np.int64))

    def count_used_after(self, last: int) -> int:
        """How many vectors newer than `last` a passage points to."""
        return len(self.used_vectors(last))

    # ---- filters -------------------------------------------------------------------------------------------

    def check_fields(self, conditions: Sequence[Condition]) -> None:
        """Refuse a condition on a field that no document has, with the names of those there are."""
        for field in dict.fromkeys(condition.field for condition in conditions):
            if not self.client.count(self.documents_table, facts.has_key(field)):
                raise no_such_field(field, self._known_fields())

    def _known_fields(self) -> list[str]:
        blocks = self.client.each(self.documents_table, "number", ["metadata", "whole", "seal"])
        return names_in(metadata_in(row, self.records) for block in blocks for row in block)

    def matching(self, conditions: Sequence[Condition]) -> str:
        """The documents that meet all conditions, as the expression that rows of theirs meet."""
        return facts.expression(conditions)

    def metadata_problem(self, metadata: Mapping[str, Any]) -> str | None:
        """Why a document with this metadata cannot be stored here."""
        return facts.metadata_problem(metadata)

    # ---- writing -------------------------------------------------------------------------------------------

    def add_vectors(self, hashes: Sequence[bytes], vectors: NDArray[np.floating[Any]]) -> None:
        """Store one raw vector a text, before any document points to it, so that no embedding is lost."""
        halves = np.ascontiguousarray(vectors, dtype=VECTOR_TYPE)
        known = self.vectors_of_texts(hashes)
        new = {text_hash: place for place, text_hash in reversed(list(enumerate(hashes))) if text_hash not in known}
        places = sorted(new.values())
        first = self.state.take_numbers("vector", len(places))
        self.put_vectors(
            [(first + offset, hashes[place], halves[place]) for offset, place in enumerate(places)],
        )

    def put_vectors(self, rows: Sequence[tuple[int, bytes, NDArray[np.float16]]]) -> None:
        """Store these raw vectors under these numbers."""
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
        """Add or replace documents whose texts all have vectors; each is seen as it was or as it is."""
        rows = {document.id: document for document in documents}
        before = self._heads(list(rows))
        new = [id_ for id_ in rows if id_ not in before]
        numbers = {id_: int(head["number"]) for id_, head in before.items()}
        first = self.state.counters()["document"] + 1
        numbers |= {id_: first + place for place, id_ in enumerate(new)}
        seals = {id_: seal_of(row) for id_, row in rows.items()}
        old = [(numbers[id_], head["seal"]) for id_, head in before.items() if head["seal"] != seals[id_]]
        unsettled = [*old, *((numbers[id_], seal) for id_, seal in seals.items())]
        self.state.take_numbers("document", len(new), len(rows), unsettled)
        self.put_numbered([(numbers[id_], rows[id_]) for id_ in rows])
        self._forget(old)

    def put_numbered(self, rows: Sequence[tuple[int, DocumentRow]]) -> None:
        """Store these documents under these numbers: first their passages in the index, then themselves."""
        hashes = list({text_hash: None for _, row in rows for _, _, text_hash in row.passages})
        vectors = self.vectors_of_texts(hashes)
        index = self.index_table
        if index is not None:
            if self.apply is None:
                raise RuntimeError("nobody has told by which transform what is written is mapped")
            numbers = list(dict.fromkeys(vectors.values()))
            mapped = unit_rows(self.apply(self.vectors(numbers, self.state.dimension, checked=True)))
            self.put_in_index(index, rows, vectors, dict(zip(numbers, mapped, strict=True)))
        self.client.put(
            self.documents_table, [document_row(number, row, vectors, self.records) for number, row in rows]
        )

    def put_in_index(
        self,
        index: str,
        rows: Sequence[tuple[int, DocumentRow]],
        vectors: Mapping[bytes, int],
        mapped: Mapping[int, NDArray[np.float32]],
    ) -> None:
        """Write the passages of documents to an index, by the mapped vectors of these numbers."""
        self.client.put(index, [one for number, row in rows for one in index_rows(number, row, vectors, mapped)])

    def delete_documents(self, ids: Sequence[str]) -> list[str]:
        """Delete these documents; returns the ids that were there."""
        heads = self._heads(ids)
        there = [id_ for id_ in dict.fromkeys(ids) if id_ in heads]
        for start in range(0, len(there), DELETED_TOGETHER):
            some = [heads[id_] for id_ in there[start : start + DELETED_TOGETHER]]
            sealed = [(int(head["number"]), str(head["seal"])) for head in some]
            self.state.take_numbers("document", 0, len(some), sealed)
            self.client.delete_among(self.documents_table, "number", [number for number, _ in sealed])
            self._forget(sealed)
        return there

    def settle(self) -> None:
        """Remove what a writer that died in the middle of a change has left of documents as they are not."""
        sealed = [(int(number), str(seal)) for number, seal in self.state.counters()["unsettled"]]
        alive = self.seals([number for number, _ in sealed])
        gone = [(number, seal) for number, seal in sealed if alive.get(number) != seal]
        self._forget(gone)
        self.records.sweep(long_name(number, seal) for number, seal in gone)

    def _forget(self, sealed: Sealed) -> None:
        """Remove what belonged to documents as they were: nobody is led to it any more."""
        if not sealed:
            return
        index = self.index_table
        if index is not None:
            for start in range(0, len(sealed), 100):
                some = sealed[start : start + 100]
                numbers, seals = [number for number, _ in some], [seal for _, seal in some]
                self.client.delete(index, f"{among('document', numbers)} and {among('seal', seals)}")
        self.records.delete(long_name(number, seal) for number, seal in sealed)

    # ---- ids met in one run --------------------------------------------------------------------------------

    def start_run(self) -> None:
        """Begin to note the ids met while a source is read (in a temporary file, so memory stays flat)."""
        if self._met is not None:
            self._met.close()
        self._met = sqlite3.connect("", check_same_thread=False)
        self._met.execute("CREATE TABLE met (id TEXT PRIMARY KEY) WITHOUT ROWID")

    def met_before(self, ids: Sequence[str]) -> set[str]:
        """Which of these ids this run has met already; notes them all."""
        assert self._met is not None
        named = json.dumps(list(ids))
        rows = self._met.execute("SELECT id FROM met WHERE id IN (SELECT value FROM json_each(?))", [named])
        before = {str(row[0]) for row in rows}
        self._met.executemany("INSERT OR IGNORE INTO met VALUES (?)", [[id_] for id_ in ids])
        return before

    def delete_not_met(self) -> int:
        """Delete every document that this run has not met."""
        assert self._met is not None
        gone: list[str] = []
        for block in self.each_row():
            named = json.dumps([row.id for _, row, _ in block])
            rows = self._met.execute("SELECT value FROM json_each(?) WHERE value NOT IN (SELECT id FROM met)", [named])
            gone += [str(row[0]) for row in rows]
        self.delete_documents(gone)
        return len(gone)

    def close(self) -> None:
        if self._met is not None:
            self._met.close()
