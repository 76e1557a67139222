"""Which files a corpus is read from: sources given by the user, folders walked, each file once."""

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
    """One file to read. Its name, in ids and messages, is its path below the folder it was found in, or as given."""

    path: Path
    name: str
    format: str
    gzipped: bool
    size: int
    walked: bool
    """Whether it was found in a folder, and so need not be one of documents."""


class Stdin:
    """Stands for standard input among the files."""


Place = SourceFile | Stdin | Skipped


def find(sources: Sequence[str | Path]) -> list[Place]:
    """The files of all sources, in order, each once however often it is named; folders that cannot be listed
    stand among them as `Skipped`.

    A file goes by its path below the folder that was given, or by its own as given; if two have the same name, the
    later one goes by its path from here.
    """
    if not sources:
        raise Misuse("no source given: name a file, a folder, or - for standard input")
    missing = [str(source) for source in sources if str(source) != "-" and _size(Path(source)) is None]
    if missing:
        raise Misuse(f"no such file or folder: {', '.join(missing)}")

    places: list[Place] = []
    seen: set[str] = set()
    names: set[str] = set()
    for source in dict.fromkeys(map(str, sources)):
        if source == "-":
            places.append(Stdin())
            continue
        is_folder = Path(source).is_dir()
        for path in _walk(Path(source)) if is_folder else _given(Path(source)):
            if isinstance(path, Skipped):
                places.append(path)
                continue
            real = os.path.realpath(path)
            if real in seen:
                continue
            seen.add(real)
            below = path.relative_to(source) if is_folder else path
            candidates = (_readable(str(candidate)) for candidate in (below, path, real))
            name = next((candidate for candidate in candidates if candidate not in names), _readable(real))
            names.add(name)
            format = _format(path.name)
            assert format is not None
            places.append(SourceFile(path, name, *format, _size(path) or 0, walked=is_folder))
    return places


def _size(path: Path) -> int | None:
    """Bytes; None if nothing is there, or nothing that may be looked at."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return None


def _readable(path: str) -> str:
    """A path as text that UTF-8 can hold, with / between its parts."""
    return os.fsencode(path.replace(os.sep, "/")).decode("utf-8", "backslashreplace")


def _format(file_name: str) -> tuple[str, bool] | None:
    """The format a file's ending stands for, and whether it is gzipped."""
    stem = file_name.lower()
    gzipped = stem.endswith(".gz")
    format = Path(stem.removesuffix(".gz")).suffix.removeprefix(".")
    return (format, gzipped) if format in FORMATS else None


def _given(path: Path) -> Iterator[Path | Skipped]:
    if _format(path.name) is None:
        raise Misuse(
            f"{path}: unknown kind of file; known are {', '.join(ENDINGS)}, each also with .gz"
            " (anything else can be piped to standard input: -)"
        )
    if not path.is_file():
        raise Misuse(f"{path}: not a regular file; pipe it to standard input instead: -")
    yield path


def _walk(folder: Path) -> Iterator[Path | Skipped]:
    """The readable files below a folder, in sorted order, hidden ones left out.

    Of a BEIR folder (one with a corpus.jsonl) only the corpus: its queries and judgements are no documents.
    """
    found = False
    unlisted: list[OSError] = []
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
            unlisted.append(error)
            continue
        folders = [name for name in names if os.path.isdir(here / name)]  # noqa: PTH112 - False for a loop of links
        readable = sorted({name for name in names if _format(name) is not None} - set(folders))
        corpora = [name for name in BEIR_CORPUS if name in readable]
        for name in corpora[:1] or readable:
            found = True
            yield here / name
        if not corpora:
            waiting += [here / name for name in reversed(folders)]
    for failure in unlisted:
        found = True
        yield Skipped(_readable(str(failure.filename)), f"cannot be listed: {failure.strerror}")
    if not found:
        raise Misuse(f"{folder}: no readable file in this folder; known are {', '.join(ENDINGS)}, also with .gz")
