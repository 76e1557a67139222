"""Read the text files of the benchmarks: lines, or tab-separated values with a header and without quoting.

In the latter, only \\n ends a line, because some sentences contain U+2028. A bad row is skipped with a note.
"""

import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from retriever.errors import BadSource, Misuse

BAD_ROWS_SHOWN = 5

T = TypeVar("T")


@dataclass(frozen=True)
class Reading(Generic[T]):
    """The sets that were read, and a sentence about each problem."""

    sets: tuple[T, ...]
    problems: tuple[str, ...]


def read_lines(path: Path) -> list[str]:
    """Return the non-blank lines of a UTF-8 text file, gzipped or not."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            return [line.strip() for line in file if line.strip()]
    except UnicodeDecodeError as error:
        raise BadSource(f"{path} is not UTF-8 ({error.reason} at byte {error.start}).") from error
    except (OSError, EOFError) as error:
        raise BadSource(f"{path} cannot be read: {error}") from error


def read_files(
    files: Mapping[str, tuple[str, Path]], read: Callable[[str, Path], tuple[T | None, Sequence[str]]], otherwise: str
) -> Reading[T]:
    """Read the named sets from their files. A set whose file is missing or unusable is left out with a note.

    `files` has the title and path of each set. `otherwise` is the error message if none of the files exists.
    """
    if not any(path.is_file() for _, path in files.values()):
        raise Misuse(otherwise)
    sets: list[T] = []
    problems: list[str] = []
    for name, (title, path) in files.items():
        if not path.is_file():
            problems.append(f"{path} does not exist: {title} is left out")
            continue
        found, notes = read(name, path)
        problems += notes
        sets += [] if found is None else [found]
    if not sets:
        paths = ", ".join(str(path) for _, path in files.values())
        raise Misuse("\n".join([f"no set in {paths} can be read.", *problems]))
    return Reading(tuple(sets), tuple(problems))


def read_records(
    path: Path, columns: Sequence[str], parse: Callable[[list[str]], T]
) -> tuple[tuple[T, ...] | None, list[str], str]:
    """Return the records of a file (None if its header is wrong), the problems, and the SHA-256 of the file.

    `parse` receives the cells of a row and raises ValueError if the row is invalid.
    """
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    lines = content.removesuffix(b"\n").split(b"\n")
    header = lines[0].decode("utf-8", "replace").removeprefix("\ufeff").rstrip("\r").split("\t")
    if header != list(columns):
        wanted = f"not {' '.join(columns)!r} separated by tabs"
        problem = f"{path}:1: the header is {' '.join(header)[:80]!r}, {wanted}: the set is left out"
        return None, [problem], sha256
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
    return tuple(found), problems, sha256


def _cells(line: bytes, count: int) -> list[str]:
    try:
        cells = line.decode("utf-8").rstrip("\r").split("\t")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    if len(cells) != count:
        raise ValueError(f"{len(cells)} columns, not {count}")
    return cells
