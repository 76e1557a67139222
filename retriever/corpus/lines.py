"""Read JSONL, text, Markdown and standard input. This module also defines the limits that all readers obey.

A source may be malicious. Therefore no reader holds more than the largest allowed document in memory.
"""

import codecs
import gzip
import io
import json
import math
import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from retriever.corpus.document import Document, Keys, Skipped, document_of, json_name, text_id

LARGEST_DOCUMENT = 64 << 20
"""Maximum size of a document: bytes of a line, a row or a file, or characters of a Python text."""
LARGEST_METADATA = 16 << 20
"""Maximum number of characters in the metadata of a document as JSON."""
MOST_COLUMNS = 10_000
MOST_PARTS = 2_000_000
"""Maximum number of strings, commas and brackets in a JSON line, or of commas in a CSV row.

Each of them becomes a Python object of about fifty bytes.
"""
UNPACKED_FREELY = 256 << 20
MOST_UNPACKED = 200
"""Maximum ratio of the unpacked size of a gzip or Parquet file to its packed size.

The limit applies to files that unpack to more than `UNPACKED_FREELY` bytes. The ratio is 3 to 20 for texts and up to
100 for logs. It is up to 1032 for a gzip bomb, and unlimited for a Parquet bomb.
"""

TOO_LONG = f"is longer than {LARGEST_DOCUMENT >> 20} MiB, the maximum size of a document"
MAX_DEPTH = 100
"""Maximum depth of nested JSON. Deeper JSON can be parsed, but Python and SQLite may fail to write it."""
NESTED = "nested too deeply"

