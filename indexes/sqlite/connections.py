"""Who may use a database at once: every thread by a connection of its own, and one process at a time as its writer.

SQLite isolates connections from each other, so threads that share a collection see one snapshot each, as processes do.
A connection must not be used, nor even closed, in a child of the process that opened it: the child opens its own.

The write lock is on a file, which names its holder, and on the folder itself: the file could be removed under its
holder, and another process would then lock a new one. Both die with their process.
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
except ImportError:  # Windows, where a file that is open cannot be removed anyway
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
    """Gives every thread its own connection, which `connect` makes when the thread first needs one."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        # By thread and not by its number, which the system gives to another one once it has ended.
        self._of_threads: dict[threading.Thread, Database] = {}
        self._writing = threading.RLock()
        self._closed = False
        _open.add(self)

    @property
    def mine(self) -> Database:
        """The calling thread's own."""
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
        """Run a block in one transaction that writes. Threads take turns: SQLite would refuse the second."""
        with self._writing:
            database = self.mine
            with database.atomic():
                yield database

    def close_mine(self) -> None:
        """Close the calling thread's own connection; the next use opens another."""
        if found := self._of_threads.pop(threading.current_thread(), None):
            found.conn.close()

    def close(self) -> None:
        """Close those of all threads; none of them may be in use."""
        self._closed = True
        while self._of_threads:
            self._of_threads.popitem()[1].conn.close()

    def abandon(self) -> None:
        """Forget all of them without closing any, in a child that inherited them."""
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
    """Held by one thread of one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begin()

    def _begin(self) -> None:
        self._process, self._file, self._own = os.getpid(), FileLock(self.folder / WRITE_LOCK), _ThreadState()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock, or fail at once if another thread or process does. May be nested."""
        if self._process != os.getpid():  # a forked child must not use its parent's
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
                raise Misuse(f"{self.folder} may not be written to by this user: {first_line(error)}.") from error
            self._own.identity, self._own.depth = file_identity(path), 1
            try:
                yield
            finally:
                self._own.depth = 0

    def refuse_if_lost(self) -> None:
        """Refuse to go on if the lock's file was removed or replaced: another process may be writing now."""
        if self._own.depth and file_identity(self.folder / WRITE_LOCK) != self._own.identity:
            raise Locked(
                f"{self.folder / WRITE_LOCK} was removed while it was held, so that another process may be writing to "
                "the collection; nothing more is written. Leave that file alone, and run the same command again."
            )


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Lock the folder itself; raise `BlockingIOError` if another process has it."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # a file system without locks on folders
            pass
        yield
    finally:
        with contextlib.suppress(OSError):  # a child that was forked meanwhile has the descriptor, too
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        if number := path.read_text(encoding="utf-8", errors="replace").strip():
            return f"process {number}"
    return "another process"


def file_identity(path: Path) -> tuple[int, int] | None:
    """What distinguishes a file from another one that has taken its name; None if there is none."""
    state = file_state(path)
    return state and state[:2]


def file_state(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
