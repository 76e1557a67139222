"""Readers of formats that are made of lines or are plain text: JSONL, text and Markdown."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from retriever.corpus import limits
from retriever.corpus.document import Document, Keys, Skipped, document_of, kind, text_id

MAX_DEPTH = 100
"""Deeper JSON is refused: it can be parsed, but neither Python nor SQLite is sure to write it again."""


def numbered_lines(stream: BinaryIO, name: str) -> Iterator[tuple[str, bytes | Skipped]]:
    """The lines that are not blank, with their places: `name:number`."""
    for number, line in limits.numbered(stream):
        where = f"{name}:{number}"
        if line is None:
            yield where, Skipped(where, limits.TOO_LONG)
        elif line and not line.isspace():
            yield where, line


def decoded(data: bytes | Skipped, where: str) -> str | Skipped:
    if isinstance(data, Skipped):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Skipped(where, f"invalid UTF-8: byte {data[error.start]:#04x} at position {error.start + 1}")


def read_jsonl(stream: BinaryIO, name: str, keys: Keys) -> Iterator[Document | Skipped]:
    for where, line in numbered_lines(stream, name):
        yield json_document(line, where, keys)


def read_lines(stream: BinaryIO, name: str) -> Iterator[Document | Skipped]:
    """One document a line."""
    for where, line in numbered_lines(stream, name):
        yield _plain(decoded(line, where), where)


def read_text(stream: BinaryIO, name: str, markdown: bool) -> Iterator[Document | Skipped]:
    """One document a file; the first top heading of Markdown is its title."""
    text = decoded(limits.whole(stream), name)
    title = ""
    if markdown and isinstance(text, str):
        title, rest = split_heading(text)
        text = rest if rest.strip() else text
    yield _plain(text, name, title)


def read_stdin(stream: BinaryIO, keys: Keys) -> Iterator[Document | Skipped]:
    """JSONL if the first line that is not blank begins with {, else one document a line.

    Without an id a document goes by its text: its line number would be another document's in the next run.
    """
    is_json = None
    for where, line in numbered_lines(stream, "stdin"):
        if isinstance(line, Skipped):
            yield line
            continue
        if is_json is None:
            is_json = line.lstrip().startswith(b"{")
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


def json_document(line: bytes | Skipped, where: str, keys: Keys, *, by_text: bool = False) -> Document | Skipped:
    if isinstance(line, bytes) and limits.too_many_parts(line):
        return Skipped(where, f"holds more than {limits.MOST_PARTS:,} strings, commas and brackets")
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


_FENCE_OR_HEADING = re.compile(r"(?:^|(?<=\r)) {0,3}(?:(```|~~~)|#[ \t]+(\S[^\r\n]*))", re.MULTILINE)
_REST_OF_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|\Z)")


def split_heading(text: str) -> tuple[str, str]:
    """The first `# heading` of Markdown outside code blocks, and the text without that line."""
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
