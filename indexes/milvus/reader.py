"""Reads the documents of a collection in Milvus, their passages, and the raw vector of every distinct text."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import is_unicode
from indexes.errors import Damaged, Locked
from indexes.milvus import facts
from indexes.milvus.client import Client, Row
from indexes.milvus.connection import Changed
from indexes.milvus.rows import (
    DOCUMENT_FIELDS,
    PASSAGE_FIELDS,
    hit_fields,
    id_hash,
    indexed_passage,
    intact_vector,
    stored_document,
    stored_metadata,
    stored_passages,
)
from indexes.milvus.state import State
from indexes.rows import DocumentRow, PassageRow
from indexes.sqlite.conditions import Condition, names_in, no_such_field

# A document has up to 256 kB, and a server returns at most 100 MB from one call.
READ_DOCUMENTS = 200
MAX_RETRIES = 20

Result = TypeVar("Result")
StoredDocument = tuple[int, DocumentRow, list[PassageRow]]


class Reader:
    """Reads the tables of documents and vectors."""

    def __init__(self, client: Client, state: State) -> None:
        self.client = client
        self.state = state
        self.records = state.records
        self.documents_table = f"{client.address.name}_documents"
        self.vectors_table = f"{client.address.name}_vectors"

    @property
    def index_table(self) -> str | None:
        """The name of the table of the published index, or None if no index is published."""
        published = self.state.read().published
        return None if published is None else self.table_of(published[1])

    def table_of(self, generation: str) -> str:
        """Return the name of the table that holds the index of a generation."""
        return f"{self.client.address.name}_{generation}"

    def damaged(self, what: str) -> Damaged:
        address = self.client.address
        return Damaged(f"{address}: {what} is damaged; run: retriever verify --repair --index {address}")

    def changed(self) -> Changed:
        return Changed(f"{self.client.address}: a document was changed during this search.")

    def retry_if_changed(self, work: Callable[[], Result]) -> Result:
        """Call `work`. Call it again if a document that it read was changed meanwhile."""
        for _ in range(MAX_RETRIES):
            try:
                return work()
            except Changed:
                continue
        raise Locked(f"{self.client.address} is being changed continuously; try again when the writer is done.")

    # ---- documents -----------------------------------------------------------------------------------------

    def count(self, table: str) -> int:
        if table in ("unused", "quarantine"):  # Milvus has neither of these tables
            return 0
        if table == "passages":
            index = self.index_table
            return self.client.count(index) if index else sum(1 for _ in self._each_passage())
        return self.client.count({"documents": self.documents_table, "vectors": self.vectors_table}[table])

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the stored content hash of each document by id. Unknown ids are left out."""
        return {id_: bytes.fromhex(row["content_hash"]) for id_, row in self.heads(ids).items()}

    def heads(self, ids: Sequence[str]) -> dict[str, Row]:
        """Return the number, content hash and seal of each document by id. Unknown ids are left out."""
        hashes = {id_hash(id_): id_ for id_ in ids}
        fields = ("number", "id_hash", "content_hash", "seal")
        rows = self.client.select_in(self.documents_table, "id_hash", list(hashes), fields)
        return {hashes[row["id_hash"]]: row for row in rows}

    def document_number(self, id_: str) -> int | None:
        found = self.heads([id_]) if is_unicode(id_) else {}
        return int(found[id_]["number"]) if found else None

    def ids_of(self, numbers: Sequence[int], documents: str | None = None) -> dict[int, str]:
        """Return the ids of the given documents, those that meet the expression `documents` if it is given."""
        rows = self.client.select_in(self.documents_table, "number", numbers, DOCUMENT_FIELDS, documents or "")
        return dict(sorted((number, row.id) for number, row, _ in map(self._document, rows)))

    def ids(self, after: int) -> list[tuple[int, str]]:
        """Return number and id of the first documents numbered above `after`. The list is empty at the end."""
        return [(number, row.id) for number, row, _ in next(self.each_row(after), [])]

    def seals(self, numbers: Sequence[int]) -> dict[int, str]:
        """Return the seal of each document by number. Unknown numbers are left out."""
        rows = self.client.select_in(self.documents_table, "number", numbers, ["number", "seal"])
        return {int(row["number"]): str(row["seal"]) for row in rows}

    def documents(self, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return the fields of the given documents. Raise `Damaged` if a document differs from what was stored."""
        return {number: hit_fields(row) for number, row, _ in self.rows(numbers)}

    def documents_in_turn(self, numbers: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and the fields of the given documents in ascending order, a few at a time."""
        for number, row, _ in self.rows(sorted(numbers)):
            yield number, hit_fields(row)

    def rows(self, numbers: Sequence[int]) -> Iterator[StoredDocument]:
        """Yield the given documents with their passages. Raise `Damaged` if a document is not intact."""
        for start in range(0, len(numbers), READ_DOCUMENTS):
            batch = numbers[start : start + READ_DOCUMENTS]
            for row in self.client.select_in(self.documents_table, "number", batch, DOCUMENT_FIELDS):
                yield self._document(row)

    def each_row(self, after: int = 0) -> Iterator[list[StoredDocument]]:
        """Yield all documents numbered above `after` in blocks, in ascending order."""
        after_number = f"number > {after}"
        blocks = self.client.numbered_blocks(self.documents_table, DOCUMENT_FIELDS, after_number, READ_DOCUMENTS)
        for block in blocks:
            yield [self._document(row) for row in block]

    def _document(self, row: Row) -> StoredDocument:
        number = int(row["number"])
        try:
            return number, *stored_document(row, self.records)
        except (ValueError, KeyError, TypeError, Damaged) as error:
            if self.seals([number]).get(number) != row["seal"]:  # the document was replaced, which deleted its record
                raise self.changed() from error
            raise self.damaged(f"document number {number}") from error

    # ---- passages ------------------------------------------------------------------------------------------

    def passages_of_documents(self, numbers: Sequence[int]) -> dict[int, list[PassageRow]]:
        """Return the passages of the given documents, in order. A document that does not exist has an empty list."""
        found = {number: passages for number, _, passages in self.rows(numbers)}
        return {number: found.get(number, []) for number in numbers}

    def passages_of_vectors(self, vectors: Sequence[int]) -> dict[int, list[PassageRow]]:
        """Return the current passages of each vector, ordered by document number."""
        wanted = set(vectors)
        index = self.index_table
        if index is None:
            passages = [passage for passage in self._each_passage() if passage.vector in wanted]
        else:
            rows = self.client.select_in(index, "vector", list(wanted), (*PASSAGE_FIELDS, "seal"))
            seals = self.seals([row["document"] for row in rows])
            passages = [indexed_passage(row) for row in rows if seals.get(row["document"]) == row["seal"]]
        found: dict[int, list[PassageRow]] = {}
        for passage in sorted(passages, key=lambda passage: (passage.document, passage.position)):
            found.setdefault(passage.vector, []).append(passage)
        return found

    def _each_passage(self, after: int = 0) -> Iterator[PassageRow]:
        """Yield the passages of all documents that have a vector newer than `after`, ordered by document number."""
        fields = ("number", "seal", "passages", "whole")
        for block in self.client.numbered_blocks(self.documents_table, fields, f"last_vector > {after}"):
            for row in block:
                try:
                    yield from stored_passages(row, self.records)
                except (ValueError, KeyError, TypeError) as error:
                    raise self.damaged(f"document number {row['number']}") from error

    def passage_sample(self, most: int, seed: int) -> list[PassageRow]:
        """Return at most `most` passages, ordered by document number.

        If there are more, return a random sample that depends only on the seed.
        """
        count = sum(1 for _ in self._each_passage())  # two passes over the passages keep only the sample in memory
        wanted = set(np.random.default_rng(seed).permutation(count)[:most].tolist())
        return [passage for place, passage in enumerate(self._each_passage()) if place in wanted]

    # ---- vectors -------------------------------------------------------------------------------------------

    def vectors_of_texts(self, hashes: Sequence[bytes]) -> dict[bytes, int]:
        """Return the vector number of each text by its hash. Texts without a vector are left out."""
        texts = [text_hash.hex() for text_hash in hashes]
        rows = self.client.select_in(self.vectors_table, "text_hash", texts, ["number", "text_hash"])
        return {bytes.fromhex(row["text_hash"]): int(row["number"]) for row in rows}

    def vectors(self, numbers: Sequence[int], dimension: int, *, checked: bool = False) -> NDArray[np.float32]:
        """Return the raw vectors with the given numbers, in that order. If `checked`, verify their checksums."""
        fields = ["number", "raw", *(["text_hash", "checksum"] if checked else [])]
        found = {}
        for row in self.client.select_in(self.vectors_table, "number", numbers, fields):
            if checked and intact_vector(row) is None:
                raise self.damaged(f"vector {row['number']}")
            found[int(row["number"])] = row["raw"]
        if missing := [number for number in numbers if number not in found]:
            raise self.damaged(f"vector {missing[0]} is missing: the collection")
        return np.array([found[number] for number in numbers], np.float32).reshape(len(numbers), dimension)

    def last_vector(self) -> int:
        return int(self.state.counters()["vector"])

    def used_vectors(self, after: int = 0) -> NDArray[np.int64]:
        """Return the numbers of the vectors above `after` that a passage refers to, in ascending order."""
        numbers = (passage.vector for passage in self._each_passage(after) if passage.vector > after)
        return np.unique(np.fromiter(numbers, np.int64))

    def count_used_after(self, last: int) -> int:
        return len(self.used_vectors(last))

    # ---- filters -------------------------------------------------------------------------------------------

    matching = staticmethod(facts.expression)
    metadata_problem = staticmethod(facts.metadata_problem)

    def check_fields(self, conditions: Sequence[Condition]) -> None:
        """Refuse a condition on a field that no document has. The error names the existing fields."""
        for field in dict.fromkeys(condition.field for condition in conditions):
            if not self.client.count(self.documents_table, facts.has_key(field)):
                blocks = self.client.numbered_blocks(self.documents_table, ["metadata", "whole", "seal"])
                known = names_in(stored_metadata(row, self.records) for block in blocks for row in block)
                raise no_such_field(field, known)
