"""The user's cache folder, and the SHA-256 of large files that are read again and again.

What lies in the cache can be deleted at any time: it is made again when it is needed.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path

from indexes.checksums import file_sha256
from retriever.files import atomic_write

# Hashing less than this costs no more than looking a hash up.
SMALL = 1 << 20


def cache_folder() -> Path:
    """Where this project keeps what it can make again; XDG_CACHE_HOME is honoured."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flow-retriever"


def cached_sha256(path: Path) -> str:
    """The SHA-256 of a file, computed again only when the file has changed since it was.

    Size, times and inode tell: whatever writes to a file changes its ctime, which no program can set.
    """
    status = path.stat()
    if status.st_size < SMALL:
        return file_sha256(path)
    known = [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    place = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]
    note = cache_folder() / "hashes" / f"{place}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(note.read_bytes())
        if found["file"] == known and len(found["sha256"]) == 64:
            return str(found["sha256"])
    sha256 = file_sha256(path)
    with contextlib.suppress(OSError):  # a home that cannot be written costs time and nothing else
        note.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(note) as aside:
            aside.write_text(json.dumps({"file": known, "sha256": sha256}), encoding="utf-8")
    return sha256
