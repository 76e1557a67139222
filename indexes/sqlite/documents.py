"""The documents of a collection, their passages, and the raw vector of every distinct text.

Only the database is authoritative: everything that FAISS holds can be rebuilt from it. Every method that writes runs in
one transaction. When the method returns, the data is on disk (WAL with full sync). A document is returned only if it
matches its hash and its seal. A vector is stored in float16 with a checksum. It counts as used if a passage refers to
it.
"""

import contextlib
import json
import sqlite3
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import content_hash, document_seal, is_unicode, metadata_text, vector_checksum
from indexes.errors import BadFilter, Damaged, salvage_advice
from indexes.rows import VECTOR_TYPE, Blocks, DocumentRow, Matrix, Numbers, PassageRow
from indexes.sqlite.conditions import Condition, check_fields
from indexes.sqlite.database import DatabaseFile
from indexes.terms import compounds, field_terms, id_terms, joined, text_terms

COLUMNS = "number, id, title, text, metadata, content_hash, source, seal"
PASSAGES = (
    'SELECT document, position, start, "end", vector FROM passages JOIN documents ON number = document'
    "{} ORDER BY document, position"
)
IDS_AT_ONCE = 10_000
READ_TOGETHER = 100_000
USED = " AND id NOT IN (SELECT vector FROM unused)"


