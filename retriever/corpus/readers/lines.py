"""Read JSON, JSONL and lines of text. This module also defines the limits that all readers obey.

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
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from retriever.corpus.content import Refused
from retriever.corpus.document import Document, Keys, Skipped, content_id, document_of, json_name, text_id

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
NO_TEXT = "has no text"
STDIN_NAME = "stdin"

_SKIPPED_AT_ONCE = 1 << 20
_EMPTY_LINES = re.compile(rb"(?:\r?\n)++")
_BLANK_LINES = re.compile(rb"\s*\n")
_COUNTED_AT_ONCE = 1 << 18


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


def whole(stream: BinaryIO, largest: int = LARGEST_DOCUMENT) -> bytes:
    """Read a whole file that is one document. Raise `Refused` if it is too large."""
    data = stream.read(largest + 1)
    if len(data) > largest:
        raise Refused(TOO_LONG if largest == LARGEST_DOCUMENT else f"is larger than {largest >> 20} MiB")
    return data.removeprefix(codecs.BOM_UTF8)


def too_many_parts(line: bytes) -> bool:
    """Return whether a JSON line would become more than `MOST_PARTS` Python objects."""
    if len(line) <= MOST_PARTS:
        return False
    parts = begin = quotes = 0
    # Other threads run between two pieces, e.g. those of a server.
    while begin < len(line) and parts + quotes // 2 <= MOST_PARTS:
        piece = line[begin : begin + _COUNTED_AT_ONCE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2 and len(piece) > 1:  # what it escapes is in the next piece
            piece = piece[:-1]
        begin += len(piece)
        between = piece.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        parts += sum(outside.count(mark) for outside in between[quotes % 2 :: 2] for mark in (b",", b"[", b"{"))
        quotes += len(between) - 1
    return parts + quotes // 2 > MOST_PARTS


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
        else:
            number += skip_blank_lines(stream, _EMPTY_LINES if tsv else _BLANK_LINES)


def skip_blank_lines(stream: BinaryIO, blank: re.Pattern[bytes] = _EMPTY_LINES) -> int:
    """Skip the blank lines that are in the stream's buffer. Return their number.

    A small gzip file can hold hundreds of millions of them, and reading each of them would take minutes.
    """
    if not isinstance(stream, io.BufferedReader) or not (found := blank.match(stream.peek())):
        return 0
    return stream.read(found.end()).count(b"\n")


def decode(data: bytes | Skipped, where: str) -> str | Skipped:
    if isinstance(data, Skipped):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Skipped(where, f"invalid UTF-8: byte {data[error.start]:#04x} at position {error.start + 1}")


def read_jsonl(stream: BinaryIO, name: str, keys: Keys) -> Iterator[Document | Skipped]:
    for where, line in numbered_lines(stream, name):
        yield json_document(line, where, keys, name)


def read_json(stream: BinaryIO, name: str, keys: Keys) -> Iterator[Document | Skipped]:
    """Read a JSON file: an array of documents, one document, or an object that holds them.

    An object holds documents as its only array of objects, or as its values, whose keys are then their ids.
    """
    value = parsed_json(whole(stream), name)
    if isinstance(value, Skipped):
        yield value
        return
    for place, record in _records(value, keys):
        where = f"{name}[{place}]" if place else name
        if isinstance(record, dict):
            yield record_document(record, keys, where, "" if name == STDIN_NAME else name)
        else:
            yield Skipped(where, f"is {'null' if record is None else json_name(record)}, not an object")


def _records(value: Any, keys: Keys) -> Iterator[tuple[int, Any]]:
    if isinstance(value, dict) and keys.text not in value:
        arrays = [item for item in value.values() if isinstance(item, list) and item and isinstance(item[0], dict)]
        if len(arrays) == 1:
            value = arrays[0]
        elif value and all(isinstance(item, dict) for item in value.values()):
            value = [{"id": key, **item} for key, item in value.items()]
    if isinstance(value, list):
        yield from enumerate(value, 1)
    else:
        yield 0, value


def read_lines(stream: BinaryIO, name: str) -> Iterator[Document | Skipped]:
    """Read one document per line."""
    for where, line in numbered_lines(stream, name):
        yield line_document(decode(line, where), where, name)


def line_document(text: str | Skipped, where: str, file: str = "") -> Document | Skipped:
    """Make a document from a line, or from all of standard input. Its id is made from its text."""
    if isinstance(text, Skipped):
        return text
    text = text.replace("\0", "")
    if not text or text.isspace():
        return Skipped(where, NO_TEXT, empty=True)
    return Document(content_id(file, "", text, {}) if file else text_id(text), text, "", {}, where)


def json_document(line: bytes | Skipped, where: str, keys: Keys, file: str = "") -> Document | Skipped:
    record = parsed_json(line, where)
    if isinstance(record, Skipped):
        return record
    if not isinstance(record, dict):
        return Skipped(where, f"is {'null' if record is None else json_name(record)}, not an object")
    return record_document(record, keys, where, file)


def parsed_json(data: bytes | Skipped, where: str) -> Any:
    """Return a JSON value, or a `Skipped` with the reason why it cannot be read or stored."""
    if isinstance(data, bytes) and too_many_parts(data):
        return Skipped(where, f"holds more than {MOST_PARTS:,} strings, commas and brackets")
    text = decode(data, where)
    if isinstance(text, Skipped):
        return text if text is data else replace(text, reason=f"{text.reason}; if it is no UTF-8, give its `encoding`")
    try:
        value = _json_decoder.decode(text)
    except json.JSONDecodeError as error:
        line = f" of line {error.lineno}" if error.lineno > 1 else ""
        return Skipped(where, f"not valid JSON: {error.msg} at column {error.colno}{line}")
    except ValueError as error:
        return Skipped(where, f"not valid JSON: {error}")
    except RecursionError:
        return Skipped(where, f"its JSON is {NESTED}")
    if too_deep(text, value):
        return Skipped(where, f"its JSON is {NESTED}")
    if "\\u" in text and (reason := lone_surrogate(json.dumps(value, ensure_ascii=False))):
        return Skipped(where, reason)
    return value


def record_document(record: dict[str, Any], keys: Keys, where: str, file: str = "") -> Document | Skipped:
    """Make a document from a JSON object. If the object has a key `metadata`, its value must be an object too."""
    if "metadata" in record and "metadata" not in (keys.text, keys.title, keys.id):
        metadata = record["metadata"]
        if metadata is None:
            record = {key: value for key, value in record.items() if key != "metadata"}
        elif not isinstance(metadata, dict):
            return Skipped(where, f"its metadata is {json_name(metadata)}, not an object")
    return document_of(record, keys, where, file)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


_json_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


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
