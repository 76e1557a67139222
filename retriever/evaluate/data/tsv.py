"""Read the tab-separated files of the benchmarks: UTF-8, a header, one record per line, without quoting.

Only \\n ends a line, because some sentences contain U+2028. A row that cannot be read is skipped with a note.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

BAD_ROWS_SHOWN = 5

T = TypeVar("T")


@dataclass(frozen=True)
class Reading(Generic[T]):
    """The sets that were read, and a sentence about each problem."""

    sets: tuple[T, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Records(Generic[T]):
    """The records of a file, a sentence about each problem, and the SHA-256 of the file."""

    found: tuple[T, ...] | None
    """The records, or None if the header is wrong."""
    problems: tuple[str, ...]
    sha256: str


def read_records(path: Path, columns: Sequence[str], parse: Callable[[list[str]], T]) -> Records[T]:
    """Parse every row. `parse` receives the cells of a row and raises ValueError if the row is invalid."""
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    lines = content.removesuffix(b"\n").split(b"\n")
    header = lines[0].decode("utf-8", "replace").removeprefix("\ufeff").rstrip("\r").split("\t")
    if header != list(columns):
        problem = (
            f"{path}:1: the header is {' '.join(header)[:80]!r}, not {' '.join(columns)!r} separated by tabs: the set "
            "is left out"
        )
        return Records(None, (problem,), sha256)
    found, bad = [], []
    for number, line in enumerate(lines[1:], start=2):
        try:
            found.append(parse(_cells(line, len(columns))))
        except ValueError as error:
            bad.append(f"{path}:{number}: {error}: the row is skipped")
    problems = bad[:BAD_ROWS_SHOWN]
    if len(bad) > BAD_ROWS_SHOWN:
        unseen = len(bad) - BAD_ROWS_SHOWN
        problems.append(f"{path}: {len(bad):,} bad rows in all, {unseen:,} of them not shown; all are skipped")
    return Records(tuple(found), tuple(problems), sha256)


def _cells(line: bytes, count: int) -> list[str]:
    try:
        cells = line.decode("utf-8").rstrip("\r").split("\t")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    if len(cells) != count:
        raise ValueError(f"{len(cells)} columns, not {count}")
    return cells