class DocumentStore(DatabaseFile):
    """The tables of one collection. A writer must hold the write lock. Any number of readers may be open."""

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the stored content hash of each document by id. Unknown ids are left out."""
        return dict(self._select_in("SELECT id, content_hash FROM documents WHERE id IN ({})", ids))

    def document_number(self, id_: str) -> int | None:
        if not is_unicode(id_):  # every stored id is valid Unicode
            return None
        row = self.db.conn.execute("SELECT number FROM documents WHERE id = ?", [id_]).fetchone()
        return None if row is None else int(row[0])

    def ids_of(self, numbers: Sequence[int], documents: Numbers | None = None) -> dict[int, str]:
        """Return the ids of the given documents, those that are also in `documents` if it is given."""
        found = dict(self._select_in("SELECT number, id FROM documents WHERE number IN ({}) ORDER BY number", numbers))
        if documents is None:
            return found
        return {number: id_ for number, id_ in found.items() if np.isin(number, documents)}

    def ids(self, after: int) -> list[tuple[int, str]]:
        """Return number and id of the first documents numbered above `after`. The list is empty at the end."""
        query = "SELECT number, id FROM documents WHERE number > ? ORDER BY number LIMIT ?"
        return self.db.conn.execute(query, (after, IDS_AT_ONCE)).fetchall()

    def documents(self, numbers: Sequence[int], found: Iterable[PassageRow] = ()) -> dict[int, dict[str, Any]]:
        """Return the id, title, text, metadata and source of the given documents.

        `found` are passages of these documents that a search has read. Raise `Damaged` if they differ from the stored
        ones.
        """
        passages = self._sealed_passages(numbers)
        stored = {
            number: {
                "id": row.id,
                "title": row.title,
                "text": row.text,
                "metadata": row.metadata,
                "source": row.source,
            }
            for number, row in self._sealed_rows(numbers, passages)
        }
        for passage in found:
            own = passages[passage.document]
            same = 0 <= passage.position < len(own) and PassageRow(*own[passage.position][:5]) == passage
            if not same or passage.document not in stored:
                raise self.not_as_stored(f"a passage of document number {passage.document}")
        return stored

    def documents_in_turn(self, numbers: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and the fields of the given documents in ascending order.

        Documents are in memory together until they have READ_TOGETHER characters.
        """
        query = (
            "SELECT number, length(title) + length(text) + length(metadata) FROM documents WHERE number IN ({})"
            " ORDER BY number"
        )
        together: list[int] = []
        characters = 0
        for number, length in self._select_in(query, sorted(numbers)):
            if together and characters + (length or 0) > READ_TOGETHER:
                yield from self.documents(together).items()
                together, characters = [], 0
            together.append(number)
            characters += length or 0
        yield from self.documents(together).items()

    def document_rows(self, numbers: Sequence[int]) -> Iterator[tuple[int, DocumentRow]]:
        """Yield the given documents as they were stored, with their numbers."""
        return self._sealed_rows(numbers, self._sealed_passages(numbers))

    def _sealed_rows(
        self, numbers: Sequence[int], passages: Mapping[int, list[tuple[Any, ...]]]
    ) -> Iterator[tuple[int, DocumentRow]]:
        """Yield the given documents. Raise `Damaged` if one does not match its hash or, with its passages, its seal."""
        query = f"SELECT {COLUMNS} FROM documents WHERE number IN ({{}}) ORDER BY number"  # noqa: S608 - constant text
        for number, id_, title, text, metadata, expected, source, seal in self._select_in(query, numbers):
            places = [(start, end, text_hash) for _, _, start, end, _, text_hash in passages[number]]
            typed = all(isinstance(part, str) for part in (id_, title, text, metadata, source))
            sound = typed and content_hash(title, text, metadata) == expected
            if not sound or document_seal(id_, expected, source, places) != seal:
                raise self.not_as_stored(f"document {id_!r}")
            parsed = self.parsed(metadata, f"document {id_!r}")
            yield number, DocumentRow(id_, title, text, parsed, expected, source, places)

    def _sealed_passages(self, numbers: Sequence[int]) -> dict[int, list[tuple[Any, ...]]]:
        """Return the passages of the given documents in order: their columns, and the hash of each passage's text."""
        found: dict[int, list[tuple[Any, ...]]] = {number: [] for number in numbers}
        for row in self._select_in(
            'SELECT document, position, start, "end", passages.vector, text_hash FROM passages'
            " JOIN vectors ON vectors.id = passages.vector WHERE document IN ({}) ORDER BY document, position",
            numbers,
        ):
            if not isinstance(row[5], bytes):
                raise self.not_as_stored(f"a passage of document number {row[0]}")
            found[self._passage(row[:5]).document].append(row)
        return found

    def each_document(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of all documents in ascending order of their numbers, without checking them."""
        for row in self.db.conn.execute(f"SELECT {COLUMNS} FROM documents ORDER BY number"):  # noqa: S608 - constant text
            yield dict(zip(COLUMNS.split(", "), row, strict=True))

    def ids_of_file(self, file: str) -> set[str]:
        """Return the ids of the documents that were read from a file: all of it, or lines and records of it."""
        if not is_unicode(file):
            return set()
        query = (
            "SELECT id FROM documents WHERE source = ?1 OR substr(source, 1, length(?1) + 1) IN (?1 || ':', ?1 || '[')"
        )
        return {row[0] for row in self.db.conn.execute(query, [file])}

    def each_metadata(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and the metadata of every document that has any."""
        for number, text in self.db.conn.execute("SELECT number, metadata FROM documents WHERE metadata <> '{}'"):
            yield number, self.parsed(text, f"the metadata of document number {number}")

    # ---- passages ------------------------------------------------------------------------------------------

    def _passage(self, row: Sequence[Any]) -> PassageRow:
        if set(map(type, row)) != {int}:
            raise self.not_as_stored(f"a passage of document number {row[0]}")
        return PassageRow(*row)

    def passages_of_vectors(self, vectors: Sequence[int]) -> dict[int, list[PassageRow]]:
        """Return the passages of each vector, in ascending order of the document number."""
        found: dict[int, list[PassageRow]] = {}
        for row in self._select_in(PASSAGES.format(" WHERE vector IN ({})"), vectors):
            found.setdefault(row[4], []).append(self._passage(row))
        return found

    def passages_of_documents(self, numbers: Sequence[int]) -> dict[int, list[PassageRow]]:
        """Return the passages of the given documents, in order. A document that does not exist has an empty list."""
        found: dict[int, list[PassageRow]] = {number: [] for number in numbers}
        for row in self._select_in(PASSAGES.format(" WHERE document IN ({})"), numbers):
            found[row[0]].append(self._passage(row))
        return found

    def refuse_without_passages(self, passages: Mapping[int, Sequence[PassageRow]]) -> None:
        """Refuse documents that have lost all their passages."""
        if lost := [number for number, own in passages.items() if not own]:
            raise self.damaged(f"document number {lost[0]} lacks passages")

    def passage_sample(self, most: int, seed: int) -> list[PassageRow]:
        """Return at most `most` passages, in ascending order of the document number.

        If there are more, return a random sample that depends only on the seed.
        """
        wanted = set(np.random.default_rng(seed).permutation(self.count("passages"))[:most].tolist())
        rows = self.db.conn.execute(PASSAGES.format(""))
        return [self._passage(row) for place, row in enumerate(rows) if place in wanted]

    def passage_vectors(self) -> tuple[Numbers, Numbers]:
        """Return the document number and the vector number of every passage, in ascending order of the document."""
        pairs = self._integers("SELECT document, vector FROM passages ORDER BY document, position").reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def vectors_of_documents(self, numbers: Numbers) -> Numbers:
        """Return the vector numbers of the given documents in ascending order.

        Raise `Damaged` if a document lacks its first passage.
        """
        # There may be millions of passages, so only one number is read for each: it is positive for a first passage.
        query = "SELECT iif(position, -vector, vector) FROM passages WHERE document IN (SELECT value FROM json_each(?))"
        found = self._integers(query, json.dumps(numbers.tolist()))
        if (first := int((found > 0).sum())) != len(numbers):
            raise self.damaged(f"only {first:,} of {len(numbers):,} documents have their first passage")
        return np.unique(np.abs(found))

    def _integers(self, query: str, *bound: Any) -> Numbers:
        """Return all values that a query selects, row by row, in one array."""
        try:
            return np.fromiter((value for row in self.db.conn.execute(query, bound) for value in row), np.int64)
        except (TypeError, ValueError, OverflowError) as error:
            raise self.not_as_stored("a table of passages or vectors") from error

    # ---- vectors -------------------------------------------------------------------------------------------

    def vectors(self, numbers: Sequence[int], dimension: int, *, checked: bool = False) -> Matrix:
        """Return the raw vectors with the given numbers, in that order. If `checked`, verify their checksums."""
        if checked:
            query = "SELECT id, vector, text_hash, checksum FROM vectors WHERE id IN ({})"
            blobs = self._checked(self._select_in(query, numbers))
        else:
            blobs = dict(self._select_in("SELECT id, vector FROM vectors WHERE id IN ({})", numbers))
        if missing := [number for number in numbers if number not in blobs]:
            raise self.damaged(f"there is no vector {missing[0]}")
        return self._matrix([blobs[number] for number in numbers], dimension)

    def each_vector(
        self, dimension: int, *, after: int = 0, last: int | None = None, used_only: bool = False, rows: int = 8192
    ) -> Blocks:
        """Yield all vectors numbered above `after` up to `last`, in blocks: (numbers, raw float32 rows).

        Raise `Damaged` if a vector does not match its checksum, because an index built from it would hide the damage.
        """
        query = (
            "SELECT id, vector, text_hash, checksum FROM vectors WHERE id > ? AND id <= ?"  # noqa: S608 - constant text
            f"{USED if used_only else ''} ORDER BY id LIMIT ?"
        )
        upto = self.last_vector() if last is None else last
        while block := self.db.conn.execute(query, [after, upto, rows]).fetchall():
            rising = [after, *(row[0] for row in block)]
            if any(a >= b for a, b in zip(rising, rising[1:], strict=False)):  # otherwise the loop might never end
                advice = salvage_advice(self.path.parent)
                raise Damaged(f"{self.path}: the rows of the table of vectors are not in ascending order; {advice}")
            after = block[-1][0]
            blobs = self._checked(block)
            yield np.array(list(blobs), np.int64), self._matrix(list(blobs.values()), dimension)

    def _checked(self, rows: Iterable[tuple[Any, ...]]) -> dict[int, bytes]:
        """Return vectors by number: of each row its number, vector, text hash and checksum are given."""
        found = {}
        for number, vector, text_hash, expected in rows:
            typed = type(vector) is bytes and type(text_hash) is bytes
            if not typed or vector_checksum(text_hash, vector) != expected:
                raise self.not_as_stored(f"vector {number}")
            found[number] = vector
        return found

    def _matrix(self, blobs: Sequence[Any], dimension: int) -> Matrix:
        width = dimension * VECTOR_TYPE.itemsize
        if any(not isinstance(blob, bytes) or len(blob) != width for blob in blobs):
            raise self.not_as_stored(f"a vector of {dimension} dimensions")
        return np.frombuffer(b"".join(blobs), VECTOR_TYPE).reshape(len(blobs), dimension).astype(np.float32)

    def vectors_of_texts(self, hashes: Sequence[bytes]) -> dict[bytes, int]:
        """Return the vector number of each text by its hash. Texts without a vector are left out."""
        return dict(self._select_in("SELECT text_hash, id FROM vectors WHERE text_hash IN ({})", hashes))

    def hashes_of_vectors(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return the text hash of each of the given vectors."""
        return dict(self._select_in("SELECT id, text_hash FROM vectors WHERE id IN ({})", numbers))

    def last_vector(self) -> int:
        return int(self.db.conn.execute("SELECT coalesce(max(id), 0) FROM vectors").fetchone()[0])

    def count_vectors(self, last: int) -> int:
        """Count the vectors numbered up to `last`.

        Subtracting the newer ones is fast, because SQLite counts a whole table by its smallest index.
        """
        query = "SELECT (SELECT count(*) FROM vectors) - (SELECT count(*) FROM vectors WHERE id > ?)"
        return int(self.db.conn.execute(query, [last]).fetchone()[0])

    def count_used_after(self, last: int) -> int:
        """Count the used vectors numbered above `last`."""
        return int(self.db.conn.execute(f"SELECT count(*) FROM vectors WHERE id > ?{USED}", [last]).fetchone()[0])  # noqa: S608 - constant text

    def vector_numbers(self, last: int, *, used_only: bool = False) -> Numbers:
        """Return the numbers of the vectors up to `last`, in ascending order."""
        return self._integers(f"SELECT id FROM vectors WHERE id <= ?{USED if used_only else ''} ORDER BY id", last)  # noqa: S608 - constant text

    def used_vectors(self, after: int = 0) -> Numbers:
        """Return the numbers of the used vectors above `after`, in ascending order."""
        return self._integers(f"SELECT id FROM vectors WHERE id > ?{USED} ORDER BY id", after)  # noqa: S608 - constant text

    def unused_vectors(self, last: int) -> Numbers:
        """Return the numbers of the vectors up to `last` that no passage refers to, in ascending order."""
        return self._integers("SELECT vector FROM unused WHERE vector <= ? ORDER BY vector", last)

    def add_vectors(self, hashes: Sequence[bytes], vectors: NDArray[np.floating[Any]]) -> None:
        """Store one raw vector per text. This happens before a document refers to it, so that no embedding is lost."""
        blobs = [row.tobytes() for row in np.ascontiguousarray(vectors, dtype=VECTOR_TYPE)]
        with self.changing() as db:
            db.conn.executemany(
                "INSERT OR IGNORE INTO vectors (text_hash, vector, checksum) VALUES (?, ?, ?)",
                [(own, blob, vector_checksum(own, blob)) for own, blob in zip(hashes, blobs, strict=True)],
            )

    def replace_vectors(self, numbers: Sequence[int], vectors: NDArray[np.floating[Any]]) -> None:
        """Store other vectors for the same texts. Call this only in the transaction that publishes an index of them."""
        hashes = self.hashes_of_vectors(numbers)
        blobs = [row.tobytes() for row in np.ascontiguousarray(vectors, dtype=VECTOR_TYPE)]
        with self.changing() as db:
            db.conn.executemany(
                "UPDATE vectors SET vector = ?, checksum = ? WHERE id = ?",
                [
                    (blob, vector_checksum(hashes[number], blob), number)
                    for number, blob in zip(numbers, blobs, strict=True)
                ],
            )

    def drop_unused_vectors(self) -> int:
        """Delete the unused vectors.

        Call this only in the transaction that publishes an index without them.
        """
        with self.changing() as db:
            return int(db.conn.execute("DELETE FROM vectors WHERE id IN (SELECT vector FROM unused)").rowcount)

    # ---- filters -------------------------------------------------------------------------------------------

    def check_fields(self, conditions: Sequence[Condition]) -> None:
        """Refuse a condition on a field that no document has. The error names the existing fields."""
        with self._metadata_errors():
            check_fields(self.db.conn, conditions)

    def matching(self, conditions: Sequence[Condition]) -> Numbers:
        """Return the numbers of the documents that meet all conditions, in ascending order."""
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
            raise self.not_as_stored("the metadata of a document") from error
        except sqlite3.OperationalError as error:
            if "too large" in str(error):
                raise BadFilter("the filters have too many conditions or values for one search.") from error
            if "JSON" not in str(error):
                raise
            raise self.not_as_stored("the metadata of a document") from error

    # ---- writing -------------------------------------------------------------------------------------------

    def put_documents(self, documents: Iterable[DocumentRow]) -> None:
        """Add or replace documents in one transaction. All their texts must have vectors."""
        with self.changing() as db:
            given = {document.id: document for document in documents}
            known = dict(self._select_in("SELECT id, number FROM documents WHERE id IN ({})", list(given)))
            # A number is never used again, even after its document was deleted.
            (last,) = db.conn.execute(
                "SELECT max(coalesce((SELECT max(number) FROM documents), 0),"
                " coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'documents'), 0))"
            ).fetchone()
            new = {id_: last + place for place, id_ in enumerate((id_ for id_ in given if id_ not in known), start=1)}
            self._put({**known, **new}, given, known)

    def put_document(self, document: DocumentRow, number: int) -> None:
        """Add or replace one document, with this number, within a transaction."""
        known = dict(self._select_in("SELECT id, number FROM documents WHERE id IN ({})", [document.id]))
        self._put({document.id: number, **known}, {document.id: document}, known)

    def _put(self, numbers: Mapping[str, int], given: Mapping[str, DocumentRow], known: Container[str]) -> None:
        """Write the given documents with their numbers. Those that are `known` are replaced."""
        hashes = {text_hash for document in given.values() for _, _, text_hash in document.passages}
        vectors = self.vectors_of_texts(list(hashes))
        columns, passages = [], []
        for id_, number in numbers.items():
            document = given[id_]
            try:
                passages += [
                    (number, position, start, end, vectors[text_hash])
                    for position, (start, end, text_hash) in enumerate(document.passages)
                ]
            except KeyError as error:
                lost = error.args[0].hex()[:12]
                raise Damaged(f"document {id_!r} has a passage without a vector (text hash {lost}…).") from None
            seal = document_seal(id_, document.content_hash, document.source, document.passages)
            text = metadata_text(document.metadata)
            columns.append(
                (id_, document.title, document.text, text, document.content_hash, document.source, seal, number)
            )
        replaced = [row for row in columns if row[0] in known]
        execute = self.db.conn.executemany
        execute("DELETE FROM passages WHERE document = ?", [row[-1:] for row in replaced])
        execute(
            "UPDATE documents SET id = ?, title = ?, text = ?, metadata = ?, content_hash = ?, source = ?, seal = ?"
            " WHERE number = ?",
            replaced,
        )
        new = [row for row in columns if row[0] not in known]
        execute(
            "INSERT INTO documents (id, title, text, metadata, content_hash, source, seal, number)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            new,
        )
        language = str(self.setting("language", checked=False) or "")
        execute(
            "INSERT INTO words (rowid, id, title, text, compounds) VALUES (?, ?, ?, ?, ?)",
            (
                (
                    row[-1],
                    joined(id_terms, row[0], language),
                    joined(field_terms, row[1], language),
                    joined(text_terms, row[2], language),
                    joined(compounds, row[2], language),
                )
                for row in new
            ),
        )
        execute("INSERT INTO passages VALUES (?, ?, ?, ?, ?)", passages)

    def delete_documents(self, ids: Sequence[str]) -> list[str]:
        """Delete the given documents. Return the ids of those that existed."""
        with self.changing() as db:
            known = self.content_hashes(ids)
            existing = [id_ for id_ in dict.fromkeys(ids) if id_ in known]
            db.conn.executemany("DELETE FROM documents WHERE id = ?", [[id_] for id_ in existing])
        return existing

    def metadata_problem(self, metadata: Mapping[str, Any]) -> str | None:
        """Return why a document with this metadata cannot be stored. SQLite can store any metadata, so return None."""
        return None

    # ---- ids of one run ------------------------------------------------------------------------------------

    def start_run(self) -> None:
        """Start to record the ids of a source.

        They are kept in a temporary table, so that memory use stays constant.
        """
        with self.db.atomic() as db:
            db.conn.execute("CREATE TEMP TABLE IF NOT EXISTS met (id TEXT PRIMARY KEY) WITHOUT ROWID")
            db.conn.execute("DELETE FROM met")

    def met_before(self, ids: Sequence[str]) -> set[str]:
        """Return which of the given ids this run has met before, and record all of them."""
        with self.db.atomic() as db:
            before = {row[0] for row in self._select_in("SELECT id FROM met WHERE id IN ({})", ids)}
            db.conn.executemany("INSERT OR IGNORE INTO met VALUES (?)", [[id_] for id_ in ids])
        return before

    def file_states(self) -> dict[str, str]:
        """Return the stored states of files that are single documents, by the id of the document."""
        return dict(self.db.conn.execute("SELECT id, state FROM files JOIN documents ON number = document"))

    def set_file_states(self, states: Mapping[str, str]) -> None:
        """Store the states of files that are single documents. A document that changes loses its state."""
        with self.changing() as db:
            db.conn.executemany(
                "INSERT OR REPLACE INTO files SELECT number, ? FROM documents WHERE id = ?",
                [(state, id_) for id_, state in states.items()],
            )

    def not_met(self) -> Iterator[tuple[str, str]]:
        """Yield id and source of every document that this run has not met."""
        yield from self.db.conn.execute("SELECT id, source FROM documents WHERE id NOT IN (SELECT id FROM met)")

    def text_hashes(self, ids: Sequence[str]) -> dict[str, list[bytes]]:
        """Return the hashes of the texts of each document's passages, in order. Unknown ids are left out."""
        found: dict[str, list[bytes]] = {}
        for id_, text_hash in self._select_in(
            "SELECT documents.id, text_hash FROM documents JOIN passages ON document = number"
            " JOIN vectors ON vectors.id = passages.vector WHERE documents.id IN ({}) ORDER BY number, position",
            ids,
        ):
            found.setdefault(id_, []).append(text_hash)
        return found
