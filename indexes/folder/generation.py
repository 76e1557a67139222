"""Generations and locks. A generation is a folder with a FAISS index, the transform of its vectors, and a manifest.

A generation is written under a temporary name, synced and renamed. After that it never changes. The manifest lists
every file with its SHA-256, and the database holds the SHA-256 of the manifest. A changed file is therefore always
noticed. Hashing is skipped if `checked.json` shows that the same files (size, times, inode) were hashed before. This is
safe because every write changes the ctime, and no program can set it back.

A reader holds a shared lock on the manifest of its generation. When a newer generation has been published, the last
process that releases the old generation removes its folder.

One process at a time holds the write lock. It consists of a lock on a file, which contains the process number of the
holder, and a lock on the folder. The lock on the folder is needed because the file could be removed while it is locked:
another process would then create and lock a new file. The system releases both locks when the process ends.
"""

import contextlib
import hashlib
import json
import os
import shutil
import stat
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from indexes.checksums import file_sha256
from indexes.errors import Damaged, Locked, Misuse, first_line
from indexes.faiss.vectors import VectorIndex
from indexes.generation import INDEX_FILE, MANIFEST, NUMBERS_FILE, RAW_FILE, Generation, plain_name
from indexes.mapped import MappedFile
from indexes.rows import VECTOR_TYPE
from indexes.sqlite.connections import file_identity

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # on Windows, which does not allow an open file to be removed
    fcntl = None

GENERATIONS = "generations"
CHECKED = "checked.json"
WRITE_LOCK = "writer.lock"
# File systems measure time in steps of some milliseconds. A file that is younger than this might be changed again
# without a change of its ctime.
TOO_YOUNG_NS = 100_000_000
MANIFEST_TYPES = {"files": dict, "count": int, "last_sequence": int, "factory": str, "index_type": str}


def read_generation(number: int, folder: Path, manifest_sha256: str) -> Generation:
    """Read the generation in `folder`. Raise `Damaged` if its manifest does not have the given hash."""
    path = folder / MANIFEST
    repair = f"run: retriever verify --repair --index {_collection(folder)}"
    for own, is_folder in ((folder, True), (path, False)):
        if (reason := path_problem(own, is_folder)) is not None:
            raise Damaged(f"{reason}; {repair}")
    try:
        data = path.read_bytes()
    except OSError:
        raise Damaged(f"{path} is missing; {repair}") from None
    if (sha256 := hashlib.sha256(data).hexdigest()) != manifest_sha256:
        raise Damaged(
            f"{path} was changed: its SHA-256 is {sha256[:12]}, the database says {manifest_sha256[:12]}; {repair}"
        )
    try:
        manifest = json.loads(data)
        valid = all(isinstance(manifest[key], kind) for key, kind in MANIFEST_TYPES.items())
        valid = valid and {INDEX_FILE, NUMBERS_FILE} <= manifest["files"].keys()  # else no hash would be checked
        for name, facts in manifest["files"].items():
            plain_name(name, path)
            valid = valid and isinstance(facts["sha256"], str) and isinstance(facts["bytes"], int)
        valid = valid and {INDEX_FILE, NUMBERS_FILE} <= manifest["files"].keys()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        valid = False
    if not valid:
        raise Damaged(f"{path} is not a valid manifest; {repair}")
    for name in manifest["files"]:
        if (reason := path_problem(folder / name, is_folder=False)) is not None:
            raise Damaged(f"{reason}; {repair}")
    return Generation(number, folder, manifest, manifest_sha256)


def problems(generation: Generation) -> list[str]:
    """List the problems of the files of a generation: missing files, and wrong sizes or hashes."""
    found = []
    for name, expected in generation.manifest["files"].items():
        path = generation.folder / name
        try:
            size = path.stat().st_size
            if size != expected["bytes"]:
                found.append(f"{path} has {size:,} bytes, its manifest says {expected['bytes']:,}")
            elif (sha256 := file_sha256(path)) != expected["sha256"]:
                found.append(
                    f"{path} is damaged or was replaced: its SHA-256 is {sha256[:12]}, its manifest says "
                    f"{expected['sha256'][:12]}"
                )
        except OSError:
            found.append(f"{path} is missing")
    return found


