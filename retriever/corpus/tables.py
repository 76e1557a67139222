"""Readers of tables with named columns that are text: CSV and TSV."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from retriever.corpus import limits
from retriever.corpus.document import Document, Keys, Skipped, document_of, listed, short
from retriever.corpus.lines import decoded


class WrongColumns(Exception):
    """A table is not one of documents, as a whole; the message says why."""


def read_csv(stream: BinaryIO, name: str, keys: Keys) -> Iterator[Document | Skipped]:
    """RFC 4180, with a header row. A row is named by the line it begins on.

    Strict about quotes: for a lenient reader, one quote too many swallows the rest of the file unnoticed.
    """
    csv.field_size_limit(limits.LARGEST_DOCUMENT)
    lines = _DecodedLines(stream)
    rows = csv.reader(lines, strict=True)
    columns: list[str] | None = None
    while True:
        where = f"{name}:{rows.line_num + 1}"
        lines.begin_row()
        try:
            row = next(rows)
        except StopIteration:
            break
        except _RowTooLarge as error:
            yield Skipped(where, f"{error}; what follows was not read, as where the next row begins cannot be known")
            return
        except csv.Error as error:
            yield Skipped(where, f"not valid CSV: {_csv_reason(error)}")
            continue
        if not row:
            continue
        if lines.invalid:
            yield Skipped(where, lines.invalid)
            if columns is None:
                return
        elif columns is None:
            columns = checked_columns(row, keys)
        else:
            yield _row_document(row, columns, keys, where)
    if columns is None:
        yield Skipped(name, "is empty: a header row with the names of the columns is needed")


class _RowTooLarge(Exception):
    """A row goes on beyond the limits; the message goes after its place."""


class _DecodedLines:
    """Lines for the csv module, which must not be interrupted: invalid UTF-8 is noted, its row left out.

    A row goes over as many lines as its quotes say, so it is the row that is held against the limits.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._lines = io.TextIOWrapper(stream, "utf-8", errors="surrogateescape", newline="")
        self._first = True
        self.begin_row()

    def begin_row(self) -> None:
        self.invalid: str | None = None
        self._left = limits.LARGEST_DOCUMENT
        self._commas_left = limits.MOST_PARTS

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._lines.readline(self._left + 1)
        if not line:
            raise StopIteration
        self._left -= len(line)
        self._commas_left -= line.count(",")
        if self._left < 0:
            raise _RowTooLarge(limits.TOO_LONG)
        if self._commas_left < 0:
            raise _RowTooLarge(f"holds more than {limits.MOST_PARTS:,} commas")
        if self._first:
            line = line.removeprefix("\ufeff")
            self._first = False
        if not line.isascii() and self.invalid is None:
            checked = decoded(line.encode("utf-8", "surrogateescape"), "")
            self.invalid = checked.reason if isinstance(checked, Skipped) else None
        return line


def _csv_reason(error: csv.Error) -> str:
    if "unexpected end of data" in str(error):
        return "a quoted field that begins in this row is never closed"
    return str(error)


def read_tsv(stream: BinaryIO, name: str, keys: Keys) -> Iterator[Document | Skipped]:
    """Tab-separated with a header row; quotes mean nothing, as in most TSV files of texts."""
    columns: list[str] | None = None
    for number, line in limits.numbered(stream):
        where = f"{name}:{number}"
        if line == b"":
            continue
        text = Skipped(where, limits.TOO_LONG) if line is None else decoded(line, where)
        if isinstance(text, Skipped):
            yield text
            if columns is None:
                return
        elif columns is None:
            columns = checked_columns(text.split("\t", limits.MOST_COLUMNS), keys)
        elif text.count("\t") + 1 != len(columns):
            yield _wrong_width(where, text.count("\t") + 1, columns)
        else:
            yield _row_document(text.split("\t"), columns, keys, where)
    if columns is None:
        yield Skipped(name, "is empty: a header row with the names of the columns is needed")


def _row_document(row: list[str], columns: list[str], keys: Keys, where: str) -> Document | Skipped:
    if len(row) != len(columns):
        return _wrong_width(where, len(row), columns)
    return document_of(dict(zip(columns, row, strict=True)), keys, where)


def _wrong_width(where: str, width: int, columns: Sequence[str]) -> Skipped:
    return Skipped(where, f"has {width} columns, the header {len(columns)}")


def checked_columns(columns: Sequence[str], keys: Keys) -> list[str]:
    """The columns, if those asked for are among them."""
    if len(columns) > limits.MOST_COLUMNS:
        raise WrongColumns(f"has more than {limits.MOST_COLUMNS:,} columns")
    there = dict.fromkeys(columns)
    wanted = [("--text-key", keys.text), ("--id-key", keys.id)]
    wanted += [("--title-key", keys.title)] if keys.title != Keys.title else []
    for option, column in wanted:
        if column is not None and column not in there:
            raise WrongColumns(f"no column {column!r}; {listed(there)}; {keys.advice(option)}")
    if len(there) != len(columns):
        twice = sorted(column for column, count in Counter(columns).items() if count > 1)
        more = ", …" if len(twice) > 10 else ""
        raise WrongColumns(f"more than one column is called {', '.join(map(short, twice[:10]))}{more}")
    return list(columns)
