"""How many bytes SQLite takes for rows of one size: a page holds a whole number of them.

From SQLite's file format (sqlite.org/fileformat2.html, "B-tree Pages"): a leaf page of U = 4096 bytes has 8 for itself
and 2 for the place of each row. A row is the length of its record (varint), its number (varint) and the record. A
record longer than U − 35 keeps M to U − 35 bytes, M = (U − 12) · 32 / 255 − 23, and has the rest on pages of its own,
each with U − 4 bytes. Rows that arrive in the order of their numbers fill page after page and never move.
"""

from functools import cache

import numpy as np

PAGE = 4096
LEAF_HEADER, POINTER = 8, 2
LONGEST_LOCAL = PAGE - 35
SHORTEST_LOCAL = (PAGE - 12) * 32 // 255 - 23
HASH_BYTES = 32
PACKED = 2000


def varint(value: int) -> int:
    """The bytes of a number as SQLite writes it."""
    return min(9, max(1, -(-value.bit_length() // 7)))


def row_bytes(record: int, number_bytes: int) -> tuple[int, int]:
    """What a row takes on its leaf page, and on pages of its own."""
    local, beyond = record, 0
    if record > LONGEST_LOCAL:
        local = SHORTEST_LOCAL + (record - SHORTEST_LOCAL) % (PAGE - 4)
        if local > LONGEST_LOCAL:
            local = SHORTEST_LOCAL
        beyond = -(-(record - local) // (PAGE - 4)) * PAGE
        local += 4
    return varint(record) + number_bytes + local + POINTER, beyond


def vector_record(dimension: int, checksum_bytes: int) -> int:
    """The record of a row of `vectors`: types of its four columns, text hash, halves, checksum."""
    types = 1 + 1 + varint(2 * HASH_BYTES + 12) + varint(2 * 2 * dimension + 12) + 1
    return types + HASH_BYTES + 2 * dimension + checksum_bytes


def vector_table_bytes(count: float, dimension: int) -> float:
    """The table of so many vectors, with halves of this dimension.

    A checksum of 32 bits takes 4 bytes or, where its first bit is set, 6: which rows have which is chance.
    """
    total, first = 0.0, 1
    for number_bytes in range(1, 10):
        last = min(count, (1 << 7 * number_bytes) - 1)
        if last < first:
            break
        total += (last - first + 1) * _mean_row(dimension, number_bytes)
        first = int(last) + 1
    return total


@cache
def _mean_row(dimension: int, number_bytes: int) -> float:
    """Bytes a row, averaged over pages filled one after the other."""
    long = np.random.default_rng(0).integers(2, size=PACKED)
    pages, free, beyond = 0, 0, 0
    for checksum_bytes in (4 + 2 * long).tolist():
        size, more = row_bytes(vector_record(dimension, checksum_bytes), number_bytes)
        beyond += more
        if size > free:
            pages, free = pages + 1, PAGE - LEAF_HEADER
        free -= size
    return (pages * PAGE + beyond) / PACKED
