"""Readers of formats that are made of lines or are plain text: JSONL, text and Markdown."""

import codecs
import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from retriever.corpus.document import Document, Keys, Skipped, document_of, kind, text_id

MAX_DEPTH = 100
"""Deeper JSON is refused: it can be parsed, but neither Python nor SQLite is sure to write it again."""


def numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers. Only \\n ends a line: texts may hold U+2028."""
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if line and not line.isspace():
            yield number, line


def decoded(data: bytes, where: str) -> str | Skipped:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Skipped(where, f"invalid UTF-8: byte {data[error.start]:#04x} at position {error.start + 1}")


def read_jsonl(stream: BinaryIO, name: str, keys: Keys) -> Iterator[Document | Skipped]:
    for number, line in numbered_lines(stream):
        yield json_document(line, f"{name}:{number}", keys)


def read_lines(stream: BinaryIO, name: str) -> Iterator[Document | Skipped]:
    """One document a line."""
    for number, line in numbered_lines(stream):
        yield _plain(decoded(line, f"{name}:{number}"), f"{name}:{number}")


def read_text(stream: BinaryIO, name: str, markdown: bool) -> Iterator[Document | Skipped]:
    """One document a file; the first top heading of Markdown is its title."""
    text = decoded(stream.read().removeprefix(codecs.BOM_UTF8), name)
    title = ""
    if markdown and isinstance(text, str):
        title, rest = split_heading(text)
        text = rest if rest.strip() else text
    yield _plain(text, name, title)


def read_stdin(stream: BinaryIO, keys: Keys) -> Iterator[Document | Skipped]:
    """JSONL if the first line that is not blank begins with {, else one document a line.

    Without an id a document goes by its text: its line number would be another document's in the next run.
    """
    lines = numbered_lines(stream)
    first = next(lines, None)
    if first is None:
        return
    is_json = first[1].lstrip().startswith(b"{")
    for number, line in itertools.chain([first], lines):
        where = f"stdin:{number}"
        if is_json:
            yield json_document(line, where, keys, by_text=True)
        else:
            yield _plain(decoded(line, where), where, by_text=True)


def _plain(text: str | Skipped, where: str, title: str = "", *, by_text: bool = False) -> Document | Skipped:
    if isinstance(text, Skipped):
        return text
    text = text.replace("\0", "")
    if not text or text.isspace():
        return Skipped(where, "has no text")
    return Document(text_id(text) if by_text else where, text, title.replace("\0", ""), {}, where)


def json_document(line: bytes, where: str, keys: Keys, *, by_text: bool = False) -> Document | Skipped:
    text = decoded(line, where)
    if isinstance(text, Skipped):
        return text
    try:
        record = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        return Skipped(where, f"not valid JSON: {error.msg} at column {error.colno}")
    except ValueError as error:
        return Skipped(where, f"not valid JSON: {error}")
    except RecursionError:
        return Skipped(where, "its JSON is nested too deeply")
    if not isinstance(record, dict):
        return Skipped(where, f"is {kind(record)}, not an object" if record is not None else "is null, not an object")
    if text.count("[") + text.count("{") > MAX_DEPTH and too_deep(record):
        return Skipped(where, "its JSON is nested too deeply")
    if "\\u" in text and (reason := half_character(json.dumps(record, ensure_ascii=False))):
        return Skipped(where, reason)
    return record_document(record, keys, where, by_text=by_text)


def record_document(record: dict[str, Any], keys: Keys, where: str, *, by_text: bool = False) -> Document | Skipped:
    """The document an object holds; what it has under `metadata` must be an object too."""
    metadata = record.get("metadata")
    if "metadata" not in (keys.text, keys.title, keys.id):
        if metadata is None:
            record = {key: value for key, value in record.items() if key != "metadata"}
        elif not isinstance(metadata, dict):
            return Skipped(where, f"its metadata is {kind(metadata)}, not an object")
    return document_of(record, keys, where, by_text=by_text)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def too_deep(record: dict[str, Any]) -> bool:
    level: list[Any] = [record]
    for _ in range(MAX_DEPTH):
        children = [item.values() if isinstance(item, dict) else item for item in level]
        level = [child for group in children for child in group if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def half_character(text: str) -> str | None:
    """Why a text cannot be stored, if it holds a lone surrogate; else None."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        lone = f"\\u{ord(text[error.start]):04x}"
        return f"holds half a character (the lone surrogate {lone}), which UTF-8 cannot store"
    return None


_FENCE = re.compile(r" {0,3}(```|~~~)")
_HEADING = re.compile(r" {0,3}#[ \t]+(\S.*)")


def split_heading(text: str) -> tuple[str, str]:
    """The first `# heading` of Markdown outside code blocks, and the text without that line."""
    fence = None
    position = 0
    for line in text.splitlines(keepends=True):
        if opening := _FENCE.match(line):
            mark = opening[1]
            fence = mark if fence is None else None if fence == mark else fence
        elif fence is None and (heading := _HEADING.match(line)):
            title = re.sub(r"(?:^|[ \t])#+$", "", heading[1].rstrip()).rstrip()
            if title:
                return title, (text[:position] + text[position + len(line) :]).strip("\r\n")
        position += len(line)
    return "", text
