"""Reads SQLite's write-ahead log as bytes, including committed frames after a damaged frame.

SQLite reads a log up to the first frame with a wrong checksum and ignores the rest without an error. One flipped bit
can therefore lose every later transaction. `verify` and `salvage` also read the frames after the damaged frame. They
must do so before SQLite opens the database, because opening it rebuilds the index of the log (the -shm file), and
closing it deletes the log. The format is described at https://www.sqlite.org/walformat.html.

A break in the chain of checksums is not always damage. If a writer is killed before it records its transaction in the
index, it leaves frames that were never acknowledged, and the next writer overwrites only the first of them. The index
contains the number of acknowledged frames. Without the index, a break within the last transaction or right after a
commit may be damage or an interrupted write (`Log.certain`).
"""

import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

HEADER = 32
FRAME_HEADER = 24
MAGIC = 0x377F0682  # if the last bit is set, checksums are computed from big-endian words
PAGE_SIZES = (4096, 512, 1024, 2048, 8192, 16384, 32768, 65536)
# A log that is being written may look broken, but two reads then differ.
READS = 4
SECONDS_BETWEEN_READS = 0.05
INDEX_VERSION = 3_007_000
INDEX_HEADER = struct.Struct("=IIIBBHII8s8s8s")  # in native byte order; salts and checksums as bytes
INDEX_BYTES = 2 * INDEX_HEADER.size + 4  # two copies of the header, and the number of frames in the database

Sum = tuple[int, int]


@dataclass
class Log:
    """The page images in a log. An image is given by its offset in the file, under its page number."""

    page_size: int = 0
    images: dict[int, int] = field(default_factory=dict)
    """The last committed image of each page, from frames with a correct checksum."""
    doubtful: dict[int, int] = field(default_factory=dict)
    """Newer images of pages that are damaged, or that may never have been acknowledged."""
    pages: int = 0
    """The number of pages of the database after the last commit; 0 if the log holds no commit."""
    sound: int = 0
    """The number of frames that SQLite reads: all frames up to the last commit before the first break."""
    acknowledged: int | None = None
    """The number of acknowledged frames, or None if there is no index."""
    broken_at: int | None = None
    """The position of the first damaged frame that is followed by a commit, or None."""
    commits_lost: int = 0
    """The number of commits from that frame on."""

    @property
    def certain(self) -> bool:
        """True if a break means that acknowledged transactions are lost. False if it may be an interrupted write."""
        torn = self.commits_lost == 1 or (self.sound > 0 and self.broken_at == self.sound)
        return self.acknowledged is not None or not torn


class _IndexHeader(NamedTuple):
    """One of the two copies of the header of the index."""

    salts: Sum
    frames: int
    in_database: int


class _Frame(NamedTuple):
    offset: int
    page: int
    pages_after: int
    salts: Sum
    stored: Sum
    summed: bytes
    """The bytes that the stored checksum covers, in addition to everything before the frame."""


def path_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def read(database: Path, *, with_index: bool = True) -> Log:
    """Read the log of a database. If the log is broken, read it again, because a process may be writing to it.

    Pass `with_index=False` if this process has the database open. Reading the index would release the locks of SQLite
    on it, and the index would only repeat what SQLite has read.
    """
    log = _read(database, with_index)
    for _ in range(READS):
        if log.broken_at is None:
            return log
        time.sleep(SECONDS_BETWEEN_READS)
        before, log = log, _read(database, with_index)
        if log == before:
            return log
    return replace(log, broken_at=None, commits_lost=0)


def problem(database: Path, *, with_index: bool = True) -> str:
    """Describe which transactions of a damaged log are lost. Return an empty string if none are lost."""
    log, path = read(database, with_index=with_index), path_of(database)
    if log.broken_at is None or not (log.certain or with_index):
        return ""
    if not log.page_size:
        return f"{path} is missing or empty, but some of its {log.acknowledged:,} frames were not in the database yet"
    lost = f"{log.commits_lost:,} transaction{'s' if log.commits_lost > 1 else ''}"
    wrong = f"{path} is damaged: the checksum of frame {log.broken_at + 1:,} is wrong, and SQLite ignores {lost}"
    if log.acknowledged is not None:
        return f"{wrong}; {log.acknowledged:,} frames were acknowledged, but only {log.sound:,} can be read"
    return f"{wrong} from there on" + ("" if log.certain else ", which an interrupted write may explain")


def _read(database: Path, with_index: bool) -> Log:
    index_headers = _index_headers(database) if with_index else []  # read first: the log has at least as many frames
    try:
        with path_of(database).open("rb") as file:
            log = _parse(file, index_headers)
    except OSError:
        log = Log()
    if not log.page_size and index_headers and all(one.frames > one.in_database for one in index_headers):
        return replace(log, acknowledged=index_headers[0].frames, broken_at=0, commits_lost=1)
    return log