def load_index(generation: Generation) -> VectorIndex:
    """Load the FAISS index of a generation. First check every file that has changed since the last check."""
    collection = _collection(generation.folder)
    state = _state_of(generation)
    if not _was_checked(collection, state):
        if found := problems(generation):
            raise Damaged(f"{found[0]}; run: retriever verify --repair --index {collection}")
        if state is not None:
            _note_checked(collection, state)
    settings = generation.manifest.get("search_settings")
    index = VectorIndex.load(generation.folder / INDEX_FILE, generation.folder / NUMBERS_FILE, settings)
    if len(index) != generation.count:
        raise Damaged(f"{generation.folder} holds {len(index):,} vectors, its manifest says {generation.count:,}.")
    if RAW_FILE in generation.manifest["files"] and len(index):
        index.mapped.append(MappedFile(generation.folder / RAW_FILE))
        raw = np.memmap(generation.folder / RAW_FILE, VECTOR_TYPE, "r")
        if len(raw) % len(index):
            raise Damaged(f"{generation.folder / RAW_FILE} holds {len(raw):,} numbers for {len(index):,} vectors.")
        index.raw = raw.reshape(len(index), -1)
    if _state_of(generation) != state:
        raise Damaged(f"{generation.folder} was changed by another program while it was opened; try again.")
    return index


def _state_of(generation: Generation) -> dict[str, Any] | None:
    """Return a description of the files that changes if a file changes. Return None if a file is missing."""
    files, states = generation.manifest["files"], {}
    try:
        for name in files:
            s = (generation.folder / name).stat()
            states[name] = [files[name]["sha256"], s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev]
    except OSError:
        return None
    return {"folder": str(generation.folder.resolve()), "files": states}


def _was_checked(collection: Path, state: dict[str, Any] | None) -> bool:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return state is not None and bool(json.loads((collection / CHECKED).read_bytes()) == state)
    return False


def _note_checked(collection: Path, state: dict[str, Any]) -> None:
    """Record the state of the files before they were hashed. Do nothing if the record cannot be written."""
    if time.time_ns() - max(own[3] for own in state["files"].values()) < TOO_YOUNG_NS:
        return
    aside = collection / f"{CHECKED}.{os.getpid()}"
    with contextlib.suppress(OSError):
        aside.unlink(missing_ok=True)  # it may be a link to another place if somebody else made the collection
        aside.write_text(json.dumps(state), encoding="utf-8")
        aside.replace(collection / CHECKED)


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Refuse a collection whose files are links or pipes.

    A change of a link could affect files elsewhere. Opening a pipe would never end.
    """
    for name in sorted(names):
        if (reason := path_problem(folder / name, is_folder=None)) is not None:
            raise Damaged(f"{reason}.")


def path_problem(path: Path, is_folder: bool | None) -> str | None:
    """Return why the path is not a regular file or folder inside the collection, or None. A missing file is allowed.

    `is_folder` says which of the two it must be; with None, it may be either.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return f"{path} is a symbolic link; the files of a collection must be in its folder"
    if (stat.S_ISDIR(mode) and is_folder is not False) or (stat.S_ISREG(mode) and is_folder is not True):
        return None
    return f"{path} is not a regular {'folder' if is_folder else 'file'}"


def new_folder(folder: Path) -> None:
    """Create the folder of a collection, if there is none, so that only this user can enter it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def file_mode(folder: Path) -> int:
    """Return the permissions for the files of a collection: whoever may enter and read its folder may read them."""
    return stat.S_IMODE(folder.stat().st_mode) & 0o666


def sync(path: Path) -> None:
    """Write a file or folder from the cache of the system to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _collection(folder: Path) -> Path:
    return folder.parent.parent


class ReadLock:
    """A lock that prevents all processes from removing the files of a generation.

    It is released when the object is garbage-collected.
    """

    def __init__(self, folder: Path) -> None:
        if fcntl is None:
            return
        # If the manifest was removed or is being removed, the lock fails. Loading then fails with a message.
        with contextlib.suppress(OSError):
            descriptor = os.open(folder / MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def remove_superseded(generations: Path, published: int) -> None:
    """Remove the generations before the published one that no reader holds. Ignore errors."""
    try:
        older = [path for path in generations.iterdir() if path.name.isdecimal() and int(path.name) < published]
    except OSError:
        return
    for folder in older:
        if not _is_held(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_held(folder: Path) -> bool:
    if fcntl is None:
        return False
    try:
        descriptor = os.open(folder / MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


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
