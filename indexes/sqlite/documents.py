"""The documents of a collection and their passages.

SQLite is the only truth; everything FAISS holds can be made again from here. Every method that writes is one
transaction, and with WAL and full sync what it wrote is on disk when it returns. A document is read only if it still
matches its hash and its seal.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import content_hash, document_seal, is_unicode, metadata_text
from indexes.errors import BadFilter, Damaged
from indexes.sqlite.conditions import Condition, check_fields
from indexes.sqlite.vectors import VectorTable

COLUMNS = ("number", "id", "title", "text", "metadata", "content_hash", "source", "seal")
PASSAGES = (
    'SELECT document, position, start, "end", vector FROM passages JOIN documents ON number = document'
    "{} ORDER BY document, position"
)


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document as it is stored, with the offsets of its passages and the hash of each passage's encoded text."""

    id: str
    title: str
    text: str
    metadata: dict[str, Any]
    content_hash: bytes
    source: str
    passages: Sequence[tuple[int, int, bytes]]


@dataclass(frozen=True, slots=True)
class PassageRow:
    """One passage of a stored document, with the number of its vector."""

    document: int
    position: int
    start: int
    end: int
    vector: int


class DocumentStore(VectorTable):
    """The tables of one collection. Writers hold the collection's lock; any number of readers may be open."""

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the stored content hash of each of these documents that exists."""
        return dict(self._select_in("SELECT id, content_hash FROM documents WHERE id IN ({})", ids))

    def document_number(self, id_: str) -> int | None:
        if not is_unicode(id_):  # no stored id is
            return None
        row = self.db.conn.execute("SELECT number FROM documents WHERE id = ?", [id_]).fetchone()
        return None if row is None else int(row[0])

    def documents(self, numbers: Sequence[int], found: Iterable[PassageRow] = ()) -> dict[int, dict[str, Any]]:
        """Return id, title, text and metadata of these documents.

        Each document must match its hash and, with its passages, its seal. `found` are passages of them that were read
        by another index; they must be the same.
        """
        query = f"SELECT {', '.join(COLUMNS)} FROM documents WHERE number IN ({{}})"  # noqa: S608 - constant text
        passages = self._sealed_passages(numbers)
        stored = {}
        for number, id_, title, text, metadata, expected, source, seal in self._select_in(query, numbers):
            typed = all(isinstance(part, str) for part in (id_, title, text, metadata, source))
            sound = typed and content_hash(title, text, metadata) == expected
            if not sound or document_seal(id_, expected, source, _places(passages[number])) != seal:
                raise self._not_as_stored(f"document {id_!r}")
            fields = {"id": id_, "title": title, "text": text}
            stored[number] = {**fields, "metadata": self._json(metadata, f"document {id_!r}")}
        for passage in found:
            own = passages[passage.document]
            same = 0 <= passage.position < len(own) and PassageRow(*own[passage.position][:5]) == passage
            if not same or passage.document not in stored:
                raise self._not_as_stored(f"a passage of document number {passage.document}")
        return stored

    def sealed_rows(self, numbers: Sequence[int]) -> Iterator[tuple[int, DocumentRow]]:
        """Yield these documents as they were stored, with their numbers."""
        stored, passages = self.documents(numbers), self._sealed_passages(numbers)
        rows = self._select_in("SELECT number, content_hash, source FROM documents WHERE number IN ({})", numbers)
        for number, content, source in sorted(rows):
            id_, title, text, metadata = (stored[number][name] for name in ("id", "title", "text", "metadata"))
            yield number, DocumentRow(id_, title, text, metadata, content, source, _places(passages[number]))

    def _sealed_passages(self, numbers: Sequence[int]) -> dict[int, list[tuple[Any, ...]]]:
        """Return the passages of each of these documents in order: the columns, and the hash of the passage's text."""
        found: dict[int, list[tuple[Any, ...]]] = {number: [] for number in numbers}
        for row in self._select_in(
            'SELECT document, position, start, "end", passages.vector, text_hash FROM passages'
            " JOIN vectors ON vectors.id = passages.vector WHERE document IN ({}) ORDER BY document, position",
            numbers,
        ):
            if not isinstance(row[5], bytes):
                raise self._not_as_stored(f"a passage of document number {row[0]}")
            found[self._passage(row[:5]).document].append(row)
        return found

    def each_document(self) -> Iterator[dict[str, Any]]:
        """Yield every document's row as it is, unchecked, in the order of arrival."""
        for row in self.db.conn.execute(f"SELECT {', '.join(COLUMNS)} FROM documents ORDER BY number"):  # noqa: S608 - constant text
            yield dict(zip(COLUMNS, row, strict=True))

    def each_metadata(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and the metadata of every document that has any."""
        for number, text in self.db.conn.execute("SELECT number, metadata FROM documents WHERE metadata <> '{}'"):
            yield number, self._json(text, f"the metadata of document number {number}")

    # ---- passages ------------------------------------------------------------------------------------------

    def _passage(self, row: Sequence[Any]) -> PassageRow:
        if not all(isinstance(value, int) for value in row):
            raise self._not_as_stored(f"a passage of document number {row[0]}")
        return PassageRow(*row)

    def passages_of_vectors(self, vectors: Sequence[int]) -> dict[int, list[PassageRow]]:
        """Return the passages that each vector stands for, in the order of the documents' arrival."""
        found: dict[int, list[PassageRow]] = {}
        for row in self._select_in(PASSAGES.format(" WHERE vector IN ({})"), vectors):
            found.setdefault(row[4], []).append(self._passage(row))
        return found

    def passages_of_documents(self, numbers: Sequence[int]) -> dict[int, list[PassageRow]]:
        """Return the passages of each of these documents, in order; none for one that does not exist."""
        found: dict[int, list[PassageRow]] = {number: [] for number in numbers}
        for row in self._select_in(PASSAGES.format(" WHERE document IN ({})"), numbers):
            found[row[0]].append(self._passage(row))
        return found

    def refuse_without_passages(self, passages: Mapping[int, Sequence[PassageRow]]) -> None:
        """Refuse documents that have lost all their passages."""
        if lost := [number for number, own in passages.items() if not own]:
            raise Damaged(
                f"{self.path}: document number {lost[0]} lacks passages; "
                f"run: retriever verify --repair --index {self.path.parent}"
            )

    def passage_sample(self, most: int, seed: int) -> list[PassageRow]:
        """Return all passages, or a seeded random sample, in the order of the documents' arrival."""
        wanted = set(np.random.default_rng(seed).permutation(self.count("passages"))[:most].tolist())
        rows = self.db.conn.execute(PASSAGES.format(""))
        return [self._passage(row) for place, row in enumerate(rows) if place in wanted]

    def passage_vectors(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the document and the vector of every passage, documents rising."""
        rows = self.db.conn.execute("SELECT document, vector FROM passages ORDER BY document, position")
        pairs = self._integers((number for row in rows for number in row), "the table of passages").reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def vectors_of_documents(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the vectors of these documents' passages, rising; refuse a document without its first passage."""
        # One number per passage, as there may be millions: the first passage of each document is above zero.
        query = "SELECT iif(position, -vector, vector) FROM passages WHERE document IN (SELECT value FROM json_each(?))"
        rows = self.db.conn.execute(query, [json.dumps(numbers.tolist())])
        found = self._integers((number for (number,) in rows), "the table of passages")
        if (first := int((found > 0).sum())) != len(numbers):
            raise Damaged(
                f"{self.path}: of {len(numbers):,} documents {first:,} have their first passage; "
                f"run: retriever verify --repair --index {self.path.parent}"
            )
        return np.unique(np.abs(found))

    # ---- filters -------------------------------------------------------------------------------------------

    def check_fields(self, conditions: Sequence[Condition]) -> None:
        """Refuse a condition on a field that no document has, with the names of the existing ones."""
        with self._metadata_errors():
            check_fields(self.db.conn, conditions)

    def matching(self, conditions: Sequence[Condition]) -> NDArray[np.int64]:
        """Return the numbers of the documents that meet all conditions, rising."""
        tests = [condition.sql() for condition in conditions]
        met = " AND ".join(test for test, _ in tests) or "1"
        query = f"SELECT number FROM documents WHERE {met} ORDER BY number"  # noqa: S608 - names and values are bound
        with self._metadata_errors():
            rows = self.db.conn.execute(query, [value for _, bound in tests for value in bound])
            return np.fromiter((row[0] for row in rows), np.int64)

    @contextlib.contextmanager
    def _metadata_errors(self) -> Iterator[None]:
        try:
            yield
        except json.JSONDecodeError as error:
            raise self._not_as_stored("the metadata of a document") from error
        except sqlite3.OperationalError as error:
            if "too large" in str(error):
                raise BadFilter("there are too many filters, or values in them, for one search.") from error
            if "JSON" not in str(error):
                raise
            raise self._not_as_stored("the metadata of a document") from error

    # ---- writing -------------------------------------------------------------------------------------------

    def put_documents(self, documents: Iterable[DocumentRow]) -> None:
        """Add or replace documents whose texts all have vectors: all of them or, on any error, none."""
        with self.changing():
            for document in documents:
                self.put_document(document)

    def put_document(self, document: DocumentRow, number: int | None = None) -> None:
        """Add or replace one document, under a number of the caller's if it is given, within a transaction."""
        vectors = self.vectors_of_texts([text_hash for _, _, text_hash in document.passages])
        if lost := [text_hash for _, _, text_hash in document.passages if text_hash not in vectors]:
            raise Damaged(f"document {document.id!r} has a passage without a vector ({lost[0].hex()[:12]}).")
        values = [document.id, document.title, document.text, metadata_text(document.metadata), document.content_hash]
        seal = document_seal(document.id, document.content_hash, document.source, document.passages)
        (number,) = self.db.conn.execute(
            f"INSERT INTO documents ({', '.join(COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constant text
            " ON CONFLICT (id) DO UPDATE SET title = excluded.title, text = excluded.text,"
            " metadata = excluded.metadata, content_hash = excluded.content_hash, source = excluded.source,"
            " seal = excluded.seal RETURNING number",
            [number, *values, document.source, seal],
        ).fetchone()
        self.db.conn.execute("DELETE FROM passages WHERE document = ?", [number])
        self.db.conn.executemany(
            "INSERT INTO passages VALUES (?, ?, ?, ?, ?)",
            [
                (number, position, start, end, vectors[text_hash])
                for position, (start, end, text_hash) in enumerate(document.passages)
            ],
        )

    def delete_documents(self, ids: Sequence[str]) -> list[str]:
        """Delete these documents; returns the ids that existed."""
        with self.changing() as db:
            known = self.content_hashes(ids)
            existing = [id_ for id_ in dict.fromkeys(ids) if id_ in known]
            db.conn.executemany("DELETE FROM documents WHERE id = ?", [[id_] for id_ in existing])
        return existing

    def metadata_problem(self, metadata: Mapping[str, Any]) -> str | None:
        """Say why a document with this metadata cannot be stored; SQLite can store any."""
        return None

    # ---- ids of one run ------------------------------------------------------------------------------------

    def start_run(self) -> None:
        """Begin to note the ids met while a source is read, in a temporary table, so that memory stays flat."""
        with self.db.atomic() as db:
            db.conn.execute("CREATE TEMP TABLE IF NOT EXISTS met (id TEXT PRIMARY KEY) WITHOUT ROWID")
            db.conn.execute("DELETE FROM met")

    def met_before(self, ids: Sequence[str]) -> set[str]:
        """Return those of these ids that this run has met already, and note them all."""
        with self.db.atomic() as db:
            before = {row[0] for row in self._select_in("SELECT id FROM met WHERE id IN ({})", ids)}
            db.conn.executemany("INSERT OR IGNORE INTO met VALUES (?)", [[id_] for id_ in ids])
        return before

    def delete_not_met(self) -> int:
        """Delete every document that this run has not met."""
        with self.changing() as db:
            return int(db.conn.execute("DELETE FROM documents WHERE id NOT IN (SELECT id FROM met)").rowcount)


def _places(passages: Iterable[tuple[Any, ...]]) -> list[tuple[int, int, bytes]]:
    return [(start, end, text_hash) for _, _, start, end, _, text_hash in passages]
