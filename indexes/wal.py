"""SQLite's write-ahead log as bytes: which page images it holds, and whether damage has cut committed ones off.

SQLite takes a log up to the first frame whose checksum fails and never mentions the rest: one flipped bit, and every
transaction from there on is gone without a word, and the log deleted when the last connection closes. Here the frames
after it are looked at too. https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

import contextlib
import os
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from indexes.errors import Damaged, salvage_advice

HEADER = 32
FRAME_HEADER = 24
OPEN_BYTE = 128  # of the -shm file; whoever has the database open shares a lock on it
LOCKS = Path("/proc/locks")
MAGIC = 0x377F0682  # its last bit says that checksums are of big-endian words
READ_TOGETHER = 512
PAGE_SIZES = (4096, 512, 1024, 2048, 8192, 16384, 32768, 65536)
# A log that is being written while it is read may look broken once, but not twice in the same way.
LOOKS = 4
BETWEEN_LOOKS = 0.05

Words = NDArray[np.uint32]


@dataclass
class Log:
    """The page images of a log by page number, as offsets into its file."""

    page_size: int = 0
    images: dict[int, int] = field(default_factory=dict)
    """The last committed image of each page, of frames whose checksum is right."""
    doubtful: dict[int, int] = field(default_factory=dict)
    """Images newer than those, whose frame or page number is damaged."""
    pages: int = 0
    """How many pages the database has after the last commit; 0 where nothing was committed."""
    broken_at: int | None = None
    """The first frame that SQLite stops at although a commit stands after it."""
    commits_lost: int = 0
    """How many commits stand from there on; SQLite passes over them."""

    @property
    def torn(self) -> bool:
        """Whether only the last commit is broken, which a power failure may have done before it was acknowledged."""
        return self.commits_lost == 1


@dataclass(frozen=True)
class _Frame:
    offset: int
    page: int
    pages_after: int
    salts: tuple[int, int]
    stored: tuple[int, int]
    added: tuple[int, int]
    """What its bytes add to the checksum."""


def path_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def settled(database: Path) -> Log:
    """The log beside a database, looked at until another process's writing cannot be taken for damage."""
    log = read(path_of(database))
    for _ in range(LOOKS):
        if log.broken_at is None:
            break
        time.sleep(BETWEEN_LOOKS)
        before, log = log, read(path_of(database))
        if log == before:
            return log
    return replace(log, broken_at=None, commits_lost=0)


def refuse_broken(database: Path) -> None:
    """Refuse a database whose log SQLite would quietly drop, in part or whole, and then delete.

    If only the last commit is broken, power may have failed before it was acknowledged: that is no reason to refuse
    the rest. The log is copied to the quarantine all the same, and `verify` tells.
    """
    path = path_of(database)
    try:
        if not path.stat().st_size:
            return
        empty = not database.stat().st_size
    except OSError:
        return
    if not empty and _is_open_elsewhere(database):
        return
    log = settled(database)
    if empty and log.pages:
        raise Damaged(f"{database} is empty, but its log {path.name} is not; {salvage_advice(database.parent)}")
    if log.broken_at is None:
        return
    if not log.torn:
        raise Damaged(
            f"{path} is damaged: {log.commits_lost:,} transactions stand behind its frame {log.broken_at + 1:,}, "
            f"whose checksum is wrong; {salvage_advice(database.parent)}"
        )
    with contextlib.suppress(OSError):
        data = path.read_bytes()
        kept = database.parent / "quarantine" / f"log-{zlib.crc32(data):08x}"
        kept.mkdir(parents=True, exist_ok=True)
        (kept / path.name).write_bytes(data)


def _is_open_elsewhere(database: Path) -> bool:
    """Whether another process has it open, by the lock that SQLite holds then: it has looked at the log before.

    Asked of the system's list: to open and close the file would undo the locks that this process has on it.
    """
    try:
        status = database.with_name(f"{database.name}-shm").stat()
        locks = LOCKS.read_text()
    except OSError:
        return False
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino} {OPEN_BYTE} "
    held = [line.split() for line in locks.splitlines() if place in line]
    return any("POSIX" in words and str(os.getpid()) not in words for words in held)


def read(path: Path) -> Log:
    """What the log holds; nothing where there is none."""
    try:
        with path.open("rb") as file:
            return _read(file)
    except OSError:
        return Log()


def _read(file: BinaryIO) -> Log:
    header = file.read(HEADER)
    if len(header) < HEADER:
        return Log()
    words = [int.from_bytes(header[i : i + 4], "big") for i in range(0, HEADER, 4)]
    stored, salts = (words[6], words[7]), (words[4], words[5])
    big = bool(words[0] & 1)
    sound = words[0] & ~1 == MAGIC and _checksum(header[:24], big) == stored
    page_size = words[2] if words[2] in PAGE_SIZES else PAGE_SIZES[0]
    if not sound:
        big = big if words[0] & ~1 == MAGIC else False
        salts = _commonest_salts(file, page_size)
    log = Log(page_size)
    _take(log, _frames(file, page_size, big), salts, stored, whole=sound)
    return log


