"""The SQLite side of a collection: documents, their passages and the raw vector of every distinct text.

SQLite is the only truth; everything FAISS holds can be made again from here. Every method that writes is one
transaction, and with WAL and full sync what it wrote is on disk when it returns.
"""

import contextlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import content_hash, document_seal, is_unicode, metadata_text, setting_checksum, vector_checksum
from indexes.errors import DAMAGE, BadFilter, Damaged, Locked, NotACollection, first_line, salvage_advice
from indexes.folder.write_lock import file_identity
from indexes.sqlite import opening
from indexes.sqlite.conditions import Condition, check_fields
from indexes.sqlite.connections import Connections
from indexes.sqlite.library import Database
from indexes.sqlite.schema import migrations

VECTOR_TYPE = np.dtype("<f2")
# SQLite allows far more, but one statement of this many placeholders already runs at full speed.
PLACEHOLDERS = 500
# A search reads some seventy rows from all over the file: with SQLite's own 2 MB each costs a call of the system.
CACHE_KB = 65_536
# Deleted texts are overwritten where that costs no write of its own, and cells are measured as a page is read. Not
# trusted_schema=OFF: FTS5 may then not be written by a trigger ("unsafe use of virtual table").
PRAGMAS = (
    "foreign_keys=ON",
    f"cache_size=-{CACHE_KB}",
    "secure_delete=FAST",
    "cell_size_check=ON",
    "synchronous=FULL",
)
CHECKSUMS = "checksums"
"""The setting that holds the checksums of the others."""
Result = TypeVar("Result")

BOOKKEEPING_TABLES = {"_sqlite_migrations", "sqlite_sequence"}


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
    """One passage of a stored document, with the vector that stands for it."""

    document: int
    position: int
    start: int
    end: int
    vector: int


