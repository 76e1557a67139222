"""Verifies a collection in Milvus: reads every row and reports damage."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from indexes.errors import Damaged, Locked, TableGone
from indexes.faiss.vectors import unit_rows
from indexes.folder.verify import Report
from indexes.generation import Generation
from indexes.milvus.client import Row
from indexes.milvus.collection import MilvusCollection
from indexes.milvus.facts import facts_and_bounds
from indexes.milvus.rows import (
    DOCUMENT_FIELDS,
    PASSAGE_FIELDS,
    id_hash,
    indexed_passage,
    intact_vector,
    stored_document,
)
from indexes.rows import Apply, DocumentRow, PassageRow

Progress = Callable[[int, int], None]
Filterable = tuple[list[str], dict[str, str]]
"""The facts and bounds of a document. Filters test these values."""
Expected = dict[tuple[PassageRow, str], Filterable]
"""The passages that the index must hold, with the seals of their documents, and the values that filters test."""

READ_DOCUMENTS = 200
MAX_RETRIES = 5
# The last bits of a transformed vector may differ if another machine computed it.
TOLERANCE = 1e-4


def check(collection: MilvusCollection, apply_of: Callable[[Generation], Apply], progress: Progress) -> Report:
    """Check every document, every raw vector, and every passage of the published index.

    A document that is changed during the check can look damaged. If something was changed, the check is repeated.
    """
    for _ in range(MAX_RETRIES):
        before = _changes(collection)
        try:
            report = _Check(collection, apply_of, progress).run()
        except TableGone:
            if _changes(collection) == before:
                raise
            continue
        if report.clean or _changes(collection) == before:
            return report
    raise Locked(f"{collection.name} is being changed continuously; verify it when the writer is done.")


def _changes(collection: MilvusCollection) -> tuple[object, ...]:
    return collection.published(), collection.state.counters()["changes"]


class _Check:
    """One run of the check. It reads all vectors, then all documents in blocks with their rows in the index."""

    def __init__(
        self, collection: MilvusCollection, apply_of: Callable[[Generation], Apply], progress: Progress
    ) -> None:
        self.collection = collection
        self.store = collection.store
        self.report = Report()
        self._apply_of = apply_of
        self._apply: Apply | None = None
        """The transform of the index. None if there is no index or if it is damaged."""
        self._table = ""
        self._missing = 0
        self._progress = progress
        self._total = self._done = 0

    def run(self) -> Report:
        self._total = sum(self.store.count(kind) for kind in ("vectors", "documents", "passages"))
        self._check_vectors()
        with self._reporting_index_damage():
            generation = self.collection.with_generation(lambda found: found, fresh=True)
            if generation is not None:
                self.report.files = len(generation.manifest["files"])
                self._apply, self._table = self._apply_of(generation), self.store.table_of(generation.folder.name)
        self._check_documents()
        with self._reporting_index_damage():
            if self._apply and self._missing:
                raise Damaged(f"the index lacks {self._missing:,} passages of stored documents")
        return self.report

    def _check_vectors(self) -> None:
        client, report = self.store.client, self.report
        for block in client.numbered_blocks(self.store.vectors_table, ["text_hash", "raw", "checksum"]):
            for row in block:
                number = int(row["number"])
                if intact_vector(row) is None:
                    report.bad_vectors[number] = "does not match its checksum"
                    report.problems.append(f"vector {number} does not match its checksum")
            report.vectors += len(block)
            self._advance(len(block))

    def _check_documents(self) -> None:
        fields = (*DOCUMENT_FIELDS, "id_hash", "facts", "bounds")
        table = self.store.documents_table
        for block in self.store.client.numbered_blocks(table, fields, rows=READ_DOCUMENTS):
            expected = self._intact_passages(block)
            self.report.documents += len(block)
            self._advance(len(block))
            with self._reporting_index_damage():
                self._compare_index(expected)

    def _intact_passages(self, rows: list[Row]) -> Expected:
        """Return the passages of the intact documents, and report the damaged documents."""
        read: list[tuple[Row, DocumentRow, list[PassageRow]]] = []
        for row in rows:
            try:
                read.append((row, *stored_document(row, self.store.records)))
            except (ValueError, KeyError, TypeError, Damaged) as error:
                self._report(row, f"is damaged: {error}")
        numbers = [passage.vector for _, _, passages in read for passage in passages if _is_number(passage.vector)]
        vectors = self.store.client.select_in(self.store.vectors_table, "number", numbers, ["number", "text_hash"])
        hashes = {int(row["number"]): row["text_hash"] for row in vectors}
        expected: Expected = {}
        for row, document, passages in read:
            filterable = facts_and_bounds(document.metadata)
            if reason := self._find_damage(row, document, passages, hashes, filterable):
                self._report(row, reason)
            else:
                expected |= dict.fromkeys(((passage, row["seal"]) for passage in passages), filterable)
        return expected

    def _find_damage(
        self,
        row: Row,
        document: DocumentRow,
        passages: list[PassageRow],
        hashes: Mapping[int, str],
        filterable: Filterable,
    ) -> str:
        for (_, _, text_hash), passage in zip(document.passages, passages, strict=True):
            if not _is_number(passage.vector) or hashes.get(passage.vector) != text_hash.hex():
                return f"lacks its vector {passage.vector}"
            if passage.vector in self.report.bad_vectors:
                return f"uses the damaged vector {passage.vector}"
        if row["id_hash"] != id_hash(document.id) or not _same(row, filterable):
            return "has a damaged hash of its id or damaged values for filters"
        return ""

    def _report(self, row: Row, reason: str) -> None:
        self.report.bad_documents[int(row["number"])] = reason
        self.report.problems.append(f"document {row['id'][:60]!r} {reason}")

    def _compare_index(self, expected: Expected) -> None:
        """Compare the rows of the index with the expected rows. Ignore rows of replaced documents, as a search does."""
        if self._apply is None:
            return
        store = self.store
        documents = sorted({passage.document for passage, _ in expected})
        fields = (*PASSAGE_FIELDS, "seal", "mapped", "facts", "bounds")
        rows = store.client.select_in(self._table, "document", documents, fields)
        current = []
        for row in rows:
            filterable = expected.pop((indexed_passage(row), row["seal"]), None)
            if filterable is not None:
                current.append(row)
                if not _same(row, filterable):
                    raise Damaged("the metadata in the index differs from the metadata of the documents")
        if current:
            raw = store.vectors([row["vector"] for row in current], store.state.dimension)
            mapped = np.array([row["mapped"] for row in current], np.float32)
            if not np.allclose(unit_rows(self._apply(raw)), mapped, atol=TOLERANCE):
                raise Damaged("the vectors in the index differ from the transformed raw vectors")
        self._missing += len(expected)
        self._advance(len(rows))

    @contextlib.contextmanager
    def _reporting_index_damage(self) -> Iterator[None]:
        """Report the first damage of the index, and do not check the index further."""
        try:
            yield
        except Damaged as error:
            self._apply = None
            self.report.generation_broken = True
            self.report.problems.append(str(error))

    def _advance(self, more: int) -> None:
        self._done += more
        self._progress(self._done, self._total)


def _is_number(vector: object) -> bool:
    """Return whether a value can be the number of a vector. A damaged row may hold any value."""
    return type(vector) is int and 0 < vector < 1 << 63


def _same(row: Row, filterable: Filterable) -> bool:
    facts, bounds = filterable
    return set(row["facts"]) == set(facts) and row["bounds"] == bounds
