"""Connections to a database, one per thread, and what makes it safe to fork a process whose threads use collections.

SQLite isolates connections from each other. Threads that share a collection therefore see one snapshot each, as
processes do. A forked child must neither use nor close a connection of its parent. It opens its own connections.

A lock that SQLite, ONNX Runtime or another library holds at the moment of a fork stays locked forever in the child.
Therefore short operations that many threads run, such as a search, are marked `fork_safe`: a fork waits until they are
done. Long operations, such as writing, are not marked: if a process forks while one of its threads writes, the child
must not use collections.
"""

import concurrent.futures.thread  # noqa: F401 - both modules register fork handlers, which run in
import contextlib
import ctypes
import logging  # noqa: F401 -                    reverse order: theirs must run after the handlers of this module
import os
import sqlite3
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial, wraps
from itertools import count
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from indexes.errors import Closed
from indexes.sqlite.schema import FORMAT, MIGRATIONS
from indexes.terms import compounds, field_terms, id_terms, joined, text_terms

# sqlite-utils imports pandas if it is installed, which takes longer than a whole search.
_hide_pandas = "pandas" not in sys.modules
if _hide_pandas:
    sys.modules["pandas"] = None  # type: ignore[assignment]
try:
    import sqlite_utils
finally:
    if _hide_pandas:
        del sys.modules["pandas"]

LONGEST_WAIT = 60.0
"""Maximum number of seconds that a fork waits for other threads."""

Given = ParamSpec("Given")
Result = TypeVar("Result")

FileState = tuple[int, int, int, int]
"""The device, inode, size and time of change of a file."""
FileStates = tuple[FileState | None, FileState | None]
"""The states of a database and of its log. None for a missing file."""

_serials = count(1)
_open: "weakref.WeakSet[Connections]" = weakref.WeakSet()


class Database(sqlite_utils.Database):
    """A connection, with a serial number that no two connections of this process share."""

    def __init__(self, connection: sqlite3.Connection, immutable: FileStates | None = None) -> None:
        super().__init__(connection)
        for terms in (id_terms, field_terms, text_terms, compounds):
            connection.create_function(terms.__name__, 2, partial(_joined, terms), deterministic=True)
        self.serial = next(_serials)
        self.immutable = immutable
        """The states of the files when they were opened as immutable, or None if SQLite notices changes itself."""


def _joined(terms: Callable[[str, str], list[str]], text: bytes, language: bytes) -> str:
    """Return the terms of a value as FTS5 reads them. `language` is the JSON value of the setting.

    Both are bytes, because Python would refuse a damaged text, and `verify` could not remove its document.
    """
    return joined(terms, text.decode("utf-8", "replace"), language.decode("utf-8", "replace").strip('"'))


class Connections(ABC):
    """Gives every thread its own connection, which is opened when the thread first needs it."""

    def __init__(self) -> None:
        # The key is the thread and not its number: the system reuses the number of an ended thread.
        self._of_threads: dict[threading.Thread, Database] = {}
        self._writing = threading.RLock()
        self._closed = False
        _open.add(self)

    @abstractmethod
    def _connect(self) -> Database: ...

    @property
    def db(self) -> Database:
        """The calling thread's own connection."""
        thread = threading.current_thread()
        found = self._of_threads.get(thread)
        if found is None:
            if self._closed:
                raise Closed("the collection is closed; open it again to use it.")
            self._close_of_ended_threads()
            found = self._of_threads[thread] = self._connect()
        return found

    def _close_of_ended_threads(self) -> None:
        for thread in [thread for thread in list(self._of_threads) if not thread.is_alive()]:
            if ended := self._of_threads.pop(thread, None):
                ended.conn.close()

    def snapshot(self) -> AbstractContextManager[Any]:
        """Read everything within the block from one state of the database."""
        return self.db.atomic()

    @contextlib.contextmanager
    def changing(self) -> Iterator[Database]:
        """Run a block in one write transaction.

        Threads wait for each other, because SQLite would refuse a second write transaction.
        """
        with self._writing, self.db.atomic():
            yield self.db

    def close(self) -> None:
        """Close the connections of all threads. None of them may be in use."""
        self._closed = True
        while self._of_threads:
            self._of_threads.popitem()[1].conn.close()

    def abandon(self) -> None:
        """Forget all connections without closing them. A forked child calls this for the connections of its parent."""
        for database in self._of_threads.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(database.conn))
        self._of_threads = {}
        self._writing = threading.RLock()


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at this path, which changes if the file is replaced. None if there is no file."""
    state = file_state(path)
    return state and state[:2]


def file_state(path: Path) -> FileState | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def migrate(connection: sqlite3.Connection) -> None:
    """Apply the migrations that the database lacks, within the caller's transaction."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for script in MIGRATIONS[version:]:
        execute_script(connection, script)
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def execute_script(connection: sqlite3.Connection, script: str) -> None:
    """Execute a script statement by statement, because `executescript` would commit the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if statement.strip() and sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


# ---- forks -----------------------------------------------------------------------------------------------


class _Gate:
    """A gate that threads enter to work. A fork closes the gate and waits until all other threads have left it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._forking = False
        self._own = threading.local()

    def __enter__(self) -> None:
        depth = getattr(self._own, "depth", 0)
        if not depth:
            with self._changed:
                while self._forking:
                    self._changed.wait()
                self._inside += 1
        self._own.depth = depth + 1

    def __exit__(self, *error: object) -> None:
        self._own.depth -= 1
        if not self._own.depth:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def _own_count(self) -> int:
        return int(getattr(self._own, "depth", 0) > 0)

    def before_fork(self) -> None:
        with self._changed:
            while self._forking:  # another thread is forking
                self._changed.wait()
            self._forking = True
            self._changed.wait_for(lambda: self._inside <= self._own_count(), LONGEST_WAIT)

    def after_fork_in_parent(self) -> None:
        with self._changed:
            self._forking = False
            self._changed.notify_all()

    def after_fork_in_child(self) -> None:
        self._changed = threading.Condition()
        self._inside = self._own_count()
        self._forking = False


class Lock:
    """A lock that is free in a forked child, even if the parent held it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        self._lock = threading.Lock()


_gate = _Gate()
_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def fork_safe(work: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a function so that it never runs while another thread forks."""

    @wraps(work)
    def gated(*given: Given.args, **named: Given.kwargs) -> Result:
        with _gate:
            return work(*given, **named)

    return gated


def _after_in_child() -> None:
    _gate.after_fork_in_child()
    for lock in list(_locks):
        lock.renew()
    for connections in list(_open):
        connections.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_gate.before_fork, after_in_parent=_gate.after_fork_in_parent, after_in_child=_after_in_child
    )
