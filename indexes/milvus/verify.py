"""Look at every row of a collection in Milvus, and say what is not as it was stored."""

from collections.abc import Callable

import numpy as np

from indexes.documents import PassageRow
from indexes.errors import Damaged
from indexes.generation import Generation
from indexes.milvus.client import Row
from indexes.milvus.collection import MilvusCollection
from indexes.milvus.facts import facts_and_bounds
from indexes.milvus.rows import DOCUMENT_FIELDS, id_hash, passage_of, sound_half, stored_document
from indexes.space import Apply
from indexes.vectors import unit_rows
from indexes.verify import Report

Progress = Callable[[int, int], None]

# A mapped vector may differ in its last bits where another machine has mapped it.
SAME = 1e-4


def check(collection: MilvusCollection, apply_of: Callable[[Generation], Apply], progress: Progress) -> Report:
    """Check every document, every raw vector, and every passage of the published index against both."""
    return _Check(collection, apply_of, progress).run()


class _Check:
    def __init__(
        self, collection: MilvusCollection, apply_of: Callable[[Generation], Apply], progress: Progress
    ) -> None:
        self.collection = collection
        self.store = collection.store
        self.report = Report()
        self._apply_of = apply_of
        self._progress = progress
        self._hashes: dict[int, str] = {}
        self._expected: dict[tuple[PassageRow, str], tuple[list[str], dict[str, str]]] = {}
        """Every passage that the index must have, with the seal of its document, and what filters ask of it."""

    def run(self) -> Report:
        total = self.store.count("vectors") + self.store.count("documents") + self.store.count("passages")
        done = 0
        for look in (self._vectors, self._documents, self._index):
            done = look(done, total)
        return self.report

    def _vectors(self, done: int, total: int) -> int:
        client, report = self.store.client, self.report
        for block in client.each(self.store.vectors_table, "number", ["text_hash", "raw", "checksum"]):
            for row in block:
                number = int(row["number"])
                if sound_half(row) is None:
                    report.bad_vectors[number] = "does not match its checksum"
                    report.problems.append(f"vector {number} does not match its checksum")
                self._hashes[number] = row["text_hash"]
            report.vectors += len(block)
            done += len(block)
            self._progress(done, total)
        return done

    def _documents(self, done: int, total: int) -> int:
        fields = (*DOCUMENT_FIELDS, "id_hash", "facts", "bounds")
        for block in self.store.client.each(self.store.documents_table, "number", fields):
            for row in block:
                if reason := self._flaw(row):
                    self.report.bad_documents[int(row["number"])] = reason
                    self.report.problems.append(f"document {row['id'][:60]!r} {reason}")
            self.report.documents += len(block)
            done += len(block)
            self._progress(done, total)
        return done

    def _flaw(self, row: Row) -> str:
        try:
            document, passages = stored_document(row, self.store.records)
        except (ValueError, KeyError, TypeError, Damaged) as error:
            return f"is not what was stored: {error}"
        for (_, _, text_hash), passage in zip(document.passages, passages, strict=True):
            if passage.vector in self.report.bad_vectors:
                return f"stands on the damaged vector {passage.vector}"
            if self._hashes.get(passage.vector) != text_hash.hex():
                return f"has lost the vector {passage.vector}"
        told = facts_and_bounds(document.metadata)
        if row["id_hash"] != id_hash(document.id) or not _same_facts(row, told):
            return "cannot be found as it was stored: what it is looked up by has changed"
        self._expected |= dict.fromkeys(((passage, row["seal"]) for passage in passages), told)
        return ""

    def _index(self, done: int, total: int) -> int:
        report = self.report
        try:
            generation = self.collection.with_generation(lambda found: found, fresh=True)
            if generation is None:
                return done
            report.files = len(generation.manifest["files"])
            done = self._passages(generation, done, total)
            missing = len(self._expected)
            if missing:
                raise Damaged(f"the index lacks {missing:,} passages of documents that are there")
        except Damaged as error:
            report.generation_broken = True
            report.problems.append(str(error))
        return done

    def _passages(self, generation: Generation, done: int, total: int) -> int:
        """Take what the index has from what it must have; what belongs to no document any more is never found."""
        apply, store = self._apply_of(generation), self.store
        table = store.index_table
        assert table is not None
        documents = sorted({passage.document for passage, _ in self._expected})
        fields = ("document", "position", "start", "end", "vector", "seal", "mapped", "facts", "bounds")
        for start in range(0, len(documents), 200):
            rows = store.client.select_among(table, "document", documents[start : start + 200], fields)
            expected = [(row, self._expected.pop((passage_of(row), row["seal"]), None)) for row in rows]
            alive = [row for row, told in expected if told is not None]
            if not all(_same_facts(row, told) for row, told in expected if told is not None):
                raise Damaged("the index holds other metadata than the documents")
            if alive:
                raw = store.vectors([row["vector"] for row in alive], store.state.dimension)
                stored = np.array([row["mapped"] for row in alive], np.float32)
                if not np.allclose(unit_rows(apply(raw)), stored, atol=SAME):
                    raise Damaged("the index holds other vectors than the transform makes of the stored ones")
            done += len(rows)
            self._progress(done, total)
        return done


def _same_facts(row: Row, told: tuple[list[str], dict[str, str]]) -> bool:
    return set(row["facts"]) == set(told[0]) and row["bounds"] == told[1]
