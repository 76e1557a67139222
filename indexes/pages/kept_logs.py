"""Copies of write-ahead logs that broke off where nobody can tell whether something acknowledged was lost.

Before such a collection is opened, and SQLite drops what it passes over, its log is copied to `quarantine/log-…`. Every
opening warns of it, `info` and `verify` list it, until `verify --repair` settles it by moving it on.
"""

import os
import shutil
import stat
import warnings
import zlib
from pathlib import Path

from indexes.errors import Damaged, DamageWarning, first_line
from indexes.folder.generation import sync
from indexes.pages import wal

QUARANTINE = "quarantine"
BEGINNING = "log-"


def look_before_opening(database: Path) -> None:
    """Refuse a database with a damaged log, and keep a copy of one that is broken but perhaps harmlessly so."""
    if not wal.checked(database).uncertain:
        return
    if not os.access(database.parent, os.W_OK):  # then SQLite can drop nothing either
        warnings.warn(f"{wal.path_of(database)} {_story(database.parent)}", DamageWarning, stacklevel=2)
        return
    try:
        _keep(wal.path_of(database), database.parent / QUARANTINE)
    except OSError as error:
        raise Damaged(
            f"{wal.path_of(database)} breaks off, and no copy of it can be kept before it is opened: "
            f"{first_line(error)}; make room in {database.parent}, or copy the folder elsewhere, then try again."
        ) from error


def _keep(path: Path, quarantine: Path) -> None:
    data = path.read_bytes()
    kept = quarantine / f"{BEGINNING}{zlib.crc32(data):08x}"
    if kept.exists():
        return
    quarantine.mkdir(exist_ok=True)
    aside = quarantine / f"{kept.name}.{os.getpid()}.part"
    aside.unlink(missing_ok=True)
    aside.write_bytes(data)
    sync(aside)
    aside.rename(kept)
    sync(quarantine)
    sync(quarantine.parent)


def kept(folder: Path) -> list[Path]:
    """The copies in the collection that were not settled yet."""
    found = (folder / QUARANTINE).glob(f"{BEGINNING}*")
    return sorted(path for path in found if path.suffix != ".part" and stat.S_ISREG(path.lstat().st_mode))


def warn_of_kept(folder: Path) -> None:
    for path in kept(folder):
        warnings.warn(f"{path} {_story(folder)}", DamageWarning, stacklevel=2)


def problem(path: Path) -> str:
    """What is known of a copy."""
    log = wal.read_file(path, [])
    lost = "the last transaction is lost" if log.commits_lost == 1 else f"{log.commits_lost:,} transactions are lost"
    return (
        f"{path}, a copy of the log: the checksum of its frame {(log.broken_at or 0) + 1:,} is wrong, and {lost}, "
        "or was never acknowledged, perhaps because power failed as it was written"
    )


def settle(folder: Path, stamp: str) -> Path:
    """Move the copies on, so that they are no longer told of."""
    target = folder / QUARANTINE / stamp
    target.mkdir(parents=True, exist_ok=True)
    for path in kept(folder):
        shutil.move(path, target / path.name)
    return target


def _story(folder: Path) -> str:
    return (
        "breaks off in a transaction or right after one, as it does when power fails, when it is damaged, or when it "
        "is copied without the -shm file: what was stored last may be lost. Index its source again to have it; "
        f"retriever verify --repair --index {folder} settles this."
    )
