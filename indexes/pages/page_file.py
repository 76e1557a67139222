"""Reads the pages of an SQLite file as bytes, even if its header, schema and trees are damaged.

The last committed version of a page in the write-ahead log (its image) replaces the page of the file. Nothing is ever
written. The pages are assumed to have no reserved bytes, which is the default of SQLite. The file format is described
at https://www.sqlite.org/fileformat2.html.
"""

import contextlib
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from indexes.pages import wal
from indexes.pages.wal import PAGE_SIZES, Log

MAGIC = b"SQLite format 3\0"
FREELIST = 32
TABLE_INTERIOR, INDEX_INTERIOR = 0x05, 0x02
SAMPLED = 400


@dataclass(frozen=True, slots=True)
class Page:
    """One image of a page. `doubtful` is True if the image is from a damaged frame of the log."""

    number: int
    data: bytes
    doubtful: bool = False

    @property
    def header(self) -> int:
        """The offset of the tree header. On the first page, the header of the file comes first."""
        return 100 if self.number == 1 else 0


class Pages:
    """The pages of one database and its log, open for reading."""

    def __init__(self, database: Path) -> None:
        self._files: dict[str, BinaryIO] = {}
        for name, path in (("main", database), ("log", wal.path_of(database))):
            with contextlib.suppress(OSError):
                self._files[name] = path.open("rb")
        self.log: Log = wal.read(database)
        self.unreadable: list[int] = []
        """The numbers of the pages that the disk cannot read."""
        self.length = self._files["main"].seek(0, 2) if "main" in self._files else 0
        self.header_lost = self._bytes("main", 0, 16) != MAGIC
        self.size = self._page_size()
        self.free, self.freelist_lost = self._freelist()

    def __len__(self) -> int:
        """Return the number of pages after the last commit in the log or, without a commit, in the file."""
        in_file = -(-self.length // self.size)
        return max(self.log.pages, max(self.log.images, default=0)) or in_file

    def page(self, number: int) -> bytes:
        """Return the last committed image of a page, or empty bytes if there is none.

        The last page of a truncated file may be shorter.
        """
        if not 1 <= number <= len(self):
            return b""
        offset = self.log.images.get(number)
        if offset is not None and self.log.page_size == self.size:
            return self._bytes("log", offset, self.size, number)
        return self._bytes("main", (number - 1) * self.size, self.size, number)

    def live(self) -> Iterator[Page]:
        """Yield every page that is not free. If a damaged frame of the log has an image of the page, yield it next."""
        for number in range(1, len(self) + 1):
            if number not in self.free:
                yield Page(number, self.page(number))
                if (offset := self.log.doubtful.get(number)) is not None:
                    yield Page(number, self._bytes("log", offset, self.size, number), doubtful=True)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _bytes(self, name: str, offset: int, size: int, page: int = 1) -> bytes:
        if name not in self._files:
            return b""
        try:
            self._files[name].seek(offset)
            return self._files[name].read(size)
        except OSError:  # a bad sector loses one page
            self.unreadable.append(page)
            return b""

    # ---- page size and free pages -------------------------------------------------------------------------

    def _page_size(self) -> int:
        claimed = int.from_bytes(self._bytes("main", 16, 2), "big")
        claimed = 65536 if claimed == 1 else claimed
        if self.log.images:
            return self.log.page_size
        if not self.header_lost and claimed in PAGE_SIZES:
            return claimed
        return max(PAGE_SIZES, key=self._pages_of_trees)  # among equals, the first and most common size

    def _pages_of_trees(self, size: int) -> float:
        """Return the share of the file's pages that look like B-tree pages, assuming this page size."""
        count = max(self.length // size, 1)
        step = max(count // SAMPLED, 1)
        numbers = range(1, count, step)
        return sum(_plausible(self._bytes("main", n * size, size)) for n in numbers) / max(len(numbers), 1)

    def _freelist(self) -> tuple[frozenset[int], bool]:
        """Return the free pages, and whether the list of free pages may be incomplete or wrong."""
        header = self.page(1)[FREELIST : FREELIST + 8]
        trunk, count = int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")
        free: set[int] = set()
        sound = True
        while trunk and sound:
            data = self.page(trunk)
            entries = int.from_bytes(data[4:8], "big")
            if trunk in free or len(data) < self.size or entries > self.size // 4 - 2:
                sound = False
                break
            leaves = [int.from_bytes(data[i : i + 4], "big") for i in range(8, 8 + 4 * entries, 4)]
            sound = all(2 <= leaf <= len(self) for leaf in leaves) and not free.intersection(leaves)
            free |= {trunk, *(leaf for leaf in leaves if 2 <= leaf <= len(self))}
            trunk = int.from_bytes(data[:4], "big")
        in_use = free & self.children(free)
        # If the header is lost, an empty list of free pages does not prove that there are none.
        silent = self.header_lost and 1 not in self.log.images and not count
        return frozenset(free - in_use), silent or not sound or len(free) != count or bool(in_use)

    def children(self, free: Set[int]) -> set[int]:
        """Return the pages that interior pages of trees refer to, and which therefore cannot be free.

        Pages in `free` are not read as interior pages.
        """
        found = set()
        for number in range(2, len(self) + 1):
            data = self.page(number)
            if number in free or not data or data[0] not in (TABLE_INTERIOR, INDEX_INTERIOR):
                continue
            found.add(int.from_bytes(data[8:12], "big"))
            cells = int.from_bytes(data[3:5], "big")
            for place in range(12, min(12 + 2 * cells, len(data) - 1), 2):
                offset = int.from_bytes(data[place : place + 2], "big")
                if offset >= 12 + 2 * cells:
                    found.add(int.from_bytes(data[offset : offset + 4], "big"))
        return found


def _plausible(data: bytes) -> bool:
    """Return whether bytes look like a B-tree page: cell pointers first, then cells up to the end of the page."""
    if len(data) < 12 or data[0] not in (0x02, 0x05, 0x0A, 0x0D):
        return False
    cells = int.from_bytes(data[3:5], "big")
    start = (12 if data[0] in (0x02, 0x05) else 8) + 2 * cells
    pointers = data[start - 2 * cells : start]
    offsets = [int.from_bytes(pointers[i : i + 2], "big") for i in range(0, len(pointers), 2)]
    if not offsets or start > len(data) or min(offsets) < start:
        return False
    return len(data) // 2 <= max(offsets) < len(data)
