"""How a database is opened where this user may write, and where not, whoever else may be writing there.

SQLite reads a database with a log only if the log's index is there or can be made. Where it can not, the database is
read as one that nobody changes (`immutable`), and looked at again and again whether that is still so (`State`).
"""

import os
import sqlite3
from pathlib import Path

from indexes.errors import Damaged, NotReadable, salvage_advice

TRIES = 10

State = tuple[tuple[int, int, int, int] | None, ...]
"""Of the database and its log: device, inode, size and time of change."""


def may_write(path: Path) -> bool:
    """Whether this user may write to the folder of the database, or make it."""
    return not path.exists() or os.access(path.parent, os.W_OK)


def connect(path: Path) -> tuple[sqlite3.Connection, State | None]:
    """A connection, and where it takes the database for one that nobody changes, what it looked like before."""
    if may_write(path):
        return sqlite3.connect(path, timeout=60, check_same_thread=False), None
    for attempt in range(TRIES):
        before = state_of(path)
        live = _beside(path, "wal").exists() and _beside(path, "shm").exists()
        try:
            if live:
                return _read_only(path, "mode=ro"), None
            if before[1] and before[1][2]:
                raise NotReadable(
                    f"{path.parent} cannot be read where it cannot be written: a process that was killed has left "
                    f"{path.name}-wal, and {path.name}-shm is not beside it. Open it once as a "
                    "user who may write there, or copy the folder."
                )
            return _read_only(path, "mode=ro&immutable=1"), before
        except (sqlite3.OperationalError, NotReadable):
            if attempt == TRIES - 1 or state_of(path) == before:  # else who was writing has just begun, or ended
                raise
    raise AssertionError("unreachable")


def refuse_empty_with_log(path: Path) -> None:
    """Refuse an empty database beside a log: SQLite would delete the log."""
    database, log = state_of(path)
    if database and not database[2] and log and log[2]:
        raise Damaged(f"{path} is empty, but its log {path.name}-wal is not; {salvage_advice(path.parent)}")


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}-{ending}")


def _read_only(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, timeout=60, check_same_thread=False)
    try:
        connection.execute("PRAGMA schema_version").fetchone()  # only now the files are opened
    except BaseException:
        connection.close()
        raise
    return connection


def state_of(path: Path) -> State:
    return tuple(_stat(file) for file in (path, _beside(path, "wal")))


def _stat(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
