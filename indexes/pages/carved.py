"""Stores the rows that were read from a damaged database in a scratch database, and checks their checksums.

A vector is confirmed by its CRC. A document is confirmed by its seal, which is a hash over its id, content, source and
passages, including the texts of the passages. If the passages are lost, the content is confirmed by its own hash, and
the id by a second copy in the index of ids.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from indexes.checksums import content_hash, document_seal, metadata_text, setting_checksum, vector_checksum
from indexes.pages.carving import Carver, Row
from indexes.rows import VECTOR_TYPE, DocumentRow
from indexes.sqlite.database import CHECKSUMS

Place = tuple[int, int, bytes]

TABLES = """
CREATE TABLE settings (key, value, doubtful);
CREATE TABLE ids (id, number);
CREATE TABLE documents (number, id, title, text, metadata, content_hash, source, seal, whole, doubtful);
CREATE TABLE passages (document, position, start, "end", vector);
CREATE TABLE vectors (number INTEGER PRIMARY KEY, text_hash, vector);
CREATE TABLE generations (number, manifest_sha256);
CREATE TABLE generation_files (generation, name, bytes);
CREATE TABLE unsound (table_name, number, reason, row);
"""
INDEXES = """
CREATE INDEX ids_by_number ON ids (number, id);
CREATE INDEX documents_by_number ON documents (number);
CREATE INDEX passages_by_document ON passages (document, position);
"""
BATCH_VECTORS = 4096
MOST_IDS = 100
"""Maximum number of ids to try for one document. In a damaged index, many ids may have the same number."""
FTS5_VERSION = ("version", 4)
"""A row of FTS5 that looks like an id with its number."""


@dataclass(frozen=True, slots=True)
class CarvedDocument:
    """A document that was read from its row, and which of its parts are confirmed."""

    number: int
    row: DocumentRow
    """The document. Its content hash is that of the content that was read, which may differ from the stored hash.

    It has passages only if the seal confirms them together with the rest of the document.
    """
    seal: bytes
    content_proven: bool
    known_ids: Sequence[str]
    """The ids that the index of ids has for this document. If the id of the row differs, one of the two is damaged."""

    @property
    def id_proven(self) -> bool:
        return self.row.id in self.known_ids

    def sealed_with(self, places: Sequence[Place]) -> "CarvedDocument | None":
        """Return the document with the id that its seal confirms, or None if the seal confirms no id."""
        for id_ in dict.fromkeys((self.row.id, *self.known_ids)):
            if document_seal(id_, self.row.content_hash, self.row.source, places) == self.seal:
                return replace(self, row=replace(self.row, id=id_, passages=places))
        return None


class Carved:
    """The scratch database with the rows that were read."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=OFF")
        self.connection.execute("PRAGMA synchronous=OFF")
        self.connection.executescript(TABLES)

    def take(self, carver: Carver) -> None:
        """Read all rows of the damaged database and store them."""
        self.connection.execute("BEGIN")
        for row in carver.rows():
            if row.table == "documents":
                self._insert("documents", row.number, *row.values[1:], row.whole, row.doubtful)
            elif row.table == "vectors":
                self._take_vector(row)
            elif row.table == "quarantine" and not row.doubtful:
                self.keep_unsound("quarantine", row.number, "was in the quarantine already", row.values[1:])
            elif row.table == "settings" and row.whole:
                self._insert("settings", *row.values, row.doubtful)
            elif row.table == "ids" and row.whole and not row.doubtful and row.values != FTS5_VERSION:
                self._insert("ids", *row.values)
            elif row.table == "generations" and row.whole:
                self._insert("generations", row.number, row.values[2])
            elif row.table in ("passages", "generation_files") and row.whole:
                self._insert(row.table, *row.values)
        self.connection.execute("COMMIT")
        self.connection.executescript(INDEXES)

    def _insert(self, table: str, *values: Any) -> None:
        self.connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608 - constant text

    def _take_vector(self, row: Row) -> None:
        _, text_hash, vector, checksum = row.values
        if _is_vector(text_hash, vector, checksum):
            better = "IGNORE" if row.doubtful else "REPLACE"
            values = [row.number, text_hash, vector]
            self.connection.execute(f"INSERT OR {better} INTO vectors VALUES (?, ?, ?)", values)  # noqa: S608 - constant text
        elif not row.doubtful:
            self.keep_unsound("vectors", row.number, "does not match its checksum", row.values[1:])

    # ---- intact rows --------------------------------------------------------------------------------------

    def setting(self, key: str) -> Any:
        """Return a setting, or None if there is none. If the setting has a checksum, it must match."""
        sums = next((value for _, value in self._values(CHECKSUMS) if isinstance(value, dict)), {})
        for text, value in self._values(key):
            if key not in sums or sums[key] == setting_checksum(key, text):
                return value
        return None

    def _values(self, key: str) -> Iterator[tuple[str, Any]]:
        for (text,) in self.connection.execute("SELECT value FROM settings WHERE key = ? ORDER BY doubtful", [key]):
            with contextlib.suppress(ValueError, RecursionError):
                yield text, json.loads(text)

    def manifest_hashes(self) -> set[str]:
        return {row[0] for row in self.connection.execute("SELECT manifest_sha256 FROM generations")}

    def transform_files(self) -> list[tuple[str, bytes]]:
        """Return every copy of a transform's files, starting with the newest generation."""
        return self.connection.execute("SELECT name, bytes FROM generation_files ORDER BY generation DESC").fetchall()

    def vectors(self, width: int) -> Iterator[tuple[list[bytes], np.ndarray[Any, np.dtype[np.float16]]]]:
        """Yield the intact vectors of `width` bytes in blocks, in ascending order of their numbers.

        Each block is a pair (text hashes, rows).
        """
        rows = self.connection.execute(
            "SELECT text_hash, vector FROM vectors WHERE length(vector) = ? ORDER BY number", [width]
        )
        while block := rows.fetchmany(BATCH_VECTORS):
            data = b"".join(vector for _, vector in block)
            yield [text_hash for text_hash, _ in block], np.frombuffer(data, VECTOR_TYPE).reshape(len(block), -1)

    def documents(self, width: int) -> Iterator[CarvedDocument]:
        """Yield the readable documents in ascending order of their numbers. Store the others as damaged rows.

        The passages of a document are used only if their vectors have `width` bytes.
        """
        cursor = self.connection.execute("SELECT * FROM documents ORDER BY number, doubtful DESC, rowid")
        for number, *row, whole, doubtful in cursor:
            found = self._document(number, row, width) if whole else None
            if found is not None:
                yield found
            elif not doubtful:
                self.keep_unsound("documents", number, "is incomplete, or holds a value that is not a text", row)

    def documents_numbered(self, numbers: Sequence[int]) -> Iterator[CarvedDocument]:
        """Yield the documents with the given numbers, without their passages."""
        query = "SELECT * FROM documents WHERE number = ? AND whole ORDER BY doubtful, rowid"
        for number in dict.fromkeys(numbers):
            for _, *row, _, _ in self.connection.execute(query, [number]).fetchall():
                if (found := self._document(number, row, 0)) is not None:
                    yield found

    def _document(self, number: int, row: Sequence[Any], width: int) -> CarvedDocument | None:
        id_, title, text, metadata, stored_hash, source, seal = row
        if not all(isinstance(value, str) for value in (id_, title, text, metadata, source)):
            return None
        try:
            parsed = json.loads(metadata)
            if not isinstance(parsed, dict) or metadata_text(parsed) != metadata:
                return None
        except (ValueError, RecursionError):
            return None
        content = content_hash(title, text, metadata)
        found = CarvedDocument(
            number,
            DocumentRow(id_, title, text, parsed, content, source, passages=()),
            seal if isinstance(seal, bytes) else b"",
            content_proven=content == stored_hash,
            known_ids=self._ids_of(number),
        )
        places = self._places(number, width)
        return (found.sealed_with(places) if places else None) or found

    def _ids_of(self, number: int) -> list[str]:
        query = "SELECT DISTINCT id FROM ids WHERE number = ? AND typeof(id) = 'text' ORDER BY id LIMIT ?"
        return [id_ for (id_,) in self.connection.execute(query, [number, MOST_IDS])]

    def _places(self, number: int, width: int) -> list[Place] | None:
        rows = self.connection.execute(
            'SELECT DISTINCT position, start, "end", text_hash FROM passages LEFT JOIN vectors'
            " ON vectors.number = passages.vector AND length(vectors.vector) = ?"
            " WHERE document = ? ORDER BY position",
            [width, number],
        ).fetchall()
        if [row[0] for row in rows] != list(range(len(rows))) or any(row[3] is None for row in rows):
            return None
        return [(start, end, text_hash) for _, start, end, text_hash in rows]

    # ---- damaged rows -------------------------------------------------------------------------------------

    def keep_unsound(self, table: str, number: int, reason: str, values: Sequence[Any]) -> None:
        """Store a row that is damaged but readable."""
        row = [value.hex() if isinstance(value, bytes) else value for value in values]
        self.connection.execute("INSERT INTO unsound VALUES (?, ?, ?, ?)", [table, number, reason, json.dumps(row)])

    def unsound(self) -> Iterator[dict[str, Any]]:
        for table, number, reason, row in self.connection.execute("SELECT * FROM unsound ORDER BY table_name, number"):
            yield {"table": table, "number": number, "reason": reason, "row": json.loads(row)}

    def known(self) -> Iterator[tuple[int, str | None]]:
        """Yield the number of every document that must have existed, with its id if the index of ids contains it."""
        yield from self.connection.execute(
            "SELECT number, min(id) FROM (SELECT number, id FROM ids UNION ALL SELECT number, NULL FROM documents"
            " WHERE NOT doubtful UNION ALL SELECT document, NULL FROM passages) GROUP BY number"
        )


def _is_vector(text_hash: Any, vector: Any, checksum: Any) -> bool:
    if not isinstance(text_hash, bytes) or not isinstance(vector, bytes) or not vector or len(vector) % 2:
        return False
    if vector_checksum(text_hash, vector) != checksum:
        return False
    return bool(np.isfinite(np.frombuffer(vector, VECTOR_TYPE)).all())
