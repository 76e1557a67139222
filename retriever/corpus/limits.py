"""Size limits for documents, and readers that never hold more than that in memory: a source may be malicious.

A line above the limit is skipped to its end, so that the next line is read normally.
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
"""Bytes of a line, a row, or a file that is one document; characters of a Python text."""
LARGEST_METADATA = 16 << 20
"""Characters of a document's metadata as JSON."""
MOST_COLUMNS = 10_000
MOST_PARTS = 2_000_000
"""Strings, commas and brackets in a JSON line, or commas in a CSV row: each becomes an object of about fifty bytes."""
UNPACKED_FREELY = 256 << 20
MOST_UNPACKED = 200
"""Above `UNPACKED_FREELY` bytes, the limit for the size of a gzip or Parquet file unpacked, as a multiple of its packed
size. Texts reach 3 to 20, logs up to 100; a gzip bomb up to 1032, and a Parquet bomb any number."""

TOO_LONG = f"is longer than {LARGEST_DOCUMENT >> 20} MiB, the most that a document may have"
_SKIPPED_AT_ONCE = 1 << 20
_PARTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[,\[{]', re.DOTALL)


class Refused(Exception):
    """A file is not read, or not to its end; the message says why and follows the file's name."""


def regular_file(path: Path) -> BinaryIO:
    """Open a file for reading, and refuse anything but a regular file: a pipe would block, and a device has no end.

    The path may have been replaced since it was listed, so the open file is checked again.
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
    """Number the lines, without line ends and byte order mark; a line that is too long becomes None.

    Only \\n ends a line: texts may contain U+2028.
    """
    number = 0
    while line := stream.readline(LARGEST_DOCUMENT + 1):
        number += 1
        if len(line) > LARGEST_DOCUMENT and not line.endswith(b"\n"):
            del line
            while (rest := stream.readline(_SKIPPED_AT_ONCE)) and not rest.endswith(b"\n"):
                pass
            yield number, None
            continue
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        yield number, line.removesuffix(b"\n").removesuffix(b"\r")


def whole(stream: BinaryIO) -> bytes:
    """Read a file that is one document."""
    data = stream.read(LARGEST_DOCUMENT + 1)
    if len(data) > LARGEST_DOCUMENT:
        raise Refused(TOO_LONG)
    return data.removeprefix(codecs.BOM_UTF8)


def too_many_parts(line: bytes) -> bool:
    """Whether a JSON line would become more than `MOST_PARTS` Python objects."""
    return len(line) > MOST_PARTS and next(islice(_PARTS.finditer(line), MOST_PARTS, None), None) is not None


def refuse_bomb(unpacked: int, packed: int) -> None:
    """Refuse a file that unpacks to far more bytes than it has."""
    if unpacked > UNPACKED_FREELY and unpacked > MOST_UNPACKED * packed:
        raise Refused(
            f"unpacks to more than {UNPACKED_FREELY >> 20} MiB and more than {MOST_UNPACKED} times its size: what "
            "follows was not read. If the file is not malicious, convert it to another format or unpack it"
        )


class _Unpacked(io.RawIOBase):
    """A gzip file unpacked; reading raises `Refused` if it is a bomb."""

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


def unpacked(packed: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Unpacked(packed)))
