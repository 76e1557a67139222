"""Read standard input: JSON, JSONL, a table, lines of text, or one document, as its beginning decides."""

import io
import re
from collections.abc import Iterator
from typing import BinaryIO, cast

from retriever.corpus.content import Refused
from retriever.corpus.document import Document, Keys, Skipped
from retriever.corpus.encodings import Prefixed, utf8_stream
from retriever.corpus.formats import KNOWN
from retriever.corpus.readers.lines import (
    STDIN_NAME,
    decode,
    json_document,
    line_document,
    numbered_lines,
    read_json,
    whole,
)
from retriever.corpus.readers.tables import WrongColumns, read_csv, read_tsv, table_delimiter
from retriever.errors import Misuse

_BEGINNING = 4096
_JSON_OVER_LINES = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\[\s*\{|\{[ \t\r]*\n)")
_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype\s+html|html[\s>])", re.IGNORECASE)


def read_stdin(
    stream: BinaryIO, keys: Keys, *, whole_input: bool = False, encoding: str | None = None
) -> Iterator[Document | Skipped]:
    """Read standard input: as JSONL if the first line that is not blank begins with {, as a table if the first line
    names several columns and one of them is that of the text, otherwise one document per line.

    With `whole_input`, it is one document. An array of objects, or an object over several lines, is read as JSON. The
    id of a document without an id is made from its text. A line number would not be suitable, because in the next run
    another document may have it. Binary input is refused, and HTML unless it is one document.
    """
    stream = refuse_binary(stream, encoding)
    if whole_input:
        yield line_document(decode(whole(stream), STDIN_NAME), STDIN_NAME)
        return
    sample = stream.read(_BEGINNING)
    stream = cast(BinaryIO, io.BufferedReader(Prefixed(sample, stream)))
    if _HTML.match(sample):
        raise Misuse(
            "standard input looks like HTML. Save it as a .html file and name the file instead of -, or read its "
            "source as one document with `whole=True`."
        )
    if _JSON_OVER_LINES.match(sample):
        yield from read_json(stream, STDIN_NAME, keys)
        return
    if delimiter := table_delimiter(sample.decode("utf-8", "replace"), keys):
        read = read_tsv if delimiter == "\t" else read_csv
        try:
            yield from read(stream, STDIN_NAME, keys)
        except WrongColumns as error:
            raise Misuse(f"{STDIN_NAME}: {error}") from error
        return
    is_json = None
    for where, line in numbered_lines(stream, STDIN_NAME):
        if is_json is None and isinstance(line, bytes):
            is_json = line.lstrip().startswith(b"{")
        if is_json:
            yield json_document(line, where, keys)
        else:
            yield line_document(decode(line, where), where)


def refuse_binary(stream: BinaryIO, encoding: str | None) -> BinaryIO:
    """Return a stream with the same text as UTF-8. Raise `Misuse` if it begins like a binary file."""
    try:
        return utf8_stream(stream, encoding)
    except Refused as error:
        raise Misuse(f"standard input {error}. Name the file itself instead of -; {KNOWN}.") from error