def _index_headers(database: Path) -> list[_IndexHeader]:
    """Read those copies of the header of the index that are intact."""
    try:
        with database.with_name(f"{database.name}-shm").open("rb") as file:
            data = file.read(INDEX_BYTES)
    except OSError:
        return []
    found = []
    for start in (0, INDEX_HEADER.size) if len(data) == INDEX_BYTES else ():
        version, _, _, ready, _, _, frames, _, _, salts, stored = INDEX_HEADER.unpack_from(data, start)
        expected = _checksum(data[start : start + INDEX_HEADER.size - 8], big=sys.byteorder == "big")
        if version == INDEX_VERSION and ready == 1 and struct.pack("=II", *expected) == stored:
            first, second = struct.unpack(">II", salts)
            found.append(_IndexHeader((first, second), frames, int.from_bytes(data[-4:], sys.byteorder)))
    return found


def _parse(file: BinaryIO, index_headers: list[_IndexHeader]) -> Log:
    header = file.read(HEADER)
    if len(header) < HEADER:
        return Log()
    magic, _, page_size, _, *salts, a, b = struct.unpack(">8I", header)
    big = magic == MAGIC | 1
    intact = magic & ~1 == MAGIC and _checksum(header[:24], big) == (a, b)
    log = Log(page_size if page_size in PAGE_SIZES else PAGE_SIZES[0])
    if not intact:  # the frames contain the salts, too
        salts = list(struct.unpack(">II", file.read(16)[8:].ljust(8, b"\0")))
    # If the copies differ, the process died before it could acknowledge the newer one.
    log.acknowledged = min((one.frames for one in index_headers if list(one.salts) == salts), default=None)
    if not intact and index_headers and not any(one.frames for one in index_headers):
        log.acknowledged = 0  # the log was about to be reset: the database has all pages
    _follow(log, _frames(file, log.page_size), (salts[0], salts[1]), (a, b), big, broken_at=None if intact else 0)
    return log


def _follow(log: Log, frames: Iterator[_Frame], salts: Sum, last: Sum, big: bool, broken_at: int | None) -> None:
    """Follow the chain of checksums and fill the log.

    After a break, a frame counts as intact again if its checksum continues that of the frame before it.
    """
    transaction: dict[int, tuple[int, bool]] = {}
    computed, belongs = last, True
    images_before, pages_before = dict[int, int](), 0
    for number, frame in enumerate(frames):
        sums = {seed: _checksum(frame.summed, big, seed) for seed in {last, computed}}
        chained = frame.stored in sums.values()
        belongs = frame.salts == salts or (chained and belongs)
        if broken_at is None and (frame.salts != salts or not chained):
            broken_at, images_before, pages_before = number, dict(log.images), log.pages
        if broken_at is not None and log.acknowledged is not None and number >= log.acknowledged:
            break  # the remaining frames were never acknowledged
        computed, last = sums[last] if belongs else frame.stored, frame.stored
        if not belongs:
            continue  # a frame of an older log
        transaction[frame.page] = (frame.offset, chained)
        if not frame.pages_after:
            continue
        for page, (offset, intact) in transaction.items():
            (log.images if intact else log.doubtful)[page] = offset
            if intact:
                log.doubtful.pop(page, None)
        transaction.clear()
        log.pages = frame.pages_after if chained else log.pages
        if broken_at is None:
            log.sound = number + 1
        else:
            log.broken_at, log.commits_lost = broken_at, log.commits_lost + 1
    if log.acknowledged is not None and log.sound < log.acknowledged:
        log.broken_at, log.commits_lost = broken_at or log.sound, max(log.commits_lost, 1)
    if log.broken_at is not None and not log.certain:
        newer = {page: offset for page, offset in log.images.items() if images_before.get(page) != offset}
        log.doubtful |= {page: max(offset, log.doubtful.get(page, 0)) for page, offset in newer.items()}
        log.images, log.pages = images_before, max(log.pages, pages_before)


def _frames(file: BinaryIO, page_size: int) -> Iterator[_Frame]:
    file.seek(HEADER)
    while len(head := file.read(FRAME_HEADER)) == FRAME_HEADER:
        offset, image = file.tell(), file.read(page_size)
        if len(image) < page_size:
            return
        page, after, salt, other_salt, a, b = struct.unpack(">6I", head)
        yield _Frame(offset, page, after, (salt, other_salt), (a, b), head[:8] + image)


def _checksum(data: bytes, big: bool, seed: Sum = (0, 0)) -> Sum:
    """Compute the checksum of bytes that follow the bytes with the checksum `seed`."""
    a, b = seed
    for first, second in struct.iter_unpack(">II" if big else "<II", data):
        a = (a + first + b) & 0xFFFFFFFF
        b = (b + second + a) & 0xFFFFFFFF
    return a, b
