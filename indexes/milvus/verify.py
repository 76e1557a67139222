"""Look at every row of a collection in Milvus, and say what is not as it was stored."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from indexes.errors import Damaged, Locked
from indexes.faiss.vectors import unit_rows
from indexes.folder.generation import Generation
from indexes.folder.verify import Report
from indexes.milvus.client import Row, TableGone
from indexes.milvus.collection import MilvusCollection
from indexes.milvus.facts import facts_and_bounds
from indexes.milvus.rows import DOCUMENT_FIELDS, id_hash, passage_of, sound_half, stored_document
from indexes.rows import Apply, DocumentRow, PassageRow

Progress = Callable[[int, int], None]
Told = tuple[list[str], dict[str, str]]
"""What filters ask of a document."""
Expected = dict[tuple[PassageRow, str], Told]
"""Passages that the index must have, with the seal of their document."""

# Documents that are read and held against the index at a time.
TOGETHER = 200
TRIES = 5

# A mapped vector may differ in its last bits where another machine has mapped it.
SAME = 1e-4


def check(collection: MilvusCollection, apply_of: Callable[[Generation], Apply], progress: Progress) -> Report:
    """Check every document, every raw vector, and every passage of the published index against both.

    What is changed meanwhile can look damaged: then all is looked at again.
    """
    for _ in range(TRIES):
        before = _changes(collection)
        try:
            report = _Check(collection, apply_of, progress).run()
        except TableGone:
            if _changes(collection) == before:
                raise
            continue
        if report.clean or _changes(collection) == before:
            return report
    raise Locked(f"{collection.name} is being written to all the time; verify it when that is done.")


def _changes(collection: MilvusCollection) -> tuple[object, ...]:
    return collection.published(), collection.state.counters()["changes"]


class _Check:
    """A pass over the vectors, then one over the documents, some at a time, with what stands in the index of them."""

    def __init__(
        self, collection: MilvusCollection, apply_of: Callable[[Generation], Apply], progress: Progress
    ) -> None:
        self.collection = collection
        self.store = collection.store
        self.report = Report()
        self._apply_of = apply_of
        self._apply: Apply | None = None
        """What the index was made with, as long as nothing is wrong with the index."""
        self._table = ""
        self._missing = 0
        self._progress = progress
        self._total = self._done = 0

    def run(self) -> Report:
        self._total = sum(self.store.count(kind) for kind in ("vectors", "documents", "passages"))
        self._vectors()
        with self._of_the_index():
            generation = self.collection.with_generation(lambda found: found, fresh=True)
            if generation is not None:
                self.report.files = len(generation.manifest["files"])
                self._apply, self._table = self._apply_of(generation), self.store.table_of(generation.folder.name)
        self._documents()
        with self._of_the_index():
            if self._apply and self._missing:
                raise Damaged(f"the index lacks {self._missing:,} passages of documents that are there")
        return self.report

    def _vectors(self) -> None:
        client, report = self.store.client, self.report
        for block in client.each(self.store.vectors_table, "number", ["text_hash", "raw", "checksum"]):
            for row in block:
                number = int(row["number"])
                if sound_half(row) is None:
                    report.bad_vectors[number] = "does not match its checksum"
                    report.problems.append(f"vector {number} does not match its checksum")
            report.vectors += len(block)
            self._tell(len(block))

    def _documents(self) -> None:
        fields = (*DOCUMENT_FIELDS, "id_hash", "facts", "bounds")
        for block in self.store.client.each(self.store.documents_table, "number", fields, together=TOGETHER):
            expected = self._sound(block)
            self.report.documents += len(block)
            self._tell(len(block))
            with self._of_the_index():
                self._in_the_index(expected)

    def _sound(self, rows: list[Row]) -> Expected:
        """The passages of those that are as they were stored; the others are reported."""
        read: list[tuple[Row, DocumentRow, list[PassageRow]]] = []
        for row in rows:
            try:
                read.append((row, *stored_document(row, self.store.records)))
            except (ValueError, KeyError, TypeError, Damaged) as error:
                self._flawed(row, f"is not what was stored: {error}")
        numbers = [passage.vector for _, _, passages in read for passage in passages if _can_be(passage.vector)]
        vectors = self.store.client.select_among(self.store.vectors_table, "number", numbers, ["number", "text_hash"])
        hashes = {int(row["number"]): row["text_hash"] for row in vectors}
        expected: Expected = {}
        for row, document, passages in read:
            told = facts_and_bounds(document.metadata)
            if reason := self._flaw(row, document, passages, hashes, told):
                self._flawed(row, reason)
            else:
                expected |= dict.fromkeys(((passage, row["seal"]) for passage in passages), told)
        return expected

    def _flaw(
        self, row: Row, document: DocumentRow, passages: list[PassageRow], hashes: Mapping[int, str], told: Told
    ) -> str:
        for (_, _, text_hash), passage in zip(document.passages, passages, strict=True):
            if not _can_be(passage.vector) or hashes.get(passage.vector) != text_hash.hex():
                return f"has lost the vector {passage.vector}"
            if passage.vector in self.report.bad_vectors:
                return f"stands on the damaged vector {passage.vector}"
        if row["id_hash"] != id_hash(document.id) or not _same_facts(row, told):
            return "cannot be found as it was stored: what it is looked up by has changed"
        return ""

    def _flawed(self, row: Row, reason: str) -> None:
        self.report.bad_documents[int(row["number"])] = reason
        self.report.problems.append(f"document {row['id'][:60]!r} {reason}")

    def _in_the_index(self, expected: Expected) -> None:
        """Take what the index has from what it must have; what belongs to no document any more is never found."""
        if self._apply is None:
            return
        store = self.store
        documents = sorted({passage.document for passage, _ in expected})
        fields = ("document", "position", "start", "end", "vector", "seal", "mapped", "facts", "bounds")
        rows = store.client.select_among(self._table, "document", documents, fields)
        wanted = [(row, expected.pop((passage_of(row), row["seal"]), None)) for row in rows]
        alive = [row for row, told in wanted if told is not None]
        if not all(_same_facts(row, told) for row, told in wanted if told is not None):
            raise Damaged("the index holds other metadata than the documents")
        if alive:
            raw = store.vectors([row["vector"] for row in alive], store.state.dimension)
            stored = np.array([row["mapped"] for row in alive], np.float32)
            if not np.allclose(unit_rows(self._apply(raw)), stored, atol=SAME):
                raise Damaged("the index holds other vectors than the transform makes of the stored ones")
        self._missing += len(expected)
        self._tell(len(rows))

    @contextlib.contextmanager
    def _of_the_index(self) -> Iterator[None]:
        """What is found wrong with the index is said once, and it is looked at no further."""
        try:
            yield
        except Damaged as error:
            self._apply = None
            self.report.generation_broken = True
            self.report.problems.append(str(error))

    def _tell(self, more: int) -> None:
        self._done += more
        self._progress(self._done, self._total)


def _can_be(vector: object) -> bool:
    """Whether it can be the number of a vector; damage may have made anything of it."""
    return type(vector) is int and 0 < vector < 1 << 63


def _same_facts(row: Row, told: Told) -> bool:
    return set(row["facts"]) == set(told[0]) and row["bounds"] == told[1]
