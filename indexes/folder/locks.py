"""The locks of a collection: one writer at a time, and generations that stay as long as a reader uses them.

All locks die with their process. The write lock is on a file, which names its holder, and on the folder itself: the
file could be removed under its holder, and another process would then lock a new one. A reader holds a shared lock on
the manifest of its generation. Whoever releases a superseded generation last, reader or writer, removes its folder.
"""

import contextlib
import os
import shutil
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from filelock import FileLock, Timeout

from indexes.errors import Locked, Misuse, first_line
from indexes.folder.generation import MANIFEST
from indexes.sqlite.database import file_identity

WRITE_LOCK = "writer.lock"

_fcntl: ModuleType | None
try:
    import fcntl as _fcntl
except ImportError:  # Windows, where a file that is open cannot be removed anyway
    _fcntl = None


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


class ReadLock:
    """Keeps the files of a generation from being removed by any process, until it is garbage-collected."""

    def __init__(self, folder: Path) -> None:
        if _fcntl is None:
            return
        try:
            descriptor = os.open(folder / MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # removed already: loading it fails with a message of its own
        weakref.finalize(self, os.close, descriptor)
        with contextlib.suppress(OSError):  # being removed this moment, or a file system without locks
            _fcntl.flock(descriptor, _fcntl.LOCK_SH | _fcntl.LOCK_NB)


def remove_superseded(generations: Path, published: int) -> None:
    """Remove the generations before the published one that nobody holds; what cannot be removed stays."""
    try:
        older = [path for path in generations.iterdir() if path.name.isdecimal() and int(path.name) < published]
    except OSError:
        return
    for folder in older:
        if not _is_held(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_held(folder: Path) -> bool:
    if _fcntl is None:
        return False
    try:
        descriptor = os.open(folder / MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Lock the folder itself; raise `BlockingIOError` if another process has it."""
    if _fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # a file system without locks on folders
            pass
        yield
    finally:
        with contextlib.suppress(OSError):  # a child that was forked meanwhile has the descriptor, too
            _fcntl.flock(descriptor, _fcntl.LOCK_UN)
        os.close(descriptor)


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        if number := path.read_text(encoding="utf-8", errors="replace").strip():
            return f"process {number}"
    return "another process"
