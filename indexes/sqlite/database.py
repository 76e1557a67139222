"""The SQLite file of a collection: how it is opened, read and written, and the settings in it.

A read sees one state of the database. A write is one transaction. A setting is one JSON value per key. It has a
checksum so that damage is noticed.

SQLite reads a database with a write-ahead log only if the index of the log exists or can be created. If this user may
not write to the folder and there is no index, the database is opened as `immutable`. SQLite then does not notice
changes by other processes. Therefore every read compares the states of the files before and after it (`FileStates`).
"""

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from indexes.checksums import setting_checksum
from indexes.errors import Damaged, Locked, NotACollection, NotReadable, first_line, salvage_advice
from indexes.mapped import end_if_cut
from indexes.sqlite.connections import Connections, Database, FileStates, file_identity, file_state, migrate
from indexes.sqlite.schema import CREATED, CREATED_BY_SQLITE, FORMAT, PRE_RELEASE_TABLE

ATTEMPTS = 10
# SQLite allows far more placeholders, but more would not make a statement faster.
PLACEHOLDERS = 500
# A search reads about seventy rows from all over the file. With SQLite's default cache of 2 MB, each row costs a system
# call.
CACHE_KB = 65_536
# secure_delete=FAST overwrites deleted texts if that needs no additional write. cell_size_check=ON checks the cells
# of every page that is read. trusted_schema=OFF is not possible, because triggers could then not write to FTS5
# ("unsafe use of virtual table").
PRAGMAS = (
    "foreign_keys=ON",
    "recursive_triggers=ON",
    f"cache_size=-{CACHE_KB}",
    "secure_delete=FAST",
    "cell_size_check=ON",
    "synchronous=FULL",
)
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
TRANSIENT = ("locked", "busy", "full", "readonly", "unable to open", "interrupted", "disk I/O error")

Result = TypeVar("Result")

CHECKSUMS = "checksums"
"""The setting that holds the checksums of all other settings."""


