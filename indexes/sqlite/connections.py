"""Connections to a database, one per thread, and the write lock, which one process holds at a time.

SQLite isolates connections from each other. Threads that share a collection therefore see one snapshot each, as
processes do. A forked child must neither use nor close a connection of its parent. It opens its own connections.

The write lock consists of a lock on a file, which contains the process number of the holder, and a lock on the folder.
The lock on the folder is needed because the file could be removed while it is locked: another process would then create
and lock a new file. The system releases both locks when the process ends.
"""

import contextlib
import ctypes
import os
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import ModuleType

from filelock import FileLock, Timeout

from indexes.errors import Closed, Locked, Misuse, first_line

# sqlite-utils imports pandas if it is installed, which takes longer than a whole search.
_hide_pandas = "pandas" not in sys.modules
if _hide_pandas:
    sys.modules["pandas"] = None  # type: ignore[assignment]
try:
    import sqlite_utils
finally:
    if _hide_pandas:
        del sys.modules["pandas"]

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # on Windows, which does not allow an open file to be removed
    fcntl = None

WRITE_LOCK = "writer.lock"

_serials = count(1)
_open: "weakref.WeakSet[Connections]" = weakref.WeakSet()


class Database(sqlite_utils.Database):
    """A connection, with a serial number that no two connections of this process share."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.serial = next(_serials)


class Connections:
    """Gives every thread its own connection. `connect` opens it when the thread first needs it."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        # The key is the thread and not its number: the system reuses the number of an ended thread.
        self._of_threads: dict[threading.Thread, Database] = {}
        self._writing = threading.RLock()
        self._closed = False
        _open.add(self)

    @property
    def mine(self) -> Database:
        """The calling thread's own connection."""
        thread = threading.current_thread()
        found = self._of_threads.get(thread)
        if found is None:
            if self._closed:
                raise Closed("the collection is closed; open it again to use it.")
            self._close_of_ended_threads()
            found = self._of_threads[thread] = Database(self._connect())
        return found

    def _close_of_ended_threads(self) -> None:
        for thread in [thread for thread in list(self._of_threads) if not thread.is_alive()]:
            if ended := self._of_threads.pop(thread, None):
                ended.conn.close()

    @contextlib.contextmanager
    def changing(self) -> Iterator[Database]:
        """Run a block in one write transaction.

        Threads wait for each other, because SQLite would refuse a second write transaction.
        """
        with self._writing:
            database = self.mine
            with database.atomic():
                yield database

    def close_mine(self) -> None:
        """Close the calling thread's own connection. The next use opens a new connection."""
        if found := self._of_threads.pop(threading.current_thread(), None):
            found.conn.close()

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


def _abandon_all() -> None:
    for connections in list(_open):
        connections.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


class _ThreadState(threading.local):
    depth = 0
    identity: tuple[int, int] | None = None


class WriteLock:
    """A lock that one thread of one process holds at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begin()

    def _begin(self) -> None:
        self._process, self._file, self._own = os.getpid(), FileLock(self.folder / WRITE_LOCK), _ThreadState()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock. Fail at once if another thread or process holds it. May be nested."""
        if self._process != os.getpid():  # a forked child must not use its parent's lock
            self._begin()
        if self._own.depth:
            yield
            return
        path = self.folder / WRITE_LOCK
        with contextlib.ExitStack() as releasing:
            try:
                self._file.acquire(timeout=0)
                releasing.callback(self._file.release)
                releasing.enter_context(_folder_lock(self.folder))
                path.write_text(f"{os.getpid()}\n", encoding="utf-8")
            except (Timeout, BlockingIOError):
                raise Locked(
                    f"{self.folder} is being written to by {_holder(path)}; wait for it or stop it, then try again."
                ) from None
            except PermissionError as error:
                raise Misuse(f"this user is not allowed to write to {self.folder}: {first_line(error)}.") from error
            self._own.identity, self._own.depth = file_identity(path), 1
            try:
                yield
            finally:
                self._own.depth = 0

    def refuse_if_lost(self) -> None:
        """Refuse to continue if the lock file was removed or replaced, because another process may be writing now."""
        if self._own.depth and file_identity(self.folder / WRITE_LOCK) != self._own.identity:
            raise Locked(
                f"the lock file {self.folder / WRITE_LOCK} was removed while it was in use. Another process may now be "
                "writing to the collection, so this one has stopped writing. Do not delete that file, and run the same "
                "command again."
            )


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Lock the folder itself. Raise `BlockingIOError` if another process holds the lock."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # the file system has no locks on folders
            pass
        yield
    finally:
        with contextlib.suppress(OSError):  # closing is not enough if a child was forked meanwhile
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        if number := path.read_text(encoding="utf-8", errors="replace").strip():
            return f"process {number}"
    return "another process"


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return a value that differs if another file has taken the name. Return None if the file does not exist."""
    state = file_state(path)
    return state and state[:2]


def file_state(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
