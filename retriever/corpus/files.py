"""Finds the files of a corpus: sources named by the user, and files in folders, each file once."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from retriever.corpus.document import Skipped
from retriever.errors import Misuse

FORMATS = ("jsonl", "csv", "tsv", "parquet", "txt", "md")
ENDINGS = tuple(f".{format}" for format in FORMATS)
BEIR_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read. Ids and messages use its name: its path below the folder that was searched, or as given."""

    path: Path
    name: str
    format: str
    gzipped: bool
    size: int
    walked: bool
    """True if it was found in a folder, so that it may hold something other than documents."""


class Stdin:
    """Stands for standard input among the files."""


def find(sources: Sequence[str | Path]) -> list[SourceFile | Stdin | Skipped]:
    """List the files of all sources in order, each file once; a folder that cannot be listed becomes a `Skipped`.

    If two files would have the same name, the later one is named by its path from the working directory.
    """
    if not sources:
        raise Misuse("no source given: name a file, a folder, or - for standard input")
    missing = [str(source) for source in sources if str(source) != "-" and _size(Path(source)) is None]
    if missing:
        raise Misuse(f"no such file or folder: {', '.join(missing)}")

    places: list[SourceFile | Stdin | Skipped] = []
    seen: set[str] = set()
    names: set[str] = set()
    for source in dict.fromkeys(map(str, sources)):
        if source == "-":
            places.append(Stdin())
            continue
        is_folder = Path(source).is_dir()
        for path in _walk(Path(source)) if is_folder else [_checked(Path(source))]:
            if isinstance(path, Skipped):
                places.append(path)
                continue
            real = os.path.realpath(path)
            if real in seen:
                continue
            seen.add(real)
            below = path.relative_to(source) if is_folder else path
            candidates = (_utf8_path(str(candidate)) for candidate in (below, path, real))
            name = next((candidate for candidate in candidates if candidate not in names), _utf8_path(real))
            names.add(name)
            format = _format(path.name)
            assert format is not None
            places.append(SourceFile(path, name, *format, _size(path) or 0, walked=is_folder))
    return places


def _size(path: Path) -> int | None:
    """The size in bytes; None if the path does not exist or is not accessible."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return None


def _utf8_path(path: str) -> str:
    """A path that can be encoded as UTF-8, with / between its parts."""
    return os.fsencode(path.replace(os.sep, "/")).decode("utf-8", "backslashreplace")


def _format(file_name: str) -> tuple[str, bool] | None:
    """The format by the file's ending, and whether the file is gzipped; None if the ending is unknown."""
    stem = file_name.lower()
    format = Path(stem.removesuffix(".gz")).suffix.removeprefix(".")
    return (format, stem.endswith(".gz")) if format in FORMATS else None


def _checked(path: Path) -> Path:
    """Refuse a file named by the user that is not of a known format or not a regular file."""
    if _format(path.name) is None:
        raise Misuse(
            f"{path}: unknown kind of file; known are {', '.join(ENDINGS)}, each also with .gz"
            " (anything else can be piped to standard input: -)"
        )
    if not path.is_file():
        raise Misuse(f"{path}: not a regular file; pipe it to standard input instead: -")
    return path


def _walk(folder: Path) -> Iterator[Path | Skipped]:
    """Find the files of known formats below a folder, in sorted order, without hidden ones.

    In a BEIR folder (one with a corpus.jsonl) only the corpus counts: queries and judgements are not documents.
    """
    found = False
    failures: list[OSError] = []
    visited: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:  # os.walk of Python 3.11 calls itself for every level
        here = waiting.pop()
        try:
            status = here.stat()
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            names = sorted(name for name in os.listdir(here) if not name.startswith("."))  # noqa: PTH208 - names alone
        except OSError as error:
            failures.append(error)
            continue
        folders = [name for name in names if os.path.isdir(here / name)]  # noqa: PTH112 - False for a loop of links
        readable = sorted({name for name in names if _format(name) is not None} - set(folders))
        corpora = [name for name in BEIR_CORPUS if name in readable]
        for name in corpora[:1] or readable:
            found = True
            yield here / name
        if not corpora:
            waiting += [here / name for name in reversed(folders)]
    for failure in failures:
        yield Skipped(_utf8_path(str(failure.filename)), f"cannot be listed: {failure.strerror}")
    if not found and not failures:
        raise Misuse(f"{folder}: no readable file in this folder; known are {', '.join(ENDINGS)}, also with .gz")