_SKIPPED_AT_ONCE = 1 << 20
_PARTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[,\[{]', re.DOTALL)
_FENCE_OR_HEADING = re.compile(r"(?:^|(?<=\r)) {0,3}(?:(```|~~~)|#[ \t]+(\S[^\r\n]*))", re.MULTILINE)
_REST_OF_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|\Z)")


class Refused(Exception):
    """A file is not read, or not read to its end. The message gives the reason and follows the name of the file."""


def regular_file(path: Path) -> BinaryIO:
    """Open a regular file for reading. Refuse anything else, because a pipe would block and a device has no end.

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


def whole(stream: BinaryIO) -> bytes:
    """Read a whole file that is one document. Raise `Refused` if it is too large."""
    data = stream.read(LARGEST_DOCUMENT + 1)
    if len(data) > LARGEST_DOCUMENT:
        raise Refused(TOO_LONG)
    return data.removeprefix(codecs.BOM_UTF8)


def too_many_parts(line: bytes) -> bool:
    """Return whether a JSON line would become more than `MOST_PARTS` Python objects."""
    return len(line) > MOST_PARTS and next(islice(_PARTS.finditer(line), MOST_PARTS, None), None) is not None


def refuse_bomb(unpacked: int, packed: int) -> None:
    """Raise `Refused` for a file whose unpacked size is far larger than its packed size."""
    if unpacked > UNPACKED_FREELY and unpacked > MOST_UNPACKED * packed:
        raise Refused(
            f"unpacks to more than {UNPACKED_FREELY >> 20} MiB and more than {MOST_UNPACKED} times its size: the "
            "rest was not read. If the file is not malicious, convert it to another format or unpack it"
        )


class _Unpacked(io.RawIOBase):
    """The unpacked content of a gzip file. Reading raises `Refused` if the file is a gzip bomb."""

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


def numbered_lines(stream: BinaryIO, name: str, *, tsv: bool = False) -> Iterator[tuple[str, bytes | Skipped]]:
    """Yield the place (`name:number`) and content of each line that is not blank, without line end and byte order mark.

    Only \\n ends a line, because texts may contain U+2028. With `tsv`, a line of white space counts as a row, because
    it may consist of tabs. A line above the size limit is read to its end in small parts and becomes a `Skipped`.
    """
    number = 0
    while line := stream.readline(LARGEST_DOCUMENT + 1):
        number += 1
        where = f"{name}:{number}"
        if len(line) > LARGEST_DOCUMENT and not line.endswith(b"\n"):
            del line
            while (rest := stream.readline(_SKIPPED_AT_ONCE)) and not rest.endswith(b"\n"):
                pass
            yield where, Skipped(where, TOO_LONG)
            continue
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if line and (tsv or not line.isspace()):
            yield where, line


def decode(data: bytes | Skipped, where: str) -> str | Skipped:
    if isinstance(data, Skipped):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Skipped(where, f"invalid UTF-8: byte {data[error.start]:#04x} at position {error.start + 1}")


def read_jsonl(stream: BinaryIO, name: str, keys: Keys) -> Iterator[Document | Skipped]:
    for where, line in numbered_lines(stream, name):
        yield _json_document(line, where, keys)


def read_lines(stream: BinaryIO, name: str) -> Iterator[Document | Skipped]:
    """Read one document per line."""
    for where, line in numbered_lines(stream, name):
        yield _text_document(decode(line, where), where)


def read_text(stream: BinaryIO, name: str, markdown: bool) -> Iterator[Document | Skipped]:
    """Read a file as one document. The title of a Markdown file is its first top-level heading."""
    text = decode(whole(stream), name)
    title = ""
    if markdown and isinstance(text, str):
        title, rest = _split_heading(text)
        text = rest if rest.strip() else text
    yield _text_document(text, name, title)


def read_stdin(stream: BinaryIO, keys: Keys) -> Iterator[Document | Skipped]:
    """Read standard input: as JSONL if the first line that is not blank begins with {, otherwise one document per line.

    The id of a document without an id is made from its text. A line number would not be suitable, because in the next
    run another document may have it.
    """
    is_json = None
    for where, line in numbered_lines(stream, "stdin"):
        if is_json is None and isinstance(line, bytes):
            is_json = line.lstrip().startswith(b"{")
        if is_json:
            yield _json_document(line, where, keys, by_text=True)
        else:
            yield _text_document(decode(line, where), where, by_text=True)


def _text_document(text: str | Skipped, where: str, title: str = "", *, by_text: bool = False) -> Document | Skipped:
    if isinstance(text, Skipped):
        return text
    text = text.replace("\0", "")
    if not text or text.isspace():
        return Skipped(where, "has no text")
    return Document(text_id(text) if by_text else where, text, title.replace("\0", ""), {}, where)


def _json_document(line: bytes | Skipped, where: str, keys: Keys, *, by_text: bool = False) -> Document | Skipped:
    if isinstance(line, bytes) and too_many_parts(line):
        return Skipped(where, f"holds more than {MOST_PARTS:,} strings, commas and brackets")
    text = decode(line, where)
    if isinstance(text, Skipped):
        return text
    try:
        record = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        return Skipped(where, f"not valid JSON: {error.msg} at column {error.colno}")
    except ValueError as error:
        return Skipped(where, f"not valid JSON: {error}")
    except RecursionError:
        return Skipped(where, f"its JSON is {NESTED}")
    if not isinstance(record, dict):
        return Skipped(where, f"is {'null' if record is None else json_name(record)}, not an object")
    if too_deep(text, record):
        return Skipped(where, f"its JSON is {NESTED}")
    if "\\u" in text and (reason := lone_surrogate(json.dumps(record, ensure_ascii=False))):
        return Skipped(where, reason)
    return record_document(record, keys, where, by_text=by_text)


def record_document(record: dict[str, Any], keys: Keys, where: str, *, by_text: bool = False) -> Document | Skipped:
    """Make a document from a JSON object. If the object has a key `metadata`, its value must be an object too."""
    metadata = record.get("metadata")
    if "metadata" not in (keys.text, keys.title, keys.id):
        if metadata is None:
            record = {key: value for key, value in record.items() if key != "metadata"}
        elif not isinstance(metadata, dict):
            return Skipped(where, f"its metadata is {json_name(metadata)}, not an object")
    return document_of(record, keys, where, by_text=by_text)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def too_deep(text: str, value: Any) -> bool:
    """Return whether a JSON value is nested deeper than `MAX_DEPTH`. `text` is the value as JSON."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        children = [item.values() if isinstance(item, dict) else item for item in level]
        level = [child for group in children for child in group if isinstance(child, dict | list | tuple)]
    return bool(level)


def lone_surrogate(text: str) -> str | None:
    """Return the reason why a text cannot be stored if it contains a lone surrogate. Otherwise return None."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        lone = f"\\u{ord(text[error.start]):04x}"
        return f"holds half a character (the lone surrogate {lone}), which UTF-8 cannot store"
    return None


def _split_heading(text: str) -> tuple[str, str]:
    """Return the first `# heading` of Markdown outside code blocks, and the text without that line."""
    fence = None
    for found in _FENCE_OR_HEADING.finditer(text):
        mark, heading = found.groups()
        if mark:
            fence = mark if fence is None else None if fence == mark else fence
        elif fence is None and (title := re.sub(r"(?:^|[ \t])#+$", "", heading.rstrip()).rstrip()):
            line = _REST_OF_LINE.match(text, found.start())
            assert line is not None
            return title, (text[: line.start()] + text[line.end() :]).strip("\r\n")
    return "", text
