"""Read text tables with a header row: CSV and TSV, with the delimiter that the header has."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import BinaryIO, cast

from retriever.corpus.document import Document, Keys, Skipped, document_of, listed, shortened
from retriever.corpus.encodings import Prefixed
from retriever.corpus.readers.lines import LARGEST_DOCUMENT, MOST_COLUMNS, MOST_PARTS, TOO_LONG, decode, numbered_lines


class WrongColumns(Exception):
    """A table cannot be read as documents because of its columns. The message gives the reason."""


DELIMITERS = ",;\t|"
SNIFFED = 1 << 16
READ_AHEAD = 1 << 16
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)")


def sniffed(stream: BinaryIO, keys: Keys, usual: str) -> tuple[BinaryIO, str, bool]:
    """Return a stream of the same bytes, the delimiter of its header, and whether its fields may be quoted.

    The delimiter is the one that gives the header a column with the name of the text's key. If several delimiters or
    none do, it is the one that gives the most columns. Quotes count if the beginning can be read with them, and a field
    begins with one.
    """
    sample = stream.read(SNIFFED)
    whole = cast(BinaryIO, io.BufferedReader(Prefixed(sample, stream)))
    if len(sample) == SNIFFED:
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    text = sample.decode("utf-8", "replace").removeprefix("\ufeff")
    headers = {delimiter: _first_row(text, delimiter) for delimiter in DELIMITERS}
    best = max(headers, key=lambda mark: (keys.text in headers[mark], len(headers[mark]), mark == usual))
    delimiter = best if len(headers[best]) > 1 else usual
    begins = text.startswith('"') or f'{delimiter}"' in text or '\n"' in text
    return whole, delimiter, begins and _quoted_throughout(text, delimiter)


def table_delimiter(text: str, keys: Keys) -> str:
    """Return the delimiter if a text begins with the header of a table, and an empty string if it does not."""
    headers = {delimiter: _first_row(text.removeprefix("\ufeff"), delimiter) for delimiter in DELIMITERS}
    return next((mark for mark, names in headers.items() if len(names) > 1 and keys.text in names), "")


def _first_row(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


def _quoted_throughout(text: str, delimiter: str) -> bool:
    """Return whether the rows of a text can be read with quotes, and all have as many columns as the header."""
    widths = set()
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
            widths.add(len(row))
    except csv.Error:
        return False
    return len(widths - {0}) == 1


def read_csv(stream: BinaryIO, name: str, keys: Keys) -> Iterator[Document | Skipped]:
    """Read CSV as in RFC 4180, with any delimiter. The name of a row is the number of its first line.

    Quotes are parsed strictly. With a lenient parser, one surplus quote would turn the rest of the file into one field.
    """
    stream, delimiter, _ = sniffed(stream, keys, ",")
    lines = _CsvLines(stream, delimiter)  # kept until the last document is read, because deleting it closes the stream
    yield from _documents(_csv_rows(lines, name, delimiter), name, keys)


def read_tsv(stream: BinaryIO, name: str, keys: Keys) -> Iterator[Document | Skipped]:
    """Read tab-separated lines. Quotes are ordinary characters, unless the whole file can be read with quotes."""
    stream, delimiter, quoted = sniffed(stream, keys, "\t")
    if quoted:
        lines = _CsvLines(stream, delimiter)
        yield from _documents(_csv_rows(lines, name, delimiter), name, keys)
    else:
        yield from _documents(_tsv_rows(stream, name, delimiter), name, keys)


def _documents(rows: Iterator[tuple[str, list[str] | Skipped]], name: str, keys: Keys) -> Iterator[Document | Skipped]:
    columns: list[str] | None = None
    for where, row in rows:
        if isinstance(row, Skipped):
            yield row
            if columns is None:
                return
        elif columns is None:
            columns = checked_columns(row, keys)
        elif len(row) != len(columns):
            width = len(row) if len(row) <= MOST_COLUMNS else f"more than {MOST_COLUMNS:,}"
            yield Skipped(where, f"has {width} columns, but the header has {len(columns)}")
        else:
            yield document_of(dict(zip(columns, row, strict=True)), keys, where, name)
    if columns is None:
        yield Skipped(name, "is empty: a header row with the names of the columns is needed")


def _tsv_rows(stream: BinaryIO, name: str, delimiter: str) -> Iterator[tuple[str, list[str] | Skipped]]:
    for where, line in numbered_lines(stream, name, tsv=True):
        text = decode(line, where)
        yield where, text.split(delimiter, MOST_COLUMNS) if isinstance(text, str) else text


def _csv_rows(lines: "_CsvLines", name: str, delimiter: str) -> Iterator[tuple[str, list[str] | Skipped]]:
    csv.field_size_limit(LARGEST_DOCUMENT)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        where = f"{name}:{rows.line_num + lines.skipped + 1}"
        lines.begin_row()
        try:
            row = next(rows)
        except StopIteration:
            return
        except _RowTooLarge as error:
            reason = f"{error}; the rest was not read, because the start of the next row is unknown"
            yield where, Skipped(where, reason)
            return
        except csv.Error as error:
            unclosed = "unexpected end of data" in str(error)
            reason = "a quoted field that begins in this row is never closed" if unclosed else str(error)
            yield where, Skipped(where, f"not valid CSV: {reason}")
            continue
        if row:
            yield where, Skipped(where, lines.invalid) if lines.invalid else row
        else:
            lines.skip_empty_lines()


class _RowTooLarge(Exception):
    """A row exceeds a limit. The message names the limit."""


class _CsvLines:
    """The lines that the csv module parses.

    Invalid UTF-8 is recorded in `invalid` instead of raised, because the parser could not continue after an error. A
    quoted field can span many lines, so the limits apply to the row and not to the line.
    """

    def __init__(self, stream: BinaryIO, delimiter: str) -> None:
        self._delimiter = delimiter
        self._lines = io.TextIOWrapper(stream, "utf-8", errors="surrogateescape", newline="")
        self._ahead = ""
        self._first = True
        self.skipped = 0
        """The number of empty lines that the csv module did not get."""
        self.begin_row()

    def begin_row(self) -> None:
        self.invalid: str | None = None
        self._left = LARGEST_DOCUMENT
        self._commas_left = MOST_PARTS

    def __iter__(self) -> Iterator[str]:
        return self

    def skip_empty_lines(self) -> None:
        """Skip the empty lines between two rows. A small gzip file can hold hundreds of millions of them."""
        text = self._ahead
        while True:
            self._ahead = text.lstrip("\r\n")
            self.skipped += text.count("\n", 0, len(text) - len(self._ahead))
            if self._ahead or not (text := self._lines.read(READ_AHEAD)):
                return
            while text.endswith("\r") and (more := self._lines.read(1)):  # else a line feed may follow
                text += more

    def _readline(self) -> str:
        if not self._ahead:
            return self._lines.readline(self._left + 1)
        line, self._ahead = self._ahead, ""
        if found := _LINE.match(line):
            line, self._ahead = found[0], line[found.end() :]
            return line
        return line + self._lines.readline(self._left + 1)

    def __next__(self) -> str:
        line = self._readline()
        if not line:
            raise StopIteration
        self._left -= len(line)
        self._commas_left -= line.count(self._delimiter)
        if self._left < 0:
            raise _RowTooLarge(TOO_LONG)
        if self._commas_left < 0:
            raise _RowTooLarge(f"holds more than {MOST_PARTS:,} delimiters")
        if self._first:
            line = line.removeprefix("\ufeff")
            self._first = False
        if not line.isascii() and self.invalid is None:
            checked = decode(line.encode("utf-8", "surrogateescape"), "")
            self.invalid = checked.reason if isinstance(checked, Skipped) else None
        return line


def checked_columns(columns: Sequence[str], keys: Keys) -> list[str]:
    """Return the columns. Raise `WrongColumns` if two have the same name, or if a column of `keys` is missing."""
    if len(columns) > MOST_COLUMNS:
        raise WrongColumns(f"has more than {MOST_COLUMNS:,} columns")
    there = dict.fromkeys(columns)
    for argument in ("text", "id", "title"):
        column = getattr(keys, argument)
        optional = column is None or (argument == "title" and column == Keys.title)
        if column not in there and not optional:
            raise WrongColumns(f"no column {column!r}; {listed(there)}; {keys.advice(argument)}")
    if len(there) != len(columns):
        twice = sorted(column for column, count in Counter(columns).items() if count > 1)
        more = ", …" if len(twice) > 10 else ""
        raise WrongColumns(f"more than one column is called {', '.join(map(shortened, twice[:10]))}{more}")
    return list(columns)
