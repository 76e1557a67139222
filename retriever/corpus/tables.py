"""Read text tables with a header row: CSV and TSV."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from retriever.corpus.document import Document, Keys, Skipped, document_of, listed, shortened
from retriever.corpus.lines import LARGEST_DOCUMENT, MOST_COLUMNS, MOST_PARTS, TOO_LONG, decode, numbered_lines


class WrongColumns(Exception):
    """A table cannot be read as documents because of its columns. The message gives the reason."""


def read_csv(stream: BinaryIO, name: str, keys: Keys) -> Iterator[Document | Skipped]:
    """Read CSV as in RFC 4180. The name of a row is the number of the line on which it begins.

    Quotes are parsed strictly. With a lenient parser, one surplus quote would turn the rest of the file into one field.
    """
    lines = _CsvLines(stream)  # kept until the last document is read, because deleting it closes the stream
    yield from _documents(_csv_rows(lines, name), name, keys)


def read_tsv(stream: BinaryIO, name: str, keys: Keys) -> Iterator[Document | Skipped]:
    """Read tab-separated lines. Quotes are ordinary characters, as in most TSV files of texts."""
    return _documents(_tsv_rows(stream, name), name, keys)


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
            yield document_of(dict(zip(columns, row, strict=True)), keys, where)
    if columns is None:
        yield Skipped(name, "is empty: a header row with the names of the columns is needed")


def _tsv_rows(stream: BinaryIO, name: str) -> Iterator[tuple[str, list[str] | Skipped]]:
    for where, line in numbered_lines(stream, name, tsv=True):
        text = decode(line, where)
        yield where, text.split("\t", MOST_COLUMNS) if isinstance(text, str) else text


def _csv_rows(lines: "_CsvLines", name: str) -> Iterator[tuple[str, list[str] | Skipped]]:
    csv.field_size_limit(LARGEST_DOCUMENT)
    rows = csv.reader(lines, strict=True)
    while True:
        where = f"{name}:{rows.line_num + 1}"
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


class _RowTooLarge(Exception):
    """A row exceeds a limit. The message names the limit."""


class _CsvLines:
    """The lines that the csv module parses.

    Invalid UTF-8 is recorded in `invalid` instead of raised, because the parser could not continue after an error. A
    quoted field can span many lines, so the limits apply to the row and not to the line.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._lines = io.TextIOWrapper(stream, "utf-8", errors="surrogateescape", newline="")
        self._first = True
        self.begin_row()

    def begin_row(self) -> None:
        self.invalid: str | None = None
        self._left = LARGEST_DOCUMENT
        self._commas_left = MOST_PARTS

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._lines.readline(self._left + 1)
        if not line:
            raise StopIteration
        self._left -= len(line)
        self._commas_left -= line.count(",")
        if self._left < 0:
            raise _RowTooLarge(TOO_LONG)
        if self._commas_left < 0:
            raise _RowTooLarge(f"holds more than {MOST_PARTS:,} commas")
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
