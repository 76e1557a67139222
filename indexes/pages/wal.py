"""SQLite's write-ahead log as bytes: which page images it holds, and whether damage has cut committed ones off.

SQLite takes a log up to the first frame whose checksum fails and never mentions the rest: one flipped bit, and every
transaction from there on is gone without a word, and the log deleted when the last connection closes. Here the frames
after it are looked at too. https://www.sqlite.org/fileformat2.html#the_write_ahead_log

Not all that stands there is lost. Whoever is killed between writing a transaction and noting it in the index, while
others have the database open, leaves frames that the next writer overwrites from the first on: what is left of them
breaks the chain of checksums, and was never acknowledged. The index tells (`indexes.pages.wal_index`):

    frame 1 … acknowledged    broken: damage, and refused
    those after               broken: left over, and nothing is said
    no index (power failed,   within the last transaction, or right after one: left over, torn or damaged, nobody knows;
    or it was not copied)     the log is kept, and that is told until it is settled (`indexes.pages.kept_logs`).
                              elsewhere: damage, and refused
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from indexes.errors import Damaged, salvage_advice
from indexes.pages import wal_index
from indexes.pages.wal_checksum import added, checksum, continued
from indexes.pages.wal_index import Noted

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


@dataclass
class Log:
    """The page images of a log by page number, as offsets into its file."""

    page_size: int = 0
    images: dict[int, int] = field(default_factory=dict)
    """The last committed image of each page, of frames whose checksum is right."""
    doubtful: dict[int, int] = field(default_factory=dict)
    """Images newer than those, whose frame or page number is damaged, or which may never have been acknowledged."""
    pages: int = 0
    """How many pages the database has after the last commit; 0 where nothing was committed."""
    sound: int = 0
    """How many frames SQLite takes: up to the last commit before anything is broken."""
    acknowledged: int | None = None
    """How many frames have been acknowledged, where the index tells."""
    broken_at: int | None = None
    """The first frame that SQLite stops at although what was acknowledged, or might have been, stands after it."""
    commits_lost: int = 0
    """How many commits stand from there on; SQLite passes over them."""

    @property
    def damaged(self) -> bool:
        """Whether something that was acknowledged cannot be read."""
        return self.broken_at is not None and (self.acknowledged is not None or not self._ambiguous)

    @property
    def uncertain(self) -> bool:
        """Whether it is broken where that may cost something acknowledged or nothing."""
        return self.broken_at is not None and not self.damaged

    @property
    def _ambiguous(self) -> bool:
        """A power failure tears the last transaction; what was left over begins right behind one."""
        return self.commits_lost == 1 or (self.sound > 0 and self.broken_at == self.sound)


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
    log = read(database)
    for _ in range(LOOKS):
        if log.broken_at is None:
            break
        time.sleep(BETWEEN_LOOKS)
        before, log = log, read(database)
        if log == before:
            return log
    return replace(log, broken_at=None, commits_lost=0)


def checked(database: Path) -> Log:
    """The log of a database that is about to be opened, refused where SQLite would quietly drop what it holds.

    Not looked at where another process has the database open, for that one has: then SQLite goes by its index.
    """
    path = path_of(database)
    try:
        empty = not database.stat().st_size
    except OSError:
        return Log()
    if not empty and _is_open_elsewhere(database):
        return Log()
    log = settled(database)
    if empty and log.pages:
        raise Damaged(f"{database} is empty, but its log {path.name} is not; {salvage_advice(database.parent)}")
    if log.damaged:
        raise Damaged(f"{problem(database, log)}; {salvage_advice(database.parent)}")
    return log


def problem(database: Path, log: Log) -> str:
    """What is wrong with a broken log."""
    assert log.broken_at is not None
    if not log.page_size:
        return f"{path_of(database)} is gone or empty, but some of its {log.acknowledged:,} frames were nowhere else"
    lost = f"{log.commits_lost:,} transaction{'s stand' if log.commits_lost > 1 else ' stands'}"
    wrong = f"{path_of(database)} is damaged: {lost} behind its frame {log.broken_at + 1:,}, whose checksum is wrong"
    if log.acknowledged is None:
        return wrong
    return f"{wrong}; {log.acknowledged:,} frames were acknowledged, {log.sound:,} can be read"


def _is_open_elsewhere(database: Path) -> bool:
    """Whether another process has it open, by the lock that SQLite holds then: it has looked at the log before.

    Asked of the system's list: to open and close the file would undo the locks that this process has on it.
    """
    try:
        status = wal_index.path_of(database).stat()
        locks = LOCKS.read_text()
    except OSError:
        return False
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino} {OPEN_BYTE} "
    held = [line.split() for line in locks.splitlines() if place in line]
    return any("POSIX" in words and str(os.getpid()) not in words for words in held)


def read(database: Path) -> Log:
    """What the log of a database holds; nothing where there is none."""
    noted = wal_index.noted(database)  # first: the log has what the index says, unless it begins anew meanwhile
    log = read_file(path_of(database), noted)
    if not log.page_size and noted and all(one.frames > one.copied for one in noted):
        return replace(log, acknowledged=noted[0].frames, broken_at=0, commits_lost=1)
    return log


def read_file(path: Path, noted: list[Noted]) -> Log:
    """The same of any copy of a log, with what is noted of it."""
    try:
        if not path.is_file():
            return Log()
        with path.open("rb") as file:
            return _read(file, noted)
    except OSError:
        return Log()


def _read(file: BinaryIO, noted: list[Noted]) -> Log:
    header = file.read(HEADER)
    if len(header) < HEADER:
        return Log()
    words = [int.from_bytes(header[i : i + 4], "big") for i in range(0, HEADER, 4)]
    stored, salts = (words[6], words[7]), (words[4], words[5])
    big = bool(words[0] & 1)
    sound = words[0] & ~1 == MAGIC and checksum(header[:24], big) == stored
    page_size = words[2] if words[2] in PAGE_SIZES else PAGE_SIZES[0]
    if not sound:
        big = big if words[0] & ~1 == MAGIC else False
        salts = _commonest_salts(file, page_size)
    log = Log(page_size)
    # Of two copies that differ, the process died before it could acknowledge the newer one.
    log.acknowledged = min((one.frames for one in noted if one.salts == salts), default=None)
    if not sound and noted and not any(one.frames for one in noted):
        log.acknowledged = 0  # it was to begin anew: all that stands here is in the database
    _take(log, _frames(file, page_size, big), salts, stored, whole=sound)
    return log


def _take(log: Log, frames: Iterator[_Frame], salts: tuple[int, int], last: tuple[int, int], *, whole: bool) -> None:
    """Follow the chain of checksums; after a break, every frame that goes on from the one before counts again."""
    uncommitted: dict[int, tuple[int, bool]] = {}
    computed = last
    broken_at = None if whole else 0
    before_break, pages_before = dict[int, int](), 0
    belongs = True
    for number, frame in enumerate(frames):
        seeds = {last, computed}
        results = {continued(seed, frame.added, log.page_size) for seed in seeds}
        chained = frame.stored in results
        belongs = frame.salts == salts or (chained and belongs)
        if broken_at is None and (frame.salts != salts or not chained):
            broken_at, before_break, pages_before = number, dict(log.images), log.pages
        if broken_at is not None and log.acknowledged is not None and number >= log.acknowledged:
            break  # from here on, all is left over
        if not belongs:
            last = computed = frame.stored
            continue  # of an older log, unless a commit of this one is still to come
        computed = continued(last, frame.added, log.page_size)
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
            if broken_at is None:
                log.sound = number + 1
            else:
                log.broken_at = broken_at
                log.commits_lost += 1
    if log.acknowledged is not None and log.sound < log.acknowledged:
        log.broken_at = log.sound if broken_at is None else broken_at
        log.commits_lost = max(log.commits_lost, 1)
    if log.uncertain:
        newer = {page: offset for page, offset in log.images.items() if before_break.get(page) != offset}
        log.doubtful |= {page: max(offset, log.doubtful.get(page, 0)) for page, offset in newer.items()}
        log.images, log.pages = before_break, max(log.pages, pages_before)


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
        sums = added(summed.view(">u4" if big else "<u4").astype(np.uint32)).tolist()
        for head, own in zip(heads, sums, strict=True):
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
