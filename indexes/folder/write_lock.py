"""The one write lock of a collection: a lock on a file in it, and where the system can, on the folder itself.

The file says who holds it. The folder's lock is there because the file can be removed under its holder, and another
process would then lock a new one of the same name.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from filelock import FileLock, Timeout

from indexes.errors import Locked, Misuse, first_line

NAME = "writer.lock"

_locks: ModuleType | None
try:
    import fcntl as _locks
except ImportError:  # Windows, where a file that is open cannot be removed anyway
    _locks = None


class _Own(threading.local):
    """What a thread holds."""

    depth = 0
    identity: tuple[int, int] | None = None


class WriteLock:
    """Held by one thread of one process at a time; it dies with the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begin()

    def _begin(self) -> None:
        self._process, self._file, self._own = os.getpid(), FileLock(self.folder / NAME), _Own()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold it, or fail at once because another does. May be nested."""
        if self._process != os.getpid():  # that one is the parent's
            self._begin()
        if self._own.depth:
            yield
            return
        path = self.folder / NAME
        with contextlib.ExitStack() as releasing:
            try:
                self._file.acquire(timeout=0)
                releasing.callback(self._file.release)
                releasing.enter_context(_locked(self.folder))
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
        """Refuse to go on where the lock's file was removed or replaced since: another may be writing now."""
        if self._own.depth and file_identity(self.folder / NAME) != self._own.identity:
            raise Locked(
                f"{self.folder / NAME} was removed while it was held, so that another process may be writing to the "
                "collection; nothing more is written. Leave that file alone, and run the same command again."
            )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A lock on the folder itself; `BlockingIOError` where another process has it."""
    if _locks is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            _locks.flock(descriptor, _locks.LOCK_EX | _locks.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # a file system without locks on folders
            pass
        yield
    finally:
        with contextlib.suppress(OSError):  # a child that was forked meanwhile has the descriptor, too
            _locks.flock(descriptor, _locks.LOCK_UN)
        os.close(descriptor)


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        if number := path.read_text(encoding="utf-8", errors="replace").strip():
            return f"process {number}"
    return "another process"


def file_identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another that has taken its name; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