class DatabaseFile(Connections):
    """One database file. Every thread uses its own connection to it."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        if not create and not path.is_file():
            raise NotACollection(f"{path.parent} holds no collection (no {path.name} in it).")
        self.owner_detects_replacement = False
        """If True, the owner detects a replaced database itself, so running reads may finish on the old file."""
        self._identity: tuple[int, int] | None = None
        _refuse_empty_with_log(path)
        super().__init__()
        end_if_cut(_beside(path, "shm"))
        try:
            self.consistent_read(lambda: self._check_format(create))
            if may_write(path) and self.db.journal_mode != "wal":
                self.db.conn.execute("PRAGMA journal_mode=WAL")
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.DatabaseError) and not is_transient(error):
                raise Damaged(
                    f"{path} is not a readable SQLite database: {first_line(error)}; {salvage_advice(path.parent)}"
                ) from error
            raise

    def _connect(self) -> Database:
        database = _opened(self.path)
        try:
            for pragma in PRAGMAS:
                database.conn.execute(f"PRAGMA {pragma}")
            self._identity = self._identity or file_identity(self.path)
            self.refuse_if_replaced()
        except BaseException:
            database.close()
            raise
        return database

    def _check_format(self, create: bool) -> None:
        folder = self.path.parent
        (version,) = self.db.conn.execute("PRAGMA user_version").fetchone()
        if version > FORMAT:
            raise NotACollection(
                f"{folder} was made by a newer version of retriever (format {version}, this version reads {FORMAT}); "
                "upgrade with: pip install --upgrade flow-retriever"
            )
        if version == FORMAT:
            self._refuse_foreign_code()
            return
        tables = _tables(self.db.conn)
        if PRE_RELEASE_TABLE in tables:
            raise NotACollection(
                f"{folder} was made by a pre-release of retriever; index its source again: "
                "retriever index SOURCE --index NEW"
            )
        if not version and tables:
            raise NotACollection(f"{self.path} is a database of another program.")
        self._refuse_foreign_code()
        if not version and not create:
            raise NotACollection(f"{folder} holds no collection: {self.path.name} has no tables.")
        self.db.conn.execute("PRAGMA journal_mode=WAL")
        try:
            self.db.conn.execute("BEGIN IMMEDIATE")  # of two processes that create it, the second waits here
        except sqlite3.OperationalError as error:
            if not is_transient(error):
                raise
            raise Locked(
                f"another process is creating the collection in {folder}; try again when it is done."
            ) from error
        with self.db.conn:
            migrate(self.db.conn)

    def _refuse_foreign_code(self) -> None:
        """Refuse tables, indexes, triggers and views that neither the migrations nor SQLite itself create.

        A trigger or a foreign key can delete all documents when one is deleted. A view, a computed column or a check
        can compute for ever when it is read or written.
        """
        # SQLite executes the text and ignores the type beside it.
        for kind, name, sql in self.db.conn.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"):
            if f"{sql};" not in CREATED and sql not in CREATED_BY_SQLITE:
                raise Damaged(
                    f"{self.path} has the {kind} {str(name)[:100]!r}, which retriever did not make. It could change or "
                    "block what retriever does, so the collection is not opened. If you made it, remove it; else "
                    f"{salvage_advice(self.path.parent)}"
                )

    # ---- one state -----------------------------------------------------------------------------------------

    @property
    def replaced(self) -> bool:
        """True if the database was removed or replaced since it was opened."""
        return file_identity(self.path) != self._identity

    def refuse_if_replaced(self) -> None:
        """Raise an error if the database was removed or replaced since it was opened."""
        if self.replaced:
            raise NotACollection(f"{self.path} was removed or replaced while it was open; open the collection again.")

    def consistent_read(self, work: Callable[[], Result]) -> Result:
        """Call `work` so that it reads from one state of the database, and return its result.

        If the database was opened as immutable and is changed meanwhile, `work` is called again.
        """
        for _ in range(ATTEMPTS):
            if self._changed():
                self._of_threads.pop(threading.current_thread()).close()
            try:
                result = work()
            except Exception:
                if self._changed():
                    continue
                raise
            if not self._changed():
                return result
        raise Locked(f"{self.path.parent} is being written to continuously; try again when the writer is done.")

    def _changed(self) -> bool:
        found = self._of_threads.get(threading.current_thread())
        return found is not None and found.immutable is not None and _file_states(self.path) != found.immutable

    @property
    def data_version(self) -> tuple[int, int, int]:
        """A value that changes when this thread's connection or another connection has committed a change."""
        database = self.db
        (version,) = database.conn.execute("PRAGMA data_version").fetchone()
        return database.serial, int(version), database.conn.total_changes

    # ---- rows ----------------------------------------------------------------------------------------------

    def count(self, table: str) -> int:
        if table not in {"documents", "passages", "vectors", "unused", "quarantine"}:
            raise ValueError(f"no table {table}")
        return int(self.db.conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - a name of ours

    def _select_in(self, query: str, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Select the rows for the given values, in several statements.

        `{}` in the query stands for the placeholders.
        """
        for i in range(0, len(values), PLACEHOLDERS):
            some = values[i : i + PLACEHOLDERS]
            yield from self.db.conn.execute(query.format(",".join("?" * len(some))), list(some)).fetchall()

    def damaged(self, what: str) -> Damaged:
        """Return the error about damage that `verify --repair` can repair."""
        return Damaged(f"{self.path}: {what}; run: retriever verify --repair --index {self.path.parent}")

    def not_as_stored(self, what: str) -> Damaged:
        return self.damaged(f"{what} is damaged")

    def parsed(self, text: Any, what: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise self.not_as_stored(what) from error

    # ---- settings ------------------------------------------------------------------------------------------

    def setting(self, key: str, *, checked: bool = True) -> Any:
        """Return a setting, or None if it was never set.

        If `checked`, raise `Damaged` if it differs from its checksum.
        """
        rows = dict(self.db.conn.execute("SELECT key, value FROM settings WHERE key IN (?, ?)", [key, CHECKSUMS]))
        if checked and not _matches(key, rows.get(key), self._checksums(rows)):
            raise self.not_as_stored(f"the setting {key!r}")
        return None if key not in rows else self.parsed(rows[key], f"the setting {key!r}")

    def set_settings(self, values: dict[str, Any]) -> None:
        """Change the given settings. All other settings keep their checksums, so that damage to them stays visible."""
        insert = "INSERT INTO settings VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        texts = {key: json.dumps(value, sort_keys=True) for key, value in values.items()}
        with self.changing() as db:
            sums = self._checksums(dict(db.conn.execute("SELECT key, value FROM settings")))
            sums |= {key: setting_checksum(key, text) for key, text in texts.items()}
            db.conn.executemany(insert, [*texts.items(), (CHECKSUMS, json.dumps(sums, sort_keys=True))])

    def renew_checksums(self) -> None:
        """Compute the checksums of all settings again from their present values."""
        with self.changing() as db:
            rows = dict(db.conn.execute("SELECT key, value FROM settings WHERE key <> ?", [CHECKSUMS]))
            sums = {key: setting_checksum(key, str(text)) for key, text in rows.items()}
            db.conn.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", [CHECKSUMS, json.dumps(sums)])

    def changed_settings(self) -> list[str]:
        """List the settings that do not match their checksums."""
        rows = dict(self.db.conn.execute("SELECT key, value FROM settings"))
        try:
            sums = self._checksums(rows)
        except Damaged:
            return [CHECKSUMS]
        if rows.pop(CHECKSUMS, None) is None:
            return [CHECKSUMS] if rows else []
        return sorted(key for key in {*rows, *sums} if not _matches(key, rows.get(key), sums))

    def _checksums(self, rows: dict[str, Any]) -> dict[str, int]:
        found = self.parsed(rows[CHECKSUMS], f"the setting {CHECKSUMS!r}") if CHECKSUMS in rows else {}
        if not isinstance(found, dict):
            raise self.not_as_stored(f"the setting {CHECKSUMS!r}")
        return found


def _matches(key: str, text: Any, sums: dict[str, int]) -> bool:
    return key not in sums if text is None else setting_checksum(key, str(text)) == sums.get(key)


def is_blank(path: Path) -> bool:
    """Return whether the database has no tables. A first run that was killed leaves it in this state."""
    with closing(_opened(path).conn) as connection:
        return not _tables(connection)


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT tbl_name FROM sqlite_master")} - {"sqlite_sequence"}


def is_transient(error: sqlite3.Error) -> bool:
    """Return whether SQLite failed for a temporary reason outside of the database, such as a lock or a full disk."""
    return isinstance(error, sqlite3.OperationalError) and any(reason in str(error) for reason in TRANSIENT)


def may_write(path: Path) -> bool:
    """Return whether this user may write to the folder of the database. Return True if there is no database yet."""
    return not path.exists() or os.access(path.parent, os.W_OK)


def _opened(path: Path) -> Database:
    """Open a connection. If this user may not write, it is read-only, or immutable if there is no log to read.

    No other function opens the file of a collection by SQLite.
    """
    _refuse_journal_of_several(path)
    if may_write(path):
        return Database(sqlite3.connect(path, timeout=60, check_same_thread=False))
    for attempt in range(ATTEMPTS):
        before = _file_states(path)
        log, index = _beside(path, "wal"), _beside(path, "shm")
        try:
            if log.exists() and index.exists():
                return Database(_read_only(path, "mode=ro"))
            if before[1] and before[1][2]:
                raise NotReadable(
                    f"{path.parent} cannot be read by a user who may not write there: a killed process has left "
                    f"{log.name} without {index.name}. Open it once as a user who may write there, or copy the folder."
                )
            return Database(_read_only(path, "mode=ro&immutable=1"), immutable=before)
        except (sqlite3.OperationalError, NotReadable):
            if attempt == ATTEMPTS - 1 or _file_states(path) == before:  # else a writer has just started or ended
                raise
    raise AssertionError("unreachable")


def _read_only(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, timeout=60, check_same_thread=False)
    try:
        connection.execute("PRAGMA schema_version").fetchone()  # SQLite opens the files only now
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_empty_with_log(path: Path) -> None:
    """Refuse an empty database file next to a log that is not empty, because SQLite would delete the log."""
    database, log = _file_states(path)
    if database and not database[2] and log and log[2]:
        raise Damaged(f"{path} is empty, but its log {path.name}-wal is not; {salvage_advice(path.parent)}")


def _refuse_journal_of_several(path: Path) -> None:
    """Refuse a rollback journal that ends with the name of a super-journal, because SQLite would delete that file.

    SQLite writes this only for transactions over several databases, which retriever does not make.
    """
    try:
        with _beside(path, "journal").open("rb") as journal:
            journal.seek(-16, os.SEEK_END)
            ending = journal.read()
    except OSError:  # there is no journal, or it is too short for a name
        return
    if ending.endswith(JOURNAL_MAGIC):
        raise Damaged(
            f"{path}-journal names a file that SQLite would delete. retriever did not write this journal, so the "
            f"collection is not opened; {salvage_advice(path.parent)}"
        )


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}-{ending}")


def _file_states(path: Path) -> FileStates:
    return file_state(path), file_state(_beside(path, "wal"))
