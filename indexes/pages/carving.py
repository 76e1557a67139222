"""Reads (carves) the rows of a collection from the pages of its database, without using its schema and its trees.

This is possible because every leaf page lists its own cells, and a record contains the types of its values. A carved
row may be wrong, because damaged bytes can look like a row. Only its checksum shows whether it is intact
(`indexes/pages/carved.py`). The rows of tables WITHOUT ROWID are on index pages, including interior pages.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from indexes.pages.page_file import INDEX_INTERIOR, Page, Pages

Value = int | float | str | bytes | None

TABLE_LEAF, INDEX_LEAF = 0x0D, 0x0A
# Page kinds that differ from the kind of a leaf by one bit. Such a page is read as a leaf, but a checksum must confirm
# its rows.
NEARLY_TABLE = {0x0C, 0x0F, 0x09, 0x1D, 0x2D, 0x4D, 0x8D}
NEARLY_INDEX = {0x0B, 0x08, 0x0E, 0x1A, 0x2A, 0x4A, 0x8A}
HEX_HASH = 64
INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
LARGEST_RECORD = 1 << 30


@dataclass(frozen=True, slots=True)
class Row:
    """A row: the table that it probably belongs to, and the values of its columns."""

    table: str
    number: int
    values: tuple[Value, ...]
    whole: bool
    """True if all bytes of the row were found and all its texts are valid UTF-8."""
    doubtful: bool
    """True if the page may be outdated or damaged. Such a row counts only if a checksum confirms it."""


class Carver:
    """Reads the rows of a collection from the pages of its database."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.damaged_cells = 0
        """The number of cells that do not contain a valid record."""
        self._with_documents: set[int] = set()
        self._roots: set[int] = set()

    def rows(self) -> Iterator[Row]:
        for page in self.pages.live():
            data = page.data
            kind = data[page.header] if len(data) > page.header else 0
            doubtful = page.doubtful or kind in NEARLY_TABLE or kind in NEARLY_INDEX
            if kind == TABLE_LEAF or kind in NEARLY_TABLE:
                found = self._cells(page, 8, table=True)
            elif kind in (INDEX_LEAF, INDEX_INTERIOR) or kind in NEARLY_INDEX:
                found = self._cells(page, 12 if kind == INDEX_INTERIOR else 8, table=False)
            else:
                continue
            for number, values, whole in found:
                table = _table_of(number, values)
                if table == "documents":
                    self._with_documents.add(page.number)
                if table == "schema":
                    self._roots.add(int(str(values[3])))
                elif table:
                    yield Row(table, number or 0, values, whole, doubtful)

    def stray_pages(self) -> set[int]:
        """Return the pages with documents that no tree leads to. Call this after all rows were read."""
        return self._with_documents - self._roots - self.pages.children(self.pages.free)

    def _cells(self, page: Page, header: int, *, table: bool) -> Iterator[tuple[int | None, tuple[Value, ...], bool]]:
        data, start = page.data, page.header
        count = int.from_bytes(data[start + 3 : start + 5], "big")
        first = start + header
        seen: set[int] = set()
        for place in range(first, min(first + 2 * count, len(data) - 1), 2):
            offset = int.from_bytes(data[place : place + 2], "big")
            if not first <= offset < len(data) - 3 or offset in seen:
                self.damaged_cells += 1
                continue
            seen.add(offset)
            try:
                number, payload, whole = self._payload(data, offset + (4 if header == 12 else 0), table)
                values, all_there = _record(payload)
            except (IndexError, ValueError):
                self.damaged_cells += 1
                continue
            yield number, values, whole and all_there

    def _payload(self, data: bytes, offset: int, table: bool) -> tuple[int | None, bytes, bool]:
        """Return the row number of a cell, its content, and whether the content is complete.

        The content comes from this page and from its overflow pages.
        """
        number = None
        length, offset = _varint(data, offset)
        if table:
            number, offset = _varint(data, offset)
            number -= (number >> 63) << 64
        if length > LARGEST_RECORD:
            raise ValueError("the length of the record is impossible")
        size = self.pages.size
        most = size - 35 if table else (size - 12) * 64 // 255 - 23
        if length <= most:
            payload = data[offset : offset + length]
            return number, payload, len(payload) == length
        least = (size - 12) * 32 // 255 - 23
        local = least + (length - least) % (size - 4)
        local = local if local <= most else least
        parts, missing = [data[offset : offset + local]], length - local
        following = int.from_bytes(data[offset + local : offset + local + 4], "big")
        met: set[int] = set()
        while missing > 0:
            page = b"" if following in met else self.pages.page(following)
            if len(page) < 4:
                break
            met.add(following)
            parts.append(page[4 : 4 + min(missing, size - 4)])
            missing -= len(parts[-1])
            following = int.from_bytes(page[:4], "big")
        return number, b"".join(parts), missing == 0


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for i in range(8):
        byte = data[offset + i]
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, offset + i + 1
    return (value << 8) | data[offset + 8], offset + 9


def _record(payload: bytes) -> tuple[tuple[Value, ...], bool]:
    """Return the values of a record, and whether it is complete. If bytes are missing, the last values are shorter."""
    end, place = _varint(payload, 0)
    if not place <= end <= len(payload):
        raise ValueError("the record's header is incomplete")
    kinds = []
    while place < end:
        kind, place = _varint(payload, place)
        kinds.append(kind)
    values: list[Value] = []
    whole, offset = place == end, end
    for kind in kinds:
        value, length, sound = _value(kind, payload, offset)
        whole = whole and sound and offset + length <= len(payload)
        values.append(value)
        offset += length
    return tuple(values), whole


def _value(kind: int, payload: bytes, offset: int) -> tuple[Value, int, bool]:
    if kind in INTEGER_BYTES:
        length = INTEGER_BYTES[kind]
        return int.from_bytes(payload[offset : offset + length], "big", signed=True), length, True
    if kind >= 12:
        length = (kind - 12) // 2
        data = payload[offset : offset + length]
        if kind % 2 == 0:
            return data, length, True
        try:
            return data.decode("utf-8"), length, True
        except UnicodeDecodeError:
            return data.decode("utf-8", "replace"), length, False
    if kind in (8, 9):
        return kind - 8, 0, True
    return None, 8 if kind == 7 else 0, kind == 0


def _table_of(number: int | None, values: tuple[Value, ...]) -> str:
    """Return the name of the table that a record with these values belongs to.

    Return an empty string if the table is not needed. The table is recognised by the number and types of the columns.
    If a damaged column has another type, the checksum of the row will not match later.
    """
    count = len(values)
    if number is None:
        if count == 5 and all(isinstance(value, int) for value in values):
            return "passages"
        if count == 2 and isinstance(values[0], str):
            return {str: "settings", int: "ids"}.get(type(values[1]), "")
        return ""
    if count == 8 and values[0] is None:
        return "documents"
    if count == 4 and values[0] is None:
        if isinstance(values[2], bytes) or isinstance(values[1], bytes):
            return "vectors"
        hashed = isinstance(values[2], str) and len(values[2]) == HEX_HASH
        return "generations" if hashed else ""
    if count == 3 and isinstance(values[1], str) and isinstance(values[2], bytes):
        return "generation_files"
    if count == 5 and values[0] == "table" and isinstance(values[3], int):
        return "schema"
    if count == 5 and values[0] is None and isinstance(values[3], str):
        return "quarantine"
    return ""