class DocumentStore:
    """The tables of one collection. Writers hold the collection's lock; any number of readers may be open."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        if not create and not path.is_file():
            raise NotACollection(f"{path.parent} holds no collection (no {path.name} in it).")
        self.outlives_replacement = False
        """Whether who has it open looks for another in its place, and would finish here what was begun here."""
        self._identity: tuple[int, int] | None = None
        self._taken_for_still: dict[int, opening.State] = {}
        """By thread, what the database looked like that it reads as if nobody wrote to it."""
        opening.refuse_empty_with_log(path)
        self.connections = Connections(self._connect)
        try:
            self.steadily(lambda: self._check_version(create))
            if opening.may_write(path) and self.db.conn.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                self.db.conn.execute("PRAGMA journal_mode=WAL")
        except (sqlite3.DatabaseError, *DAMAGE) as error:
            self.connections.close()
            if isinstance(error, sqlite3.OperationalError) and is_transient(error):
                raise
            raise Damaged(
                f"{path} is not a readable SQLite database: {first_line(error)}; {salvage_advice(path.parent)}"
            ) from error
        except BaseException:
            self.connections.close()
            raise

    @property
    def db(self) -> Database:
        """The calling thread's own connection."""
        return self.connections.mine

    def _connect(self) -> sqlite3.Connection:
        connection, still = opening.connect(self.path)
        try:
            for pragma in PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            self._identity = self._identity or file_identity(self.path)
            self.refuse_if_replaced()
        except BaseException:
            connection.close()
            raise
        self._taken_for_still.pop(threading.get_ident(), None)
        if still:
            self._taken_for_still[threading.get_ident()] = still
        return connection

    @property
    def replaced(self) -> bool:
        """Whether the database in the folder, if there is one, is no longer the one that was opened."""
        return file_identity(self.path) != self._identity

    def refuse_if_replaced(self) -> None:
        """Refuse to go on with a database that is no longer the one in the folder."""
        if self.replaced:
            raise NotACollection(f"{self.path} was removed or replaced while it was open; open the collection again.")

    def steadily(self, work: Callable[[], Result]) -> Result:
        """What `work` reads from one state of the database, also where this user can take no lock on it."""
        for _ in range(opening.TRIES):
            if self._changed():
                self.connections.close_mine()
            try:
                result = work()
            except Exception:
                if self._changed():
                    continue
                raise
            if not self._changed():
                return result
        raise Locked(f"{self.path.parent} is being written to all the time; try again when that is done.")

    def _changed(self) -> bool:
        still = self._taken_for_still.get(threading.get_ident())
        return still is not None and opening.state_of(self.path) != still

    def _check_version(self, create: bool) -> None:
        known = {migration.name for migration in migrations._migrations}
        applied = {migration.name for migration in migrations.applied(self.db)}
        if newer := sorted(applied - known):
            raise NotACollection(
                f"{self.path.parent} was made by a newer version of retriever (it has {', '.join(newer)}); "
                "upgrade with: pip install --upgrade flow-retriever"
            )
        if not applied and not create:
            raise NotACollection(f"{self.path.parent} holds no collection: {self.path.name} has no such tables.")
        if not applied and set(self.db.table_names()) - BOOKKEEPING_TABLES:
            raise NotACollection(f"{self.path} is another program's database.")
        if known - applied:
            self._migrate()

    def _migrate(self) -> None:
        """Make the tables, or bring those of an older version up to date; all or none, wherever it is killed."""
        if not opening.may_write(self.path):
            raise NotACollection(
                f"{self.path.parent} was made by an older version of retriever and cannot be brought up to date, for "
                "it cannot be written; open it once where it can be, or copy it."
            )
        connection = self.db.conn
        connection.execute("PRAGMA journal_mode=WAL")
        try:
            connection.execute("BEGIN IMMEDIATE")  # of two that open it at once, the second finds it done
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            raise Locked(
                f"{self.path.parent} was made by an older version of retriever, and another process is writing to it, "
                "perhaps to bring it up to date; try again when that is done."
            ) from error
        try:
            migrations.apply(self.db)
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise

    def close(self) -> None:
        self.connections.close()

    def snapshot(self) -> AbstractContextManager[Any]:
        """While it lasts, all that is read is of one state."""
        return self.db.atomic()

    def why_not(self, metadata: Mapping[str, Any]) -> str | None:
        """Why a document with this metadata cannot be stored here: SQLite takes what was read."""
        return None

    def changing(self) -> AbstractContextManager[Database]:
        """One transaction that writes."""
        return self.connections.changing()

    @property
    def data_version(self) -> tuple[int, int, int]:
        """Changes whenever another connection, or the calling thread's own, has committed a change."""
        connection = self.db.conn
        row = connection.execute("PRAGMA data_version").fetchone()
        return self.connections.serial, int(row[0]), connection.total_changes

    # ---- settings ----------------------------------------------------------------------------------------

    def setting(self, key: str, *, checked: bool = True) -> Any:
        """What a setting was set to; refused where it does not match its checksum, unless it is to be looked at."""
        rows = dict(self.db.conn.execute("SELECT key, value FROM settings WHERE key IN (?, ?)", [key, CHECKSUMS]))
        if checked and not self._matches(key, rows.get(key), self._checksums(rows.get(CHECKSUMS))):
            raise Damaged(
                f"{self.path}: the setting {key!r} does not match its checksum; "
                f"run: retriever verify --repair --index {self.path.parent}"
            )
        return None if key not in rows else self._json(rows[key], f"the setting {key!r}")

    def _checksums(self, text: str | None) -> dict[str, int] | None:
        """The checksums of the settings; None where an older version stored them."""
        if text is None:
            return None
        found = self._json(text, f"the setting {CHECKSUMS!r}")
        if not isinstance(found, dict):
            raise Damaged(f"{self.path}: the setting {CHECKSUMS!r} is damaged; run: retriever verify --repair")
        return found

    @staticmethod
    def _matches(key: str, text: Any, sums: dict[str, int] | None) -> bool:
        if sums is None:
            return True
        return key not in sums if text is None else setting_checksum(key, str(text)) == sums.get(key)

    def _json(self, text: Any, what: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise Damaged(f"{self.path}: {what} is damaged; run: retriever verify --repair") from error

    def set_settings(self, values: dict[str, Any]) -> None:
        """Change these settings; the others keep the checksums they have, so that no damage to them is hidden."""
        insert = "INSERT INTO settings VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        with self.changing():
            self.db.conn.executemany(
                insert, [(key, json.dumps(value, sort_keys=True)) for key, value in values.items()]
            )
            rows = dict(self.db.conn.execute("SELECT key, value FROM settings"))
            kept = self._checksums(rows.pop(CHECKSUMS, None))
            new = rows if kept is None else values
            sums = {**(kept or {}), **{key: setting_checksum(key, rows[key]) for key in new}}
            self.db.conn.execute(insert, [CHECKSUMS, json.dumps(sums, sort_keys=True)])

    def forget_checksums(self) -> None:
        """Have the next `set_settings` make the checksums of all settings again, as they are."""
        with self.changing():
            self.db.conn.execute("DELETE FROM settings WHERE key = ?", [CHECKSUMS])

    def changed_settings(self) -> list[str]:
        """The settings that are not as they were stored; none where an older version stored them."""
        rows = dict(self.db.conn.execute("SELECT key, value FROM settings"))
        try:
            sums = self._checksums(rows.pop(CHECKSUMS, None))
        except Damaged:
            return [CHECKSUMS]
        return sorted(key for key in {*rows, *(sums or {})} if not self._matches(key, rows.get(key), sums))

    # ---- what is there -----------------------------------------------------------------------------------

    def count(self, table: str) -> int:
        if table not in {"documents", "passages", "vectors", "unused", "quarantine"}:
            raise ValueError(f"no table {table}")
        return int(self.db[table].count)

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The stored content hash of each of these documents that exists."""
        return dict(self._select_in("SELECT id, content_hash FROM documents WHERE id IN ({})", ids))

    def vectors_of_texts(self, hashes: Sequence[bytes]) -> dict[bytes, int]:
        """The vector number of each of these text hashes that was embedded before."""
        return dict(self._select_in("SELECT text_hash, id FROM vectors WHERE text_hash IN ({})", hashes))

    def passages_of_vectors(self, vectors: Sequence[int]) -> dict[int, list[PassageRow]]:
        """Every live passage that each vector stands for, in the order of the documents' arrival."""
        found: dict[int, list[PassageRow]] = {}
        for row in self._select_in(
            'SELECT document, position, start, "end", vector FROM passages'
            " JOIN documents ON number = document WHERE vector IN ({}) ORDER BY document, position",
            vectors,
        ):
            found.setdefault(row[4], []).append(PassageRow(*row))
        return found

    def documents(self, numbers: Sequence[int], found: Iterable[PassageRow] = ()) -> dict[int, dict[str, Any]]:
        """The stored fields of these documents, refused where they are not what was stored, nor sealed with the
        passages they have; `found` are some of those passages, as another way led to them."""
        rows = self._select_in(
            "SELECT number, id, title, text, metadata, content_hash, source, seal FROM documents WHERE number IN ({})",
            numbers,
        )
        passages = self._sealed_passages(numbers)
        stored = {}
        for number, id_, title, text, metadata, expected, source, seal in rows:
            parts = (id_, title, text, metadata, source)
            sound = all(isinstance(part, str) for part in parts) and content_hash(title, text, metadata) == expected
            places = [(start, end, text_hash) for _, _, start, end, _, text_hash in passages[number]]
            if not sound or document_seal(id_, expected, source, places) != seal:
                raise self._not_as_stored(f"document {id_!r}")
            fields = {"id": id_, "title": title, "text": text}
            stored[number] = {**fields, "metadata": self._json(metadata, f"document {id_!r}")}
        for passage in found:
            own = passages[passage.document]
            if passage.position >= len(own) or PassageRow(*own[passage.position][:5]) != passage:
                raise self._not_as_stored(f"a passage of document {stored[passage.document]['id']!r}")
        return stored

    def sealed_rows(self, numbers: Sequence[int]) -> Iterator[tuple[int, DocumentRow]]:
        """These documents as they were put, with their numbers; refused where one is not what was stored."""
        stored, passages = self.documents(numbers), self._sealed_passages(numbers)
        rows = self._select_in("SELECT number, content_hash, source FROM documents WHERE number IN ({})", numbers)
        for number, content, source in sorted(rows):
            fields = stored[number]
            places = [(start, end, text_hash) for _, _, start, end, _, text_hash in passages[number]]
            yield (
                number,
                DocumentRow(fields["id"], fields["title"], fields["text"], fields["metadata"], content, source, places),
            )

    def hashes_of_vectors(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """The hash of the text that each of these vectors stands for."""
        return dict(self._select_in("SELECT id, text_hash FROM vectors WHERE id IN ({})", numbers))

    def _sealed_passages(self, numbers: Sequence[int]) -> dict[int, list[tuple[Any, ...]]]:
        """The passages of each of these documents in order: the columns, and the hash of the text each stands for."""
        found: dict[int, list[tuple[Any, ...]]] = {number: [] for number in numbers}
        for row in self._select_in(
            'SELECT document, position, start, "end", passages.vector, text_hash FROM passages'
            " JOIN vectors ON vectors.id = passages.vector WHERE document IN ({}) ORDER BY document, position",
            numbers,
        ):
            found[row[0]].append(row)
        return found

    def _not_as_stored(self, what: str) -> Damaged:
        return Damaged(
            f"{self.path}: {what} is not what was stored; run: retriever verify --repair --index {self.path.parent}"
        )

    def document_number(self, id_: str) -> int | None:
        if not is_unicode(id_):  # what no stored id is
            return None
        row = self.db.conn.execute("SELECT number FROM documents WHERE id = ?", [id_]).fetchone()
        return None if row is None else int(row[0])

    def passages_of_documents(self, numbers: Sequence[int]) -> dict[int, list[PassageRow]]:
        """The passages of each of these documents, in order; none for one that is not there."""
        found: dict[int, list[PassageRow]] = {number: [] for number in numbers}
        for row in self._select_in(
            'SELECT document, position, start, "end", vector FROM passages'
            " JOIN documents ON number = document WHERE document IN ({}) ORDER BY document, position",
            numbers,
        ):
            found[row[0]].append(PassageRow(*row))
        return found

    def refuse_without_passages(self, passages: Mapping[int, Sequence[PassageRow]]) -> None:
        """Refuse documents that have lost all their passages."""
        if lost := [number for number, own in passages.items() if not own]:
            raise Damaged(
                f"{self.path}: document number {lost[0]} lacks passages; "
                f"run: retriever verify --repair --index {self.path.parent}"
            )

    def check_fields(self, conditions: Sequence[Condition]) -> None:
        """Refuse a condition on a field that no document has, with the names of those there are."""
        with self._telling_bad_metadata():
            check_fields(self.db.conn, conditions)

    def matching(self, conditions: Sequence[Condition]) -> NDArray[np.int64]:
        """The numbers of the documents that meet all conditions, rising."""
        tests = [condition.sql() for condition in conditions]
        met = " AND ".join(test for test, _ in tests) or "1"
        query = f"SELECT number FROM documents WHERE {met} ORDER BY number"  # noqa: S608 - names and values are bound
        with self._telling_bad_metadata():
            rows = self.db.conn.execute(query, [value for _, bound in tests for value in bound])
            return np.fromiter((row[0] for row in rows), np.int64)

    @contextlib.contextmanager
    def _telling_bad_metadata(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "too large" in str(error):
                raise BadFilter("there are too many filters, or values in them, for one search.") from error
            if "JSON" not in str(error):
                raise
            raise Damaged(
                f"{self.path}: the metadata of a document is damaged; run: retriever verify --repair"
            ) from error

    def vectors_of_documents(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The vectors that stand for passages of these documents, rising; refused where one has lost its first."""
        # One number a passage, as they may be millions: the first passage of each document stands above zero.
        query = "SELECT iif(position, -vector, vector) FROM passages WHERE document IN (SELECT value FROM json_each(?))"
        rows = self.db.conn.execute(query, [json.dumps(numbers.tolist())])
        found = np.fromiter((row[0] for row in rows), np.int64)
        if (there := int((found > 0).sum())) != len(numbers):
            raise Damaged(
                f"{self.path}: of {len(numbers):,} documents {there:,} have their first passage; "
                f"run: retriever verify --repair --index {self.path.parent}"
            )
        return np.unique(np.abs(found))

    def passage_sample(self, most: int, seed: int) -> list[PassageRow]:
        """Passages in the order of the documents' arrival: all of them or a seeded random choice."""
        wanted = set(np.random.default_rng(seed).permutation(self.count("passages"))[:most].tolist())
        rows = self.db.conn.execute(
            'SELECT document, position, start, "end", vector FROM passages JOIN documents ON number = document'
            " ORDER BY document, position"
        )
        return [PassageRow(*row) for place, row in enumerate(rows) if place in wanted]

    def passage_vectors(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The document and the vector of every passage, documents rising."""
        rows = self.db.conn.execute("SELECT document, vector FROM passages ORDER BY document, position")
        pairs = np.fromiter((number for row in rows for number in row), np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def each_document(self) -> Iterator[dict[str, Any]]:
        """Every document's row, in the order of arrival, without holding them all."""
        names = ("number", "id", "title", "text", "metadata", "content_hash", "source", "seal")
        for row in self.db.conn.execute(
            "SELECT number, id, title, text, metadata, content_hash, source, seal FROM documents ORDER BY number"
        ):
            yield dict(zip(names, row, strict=True))

    # ---- vectors -----------------------------------------------------------------------------------------

    def vectors(self, numbers: Sequence[int], dimension: int, *, checked: bool = False) -> NDArray[np.float32]:
        """The raw vectors with these numbers, in that order; `checked` holds each against its checksum."""
        if checked:
            query = "SELECT id, vector, text_hash, checksum FROM vectors WHERE id IN ({})"
            rows = self._select_in(query, numbers)
            blobs = {number: self._sound(number, *row) for number, *row in rows}
        else:
            blobs = dict(self._select_in("SELECT id, vector FROM vectors WHERE id IN ({})", numbers))
        missing = [n for n in numbers if n not in blobs]
        if missing:
            raise Damaged(f"{self.path} has no vector {missing[0]}; run: retriever verify --repair")
        return _matrix([blobs[n] for n in numbers], dimension)

    def each_vector(
        self, dimension: int, *, after: int = 0, last: int | None = None, used_only: bool = False, rows: int = 8192
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """All vectors numbered after `after` up to `last`, rising, in blocks: (numbers, raw float32 rows).

        Each is held against its checksum: what is made of them would hide the damage.
        """
        used = " AND id NOT IN (SELECT vector FROM unused)" if used_only else ""
        query = (
            f"SELECT id, vector, text_hash, checksum FROM vectors WHERE id > ? AND id <= ?{used} ORDER BY id LIMIT ?"  # noqa: S608 - constant text
        )
        upto = self.last_vector() if last is None else last
        while block := self.db.conn.execute(query, [after, upto, rows]).fetchall():
            rising = [after, *(row[0] for row in block)]
            if any(a >= b for a, b in zip(rising, rising[1:], strict=False)):  # else this might never end
                raise Damaged(f"{self.path}: the table of vectors is out of order; {salvage_advice(self.path.parent)}")
            after = block[-1][0]
            blobs = [self._sound(*row) for row in block]
            yield np.array([row[0] for row in block], np.int64), _matrix(blobs, dimension)

    def _sound(self, number: int, vector: Any, text_hash: Any, expected: Any) -> bytes:
        right = isinstance(vector, bytes) and isinstance(text_hash, bytes)
        if not right or vector_checksum(text_hash, vector) != expected:
            raise Damaged(
                f"{self.path}: vector {number} does not match its checksum; "
                f"run: retriever verify --repair --index {self.path.parent}"
            )
        return bytes(vector)

    def last_vector(self) -> int:
        return int(self.db.conn.execute("SELECT coalesce(max(id), 0) FROM vectors").fetchone()[0])

    def count_vectors(self, last: int) -> int:
        """How many vectors there are up to `last`, without reading the vectors: SQLite counts all by another index."""
        query = "SELECT (SELECT count(*) FROM vectors) - (SELECT count(*) FROM vectors WHERE id > ?)"
        return int(self.db.conn.execute(query, [last]).fetchone()[0])

    def count_used_after(self, last: int) -> int:
        """How many vectors that a passage points to are newer than `last`."""
        query = "SELECT count(*) FROM vectors WHERE id > ? AND id NOT IN (SELECT vector FROM unused)"
        return int(self.db.conn.execute(query, [last]).fetchone()[0])

    def vector_numbers(self, last: int, *, used_only: bool = False) -> NDArray[np.int64]:
        """The numbers of all vectors up to `last`, or of those that a passage points to, rising."""
        used = " AND id NOT IN (SELECT vector FROM unused)" if used_only else ""
        query = f"SELECT id FROM vectors WHERE id <= ?{used} ORDER BY id"  # noqa: S608 - constant text
        return np.fromiter((row[0] for row in self.db.conn.execute(query, [last])), np.int64)

    def used_vectors(self, after: int = 0) -> NDArray[np.int64]:
        """The vectors newer than `after` that a passage points to, rising."""
        query = "SELECT id FROM vectors WHERE id > ? AND id NOT IN (SELECT vector FROM unused) ORDER BY id"
        return np.fromiter((row[0] for row in self.db.conn.execute(query, [after])), np.int64)

    def unused_vectors(self, last: int) -> NDArray[np.int64]:
        """The vectors up to `last` that no passage points to any more."""
        rows = self.db.conn.execute("SELECT vector FROM unused WHERE vector <= ? ORDER BY vector", [last])
        return np.array([row[0] for row in rows], np.int64)

    # ---- writing -----------------------------------------------------------------------------------------

    def add_vectors(self, hashes: Sequence[bytes], vectors: NDArray[np.floating[Any]]) -> None:
        """Store one raw vector a text, before any document points to it, so that no embedding is lost."""
        blobs = [row.tobytes() for row in np.ascontiguousarray(vectors, dtype=VECTOR_TYPE)]
        with self.changing():
            self.db.conn.executemany(
                "INSERT OR IGNORE INTO vectors (text_hash, vector, checksum) VALUES (?, ?, ?)",
                [(h, blob, vector_checksum(h, blob)) for h, blob in zip(hashes, blobs, strict=True)],
            )

    def put_documents(self, documents: Iterable[DocumentRow]) -> None:
        """Add or replace documents whose texts all have vectors: all of them or, on any error, none."""
        with self.changing():
            for document in documents:
                vectors = self.vectors_of_texts([text_hash for _, _, text_hash in document.passages])
                row = self.db.conn.execute(
                    "INSERT INTO documents (id, title, text, metadata, content_hash, source, seal)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET title = excluded.title,"
                    " text = excluded.text, metadata = excluded.metadata, content_hash = excluded.content_hash,"
                    " source = excluded.source, seal = excluded.seal RETURNING number",
                    [
                        document.id,
                        document.title,
                        document.text,
                        metadata_text(document.metadata),
                        document.content_hash,
                        document.source,
                        document_seal(document.id, document.content_hash, document.source, document.passages),
                    ],
                ).fetchone()
                self.db.conn.execute("DELETE FROM passages WHERE document = ?", [row[0]])
                self.db.conn.executemany(
                    "INSERT INTO passages VALUES (?, ?, ?, ?, ?)",
                    [
                        (row[0], position, start, end, vectors[text_hash])
                        for position, (start, end, text_hash) in enumerate(document.passages)
                    ],
                )

    def delete_documents(self, ids: Sequence[str]) -> list[str]:
        """Delete these documents; returns the ids that were there."""
        with self.changing():
            known = self.content_hashes(ids)
            there = [id_ for id_ in dict.fromkeys(ids) if id_ in known]
            self.db.conn.executemany("DELETE FROM documents WHERE id = ?", [[i] for i in there])
        return there

    def drop_unused_vectors(self) -> int:
        """Forget the vectors that nothing points to; only together with an index that does not hold them."""
        with self.changing():
            return int(self.db.conn.execute("DELETE FROM vectors WHERE id IN (SELECT vector FROM unused)").rowcount)

    # ---- ids met in one run ------------------------------------------------------------------------------

    def start_run(self) -> None:
        """Begin to note the ids met while a source is read (in a temporary table, so memory stays flat)."""
        with self.db.atomic():
            self.db.conn.execute("CREATE TEMP TABLE IF NOT EXISTS met (id TEXT PRIMARY KEY) WITHOUT ROWID")
            self.db.conn.execute("DELETE FROM met")

    def met_before(self, ids: Sequence[str]) -> set[str]:
        """Which of these ids this run has met already; notes them all."""
        with self.db.atomic():
            before = {row[0] for row in self._select_in("SELECT id FROM met WHERE id IN ({})", ids)}
            self.db.conn.executemany("INSERT OR IGNORE INTO met VALUES (?)", [[i] for i in ids])
        return before

    def delete_not_met(self) -> int:
        """Delete every document that this run has not met."""
        with self.changing():
            return int(self.db.conn.execute("DELETE FROM documents WHERE id NOT IN (SELECT id FROM met)").rowcount)

    def _select_in(self, query: str, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        for i in range(0, len(values), PLACEHOLDERS):
            some = values[i : i + PLACEHOLDERS]
            yield from self.db.conn.execute(query.format(",".join("?" * len(some))), list(some)).fetchall()


def _matrix(blobs: Sequence[bytes], dimension: int) -> NDArray[np.float32]:
    width = dimension * VECTOR_TYPE.itemsize
    if any(not isinstance(blob, bytes) or len(blob) != width for blob in blobs):
        raise Damaged(
            f"a stored vector has the wrong size (expected {dimension} dimensions); run: retriever verify --repair"
        )
    return np.frombuffer(b"".join(blobs), VECTOR_TYPE).reshape(len(blobs), dimension).astype(np.float32)


def is_transient(error: sqlite3.OperationalError) -> bool:
    """Whether SQLite failed for a reason outside of the database, which may pass."""
    reasons = ("locked", "busy", "full", "readonly", "unable to open", "interrupted", "disk I/O error")
    return any(reason in str(error) for reason in reasons)
