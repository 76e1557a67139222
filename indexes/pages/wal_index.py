"""How many frames of the write-ahead log have been acknowledged, by its index, the -shm file.

SQLite writes frames to the log, syncs it, and only then notes them in the index, so that frames beyond the note belong
to a transaction whose writer was killed or told of a failure, or are left over from one. The index outlives a process
that is killed; the next one to open the database empties it, so that it must be read before.
https://www.sqlite.org/walformat.html#the_wal_index_file_format
"""

import contextlib
import os
import stat
import struct
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from indexes.pages.wal_checksum import checksum

VERSION = 3_007_000
HEADER = struct.Struct("=IIIBBHII8s8s8s")  # as in memory, salts and checksums as bytes
SUMMED = HEADER.size - 8
COPIES = 2
BACKFILLED = struct.Struct("=I")
OWN_DESCRIPTORS = Path("/dev/fd")

opening = threading.RLock()
"""Held while a connection is made, and while the index is read: closing it drops the locks a connection has on it."""


@dataclass(frozen=True)
class Noted:
    """What one of the two copies of the header says."""

    salts: tuple[int, int]
    """Those of the log that it is about."""
    frames: int
    """How many frames of that log are committed and synced."""
    copied: int
    """How many of them are in the database as well."""


def path_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-shm")


def noted(database: Path) -> list[Noted]:
    """The sound copies of the header; none where there is no index, or not a whole one."""
    data = _beginning(path_of(database), COPIES * HEADER.size + BACKFILLED.size)
    if len(data) < COPIES * HEADER.size + BACKFILLED.size:
        return []
    (copied,) = BACKFILLED.unpack_from(data, COPIES * HEADER.size)
    found = []
    for start in range(0, COPIES * HEADER.size, HEADER.size):
        version, _, _, ready, _, _, frames, _, _, salts, stored = HEADER.unpack_from(data, start)
        words = checksum(data[start : start + SUMMED], sys.byteorder == "big")
        if version == VERSION and ready == 1 and struct.pack("=II", *words) == stored:
            found.append(Noted((int.from_bytes(salts[:4], "big"), int.from_bytes(salts[4:], "big")), frames, copied))
    return found


def _beginning(path: Path, size: int) -> bytes:
    """The first bytes of a file on which connections of this process may have locks.

    A process loses its locks on a file when it closes any descriptor of it. So where it has one, that is read from.
    """
    with opening:
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                return b""
            own = _own_descriptor(status) if os.name == "posix" else None
            if own is not None:
                return os.pread(own, size, 0)
            with path.open("rb") as file:
                return file.read(size)
        except OSError:
            return b""


def _own_descriptor(status: os.stat_result) -> int | None:
    for path in list(OWN_DESCRIPTORS.iterdir()):
        with contextlib.suppress(OSError):  # that of the list itself is closed
            if os.path.samestat(os.fstat(int(path.name)), status):
                return int(path.name)
    return None


if hasattr(os, "register_at_fork"):
    # A child must not inherit it from a thread that it does not have.
    os.register_at_fork(before=opening.acquire, after_in_parent=opening.release, after_in_child=opening.release)
