"""Who uses a generation: a shared lock on its manifest, which dies with the process, says that its files are wanted.

The folder of a generation that was superseded is removed by whoever lets go of it last, reader or writer.
"""

import contextlib
import os
import shutil
import weakref
from pathlib import Path
from types import ModuleType

from indexes.folder.generation import MANIFEST

_locks: ModuleType | None
try:
    import fcntl as _locks
except ImportError:  # Windows, where a file that is open cannot be removed anyway
    _locks = None


class Hold:
    """Keeps the files of a generation from being removed by any process for as long as this lives."""

    def __init__(self, folder: Path) -> None:
        if _locks is None:
            return
        try:
            descriptor = os.open(folder / MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # gone already: what needs it says so
        weakref.finalize(self, os.close, descriptor)
        with contextlib.suppress(OSError):  # being removed this moment, or a file system without locks
            _locks.flock(descriptor, _locks.LOCK_SH | _locks.LOCK_NB)


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
    if _locks is None:
        return False
    try:
        descriptor = os.open(folder / MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        _locks.flock(descriptor, _locks.LOCK_EX | _locks.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
