"""Helpers for files and folders: atomic writes, the user's cache folder, cached checksums, folders by name.

Everything in the cache folder can be deleted at any time. What is missing is rebuilt when it is needed.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from indexes.checksums import file_sha256
from indexes.folder.generation import new_folder, sync
from retriever.errors import Misuse

# Hashing a smaller file costs no more than looking up its hash.
SMALLEST_CACHED = 1 << 20


@contextlib.contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """Yield a temporary path to write a file or folder to. Rename it to `target` only if the block succeeds.

    Everything is synced to disk before the rename. After a power failure, `target` is therefore either complete or
    does not exist. An empty folder at `target` is replaced.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield temporary
        sync_all(temporary)
        if target.is_dir():
            target.rmdir()  # fails if the folder is not empty, so nothing is ever lost
        temporary.replace(target)
        sync(target.parent)
    except OSError as error:
        if error.filename is not None and Path(error.filename) == temporary:
            error.filename = str(target)  # the caller does not know the temporary path
        raise
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        else:
            temporary.unlink(missing_ok=True)


def sync_all(path: Path) -> None:
    for parent, _, names in os.walk(path, topdown=False):
        for name in names:
            sync(Path(parent, name))
        sync(Path(parent))
    if path.is_file():
        sync(path)


def keep_torch_files() -> None:
    """Let torch keep its files in our cache folder. Its compiler makes a folder when it is imported, even if unused.

    Without this, the folder is in the system's temporary folder.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "torch"))


def cache_folder() -> Path:
    """Return the cache folder of this package: a subfolder of XDG_CACHE_HOME, or of ~/.cache if that is not set.

    Other users may not enter it, because maps and vectors reveal something about the texts.
    """
    folder = user_folder("XDG_CACHE_HOME", ".cache") / "flow-retriever"
    if not folder.is_dir():
        with contextlib.suppress(OSError):  # whoever writes to it will say so
            new_folder(folder)
    return folder


def user_folder(variable: str, default: str) -> Path:
    """Return a folder of the user that an environment variable names, or else a subfolder of the home folder.

    A relative path in the variable is ignored, as the XDG specification says. It would mean another folder in every
    working directory.
    """
    given = Path(os.environ.get(variable, ""))
    if given.is_absolute():
        return given
    try:
        return Path.home() / default
    except RuntimeError:
        raise Misuse(
            f"this user has no home folder: set the environment variable HOME or {variable} to an absolute path."
        ) from None


def cached_sha256(path: Path) -> str:
    """Return the SHA-256 of a file. A large file is read again only if its size, times or inode have changed.

    The times are a safe sign of a change: every write to a file updates its ctime, and no program can set the ctime.
    """
    status = path.stat()
    if status.st_size < SMALLEST_CACHED:
        return file_sha256(path)
    known = [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    key = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]
    entry = cache_folder() / "hashes" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(entry.read_bytes())
        if found["file"] == known and len(found["sha256"]) == 64:
            return str(found["sha256"])
    sha256 = file_sha256(path)
    # If the cache folder cannot be written, the file is hashed again next time.
    with contextlib.suppress(OSError), atomic_write(entry) as temporary:
        temporary.write_text(json.dumps({"file": known, "sha256": sha256}), encoding="utf-8")
    return sha256


def folders_by_name(folders: Iterable[Path]) -> dict[str, Path]:
    """Map the name of each folder to the folder. Raise `Misuse` if two folders have the same name."""
    named: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if name in named:
            raise Misuse(
                f"{named[name]} and {folder} would both be called {name!r}, because a collection is named after its "
                "folder; rename one of them, or serve it from another server."
            )
        named[name] = folder
    return named