def _take(log: Log, frames: Iterator[_Frame], salts: tuple[int, int], last: tuple[int, int], *, whole: bool) -> None:
    """Follow the chain of checksums; after a break, every frame that goes on from the one before counts again."""
    uncommitted: dict[int, tuple[int, bool]] = {}
    computed = last
    broken_at = None if whole else 0
    belongs = True
    for number, frame in enumerate(frames):
        seeds = {last, computed}
        results = {_continued(seed, frame.added, log.page_size) for seed in seeds}
        chained = frame.stored in results
        belongs = frame.salts == salts or (chained and belongs)
        if not belongs:
            broken_at = number if broken_at is None else broken_at
            last = computed = frame.stored
            continue  # of an older log, unless a commit of this one is still to come
        if broken_at is None and (frame.salts != salts or not chained):
            broken_at = number
        computed = _continued(last, frame.added, log.page_size)
        last = frame.stored
        if frame.page:
            uncommitted[frame.page] = (frame.offset, chained)
        if frame.pages_after:
            for page, (offset, certain) in uncommitted.items():
                if certain:
                    log.images[page] = offset
                    log.doubtful.pop(page, None)
                else:
                    log.doubtful[page] = offset
            uncommitted.clear()
            if chained:
                log.pages = frame.pages_after
            if broken_at is not None:
                log.broken_at = broken_at
                log.commits_lost += 1


def _frames(file: BinaryIO, page_size: int, big: bool) -> Iterator[_Frame]:
    size = FRAME_HEADER + page_size
    file.seek(HEADER)
    offset = HEADER
    while data := file.read(size * READ_TOGETHER):
        count = len(data) // size
        if not count:
            return
        rows = np.frombuffer(data, np.uint8, count * size).reshape(count, size)
        heads = np.ascontiguousarray(rows[:, :FRAME_HEADER]).view(">u4").astype(np.int64).tolist()
        summed = np.concatenate([rows[:, :8], rows[:, FRAME_HEADER:]], axis=1)
        added = _added(summed.view(">u4" if big else "<u4").astype(np.uint32)).tolist()
        for head, own in zip(heads, added, strict=True):
            yield _Frame(
                offset + FRAME_HEADER, head[0], head[1], (head[2], head[3]), (head[4], head[5]), (own[0], own[1])
            )
            offset += size


def _commonest_salts(file: BinaryIO, page_size: int) -> tuple[int, int]:
    """Those of most frames, where the header that should tell them is damaged."""
    counted: Counter[tuple[int, int]] = Counter()
    offset = HEADER
    while True:
        file.seek(offset)
        head = file.read(FRAME_HEADER)
        if len(head) < FRAME_HEADER:
            break
        counted[(int.from_bytes(head[8:12], "big"), int.from_bytes(head[12:16], "big"))] += 1
        offset += FRAME_HEADER + page_size
    return counted.most_common(1)[0][0] if counted else (0, 0)


# ---- the checksum ----------------------------------------------------------------------------------------
# For each pair of words x, y: a += x + b; b += y + a. That is linear, so that what a whole frame adds is one product
# with weights that depend on its length alone, and a frame goes on from any seed without being read again.


def _checksum(data: bytes, big: bool) -> tuple[int, int]:
    words = np.frombuffer(data, ">u4" if big else "<u4").astype(np.uint32)
    added = _added(words[None, :])[0]
    return int(added[0]), int(added[1])


def _continued(seed: tuple[int, int], added: tuple[int, int], page_size: int) -> tuple[int, int]:
    (p, q), (r, s) = _power((8 + page_size) // 8)
    a, b = seed
    return (p * a + q * b + added[0]) & 0xFFFFFFFF, (r * a + s * b + added[1]) & 0xFFFFFFFF


def _added(words: Words) -> Words:
    """What each row of words adds to a checksum of zero."""
    first, second = words[:, 0::2], words[:, 1::2]
    weights = _weights(first.shape[1])
    sums = [(first * weights[0, row] + second * weights[1, row]).sum(axis=1, dtype=np.uint32) for row in (0, 1)]
    return np.stack(sums, axis=1)


@cache
def _power(pairs: int) -> tuple[tuple[int, int], tuple[int, int]]:
    p, q, r, s = 1, 0, 0, 1
    for _ in range(pairs):
        p, q, r, s = p + q, p + 2 * q, r + s, r + 2 * s
    mask = 0xFFFFFFFF
    return (p & mask, q & mask), (r & mask, s & mask)


@cache
def _weights(pairs: int) -> Words:
    """[word of the pair, part of the checksum, pair] → weight."""
    weights = np.zeros((2, 2, pairs), np.uint64)
    a, b, c, d = 1, 0, 1, 1  # what x and y of the last pair add: (x, x + y)
    for pair in range(pairs - 1, -1, -1):
        weights[:, :, pair] = [[a, c], [b, d]]
        a, b, c, d = (v & 0xFFFFFFFF for v in (a + c, b + d, a + 2 * c, b + 2 * d))
    return weights.astype(np.uint32)
