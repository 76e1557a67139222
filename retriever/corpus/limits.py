"""How much one document may be, and how it is read without ever holding more: a source may be made to do harm.

A line beyond the limit is passed over to its end, so that the next one is read as if nothing were the matter.
"""

import codecs
import gzip
import io
import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

LARGEST_DOCUMENT = 64 << 20
"""Bytes of a line, a row, or a file that is one document; of a Python text, characters."""
LARGEST_METADATA = 16 << 20
"""Characters of a document's metadata as JSON."""
MOST_COLUMNS = 10_000
MOST_PARTS = 2_000_000
"""Strings, commas and brackets in a JSON line, or commas in a CSV row: each becomes an object of some fifty bytes."""
UNPACKED_FREELY = 256 << 20
MOST_UNPACKED = 200
"""Beyond `UNPACKED_FREELY`, a gzip or Parquet file must not hold more than so many times its own bytes: texts hold 3 to
20 times, logs up to 100; what was made to do harm, in gzip up to 1032 and in Parquet any number."""

_PASSED_AT_ONCE = 1 << 20
_PARTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[,\[{]', re.DOTALL)


class Refused(Exception):
    """A file or row that is not read, or not further, and why; the message goes after the name of the place."""


def shown(size: int) -> str:
    return f"{size >> 20} MiB"


TOO_LONG = f"is longer than {shown(LARGEST_DOCUMENT)}, the most that a document may have"


def regular_file(path: Path) -> BinaryIO:
    """The file opened for reading; refused if it is anything but a file on disk, whatever it was when it was listed.

    A pipe would be waited for, and a device has no end.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise Refused("is not a regular file")
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Refused("is not a regular file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def numbered(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """The lines with their numbers, without their ends and a byte order mark; None for one that is too long.

    Only \\n ends a line: texts may hold U+2028.
    """
    number = 0
    while line := stream.readline(LARGEST_DOCUMENT + 1):
        number += 1
        if len(line) > LARGEST_DOCUMENT and not line.endswith(b"\n"):
            del line
            while (rest := stream.readline(_PASSED_AT_ONCE)) and not rest.endswith(b"\n"):
                pass
            yield number, None
            continue
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        yield number, line.removesuffix(b"\n").removesuffix(b"\r")


def whole(stream: BinaryIO) -> bytes:
    """All of a file that is one document."""
    data = stream.read(LARGEST_DOCUMENT + 1)
    if len(data) > LARGEST_DOCUMENT:
        raise Refused(TOO_LONG)
    return data.removeprefix(codecs.BOM_UTF8)


def too_many_parts(line: bytes) -> bool:
    """Whether a JSON line would become more objects than memory should be spent on."""
    return len(line) > MOST_PARTS and next(islice(_PARTS.finditer(line), MOST_PARTS, None), None) is not None


def refuse_bomb(unpacked: int, packed: int) -> None:
    """Stop where so many bytes have come out of so few that nobody can have meant it."""
    if unpacked > UNPACKED_FREELY and unpacked > MOST_UNPACKED * packed:
        raise Refused(
            f"unpacks to more than {shown(UNPACKED_FREELY)} and more than {MOST_UNPACKED} times its size: what follows "
            "was not read. If it is meant to be so, give it in another format or unpacked"
        )


def unpacked(packed: BinaryIO) -> BinaryIO:
    """What a gzip file holds, as far as it is no bomb: then reading it raises `Refused`."""
    return cast(BinaryIO, io.BufferedReader(_Unpacked(packed)))


class _Unpacked(io.RawIOBase):
    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._file = gzip.GzipFile(fileobj=packed)
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        count = self._file.readinto(buffer)
        self._count += count
        refuse_bomb(self._count, self._packed.tell())
        return count
