"""Read a corpus: a stream of the documents in files, folders and standard input.

The stream also contains an item for everything that could not be read.
"""

import gzip
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from retriever.corpus.document import Document, Keys, Skipped
from retriever.corpus.lines import Refused, read_jsonl, read_lines, read_stdin, read_text, regular_file, unpacked
from retriever.corpus.tables import WrongColumns, read_csv, read_tsv
from retriever.errors import MissingExtra, Misuse, requires_extra

RECORD_READERS = {"jsonl": read_jsonl, "csv": read_csv, "tsv": read_tsv}
FORMATS = (*RECORD_READERS, "parquet", "txt", "md")
KNOWN = "the known types are .jsonl, .csv, .tsv, .parquet, .txt and .md, each also with .gz"
BEIR_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")
STDIN = "-"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read.

    Ids and messages use its `name`: its path below the folder in which it was found, or its path as the user gave it.
    """

    path: Path
    name: str
    format: str
    gzipped: bool
    size: int
    walked: bool
    """True if the file was found in a folder. It may then contain something other than documents."""


class Corpus:
    """The documents of files, folders and standard input (`-`), in a fixed order.

    Iterating yields a `Document` for each document, and a `Skipped` for each item that cannot be read. The caller
    decides whether to stop at a `Skipped`. A corpus can be iterated again, unless standard input is one of its sources.
    """

    def __init__(
        self,
        sources: Sequence[str | Path],
        *,
        keys: Keys = Keys(),  # noqa: B008 - frozen
        lines: bool = False,
        stdin: BinaryIO | None = None,
    ) -> None:
        """Find the files. If `lines` is True, each line of a .txt file is a document; otherwise the file is one."""
        self.places = _find(sources)
        self._keys = keys
        self._lines = lines
        self._stdin = stdin
        self._stdin_read = False
        self._total = sum(place.size for place in self.places if isinstance(place, SourceFile))
        self._read = 0.0

    @property
    def fraction_read(self) -> float | None:
        """The fraction of all bytes that has been read, from 0 to 1. None if standard input is one of the sources."""
        if STDIN in self.places:
            return None
        return min(1.0, self._read / self._total) if self._total else 1.0

    def __iter__(self) -> Iterator[Document | Skipped]:
        self._read = 0.0
        before = 0
        for place in self.places:
            if isinstance(place, Skipped):
                yield place
            elif isinstance(place, str):
                if self._stdin_read:
                    raise Misuse("standard input can be read only once")
                self._stdin_read = True
                yield from read_stdin(self._stdin or sys.stdin.buffer, self._keys)
            else:
                yield from self._read_file(place, before)
                before += place.size
                self._read = before

    def _read_file(self, file: SourceFile, before: int) -> Iterator[Document | Skipped]:
        def progress(fraction: float) -> None:
            self._read = before + fraction * file.size

        try:
            with regular_file(file.path) as raw:
                stream = unpacked(raw) if file.gzipped else raw
                if file.format == "parquet":
                    with requires_extra("parquet", "reading Parquet"):
                        from retriever.corpus.parquet import read_parquet
                    with _seekable(stream, file.gzipped) as whole:
                        yield from read_parquet(whole, file.name, self._keys, progress)
                    return
                for item in self._parse(stream, file):
                    self._read = before + raw.tell()
                    yield item
        except (WrongColumns, MissingExtra) as error:
            if not file.walked:
                raise Misuse(f"{file.name}: {error}") from error
            yield Skipped(file.name, str(error))
        except Refused as error:
            yield Skipped(file.name, str(error))
        except EOFError:
            yield Skipped(file.name, "is a truncated gzip file")
        except (gzip.BadGzipFile, zlib.error) as error:
            yield Skipped(file.name, f"is not a valid gzip file: {error}")
        except OSError as error:
            yield Skipped(file.name, f"cannot be read: {error.strerror or error}")

    def _parse(self, stream: BinaryIO, file: SourceFile) -> Iterator[Document | Skipped]:
        if read_records := RECORD_READERS.get(file.format):
            return read_records(stream, file.name, self._keys)
        if file.format == "txt" and self._lines:
            return read_lines(stream, file.name)
        return read_text(stream, file.name, markdown=file.format == "md")


@contextmanager
def _seekable(stream: BinaryIO, gzipped: bool) -> Iterator[BinaryIO]:
    """Unpack a gzip stream into a temporary file, because reading Parquet starts at the end of the file."""
    if not gzipped:
        yield stream
        return
    with tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(stream, unpacked)
        yield cast(BinaryIO, unpacked)


def _find(sources: Sequence[str | Path]) -> list[SourceFile | Skipped | str]:
    """List the files of all sources in order, each file once. A folder that cannot be listed becomes a `Skipped`.

    If two files would have the same name, the name of the later file is its whole path.
    """
    if not sources:
        raise Misuse("no source given: name a file, a folder, or - for standard input")
    missing = [str(source) for source in sources if str(source) != STDIN and _size(Path(source)) is None]
    if missing:
        raise Misuse(f"no such file or folder: {', '.join(missing)}")

    places: list[SourceFile | Skipped | str] = []
    seen: set[str] = set()
    names: set[str] = set()
    for source in dict.fromkeys(map(str, sources)):
        if source == STDIN:
            places.append(STDIN)
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
            gzipped = path.name.lower().endswith(".gz")
            places.append(SourceFile(path, name, _format(path.name), gzipped, _size(path) or 0, walked=is_folder))
    return places


def _size(path: Path) -> int | None:
    """Return the size in bytes, or None if the path does not exist or is not accessible."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return None


def _utf8_path(path: str) -> str:
    """Return the path as text that can be encoded as UTF-8, with / between its parts."""
    return os.fsencode(path.replace(os.sep, "/")).decode("utf-8", "backslashreplace")


def _format(file_name: str) -> str:
    """Return the format that belongs to the ending before .gz. Return an empty string if the ending is unknown."""
    format = Path(file_name.lower().removesuffix(".gz")).suffix.removeprefix(".")
    return format if format in FORMATS else ""


def _checked(path: Path) -> Path:
    """Return the path of a file that the user named. Raise `Misuse` if its type is unknown or it is not regular."""
    if not _format(path.name):
        raise Misuse(f"{path}: unknown type of file; {KNOWN} (other files can be piped to standard input: -)")
    if not path.is_file():
        raise Misuse(f"{path}: not a regular file; pipe it to standard input instead: -")
    return path


def _walk(folder: Path) -> Iterator[Path | Skipped]:
    """Find the files of known formats below a folder, in sorted order. Hidden files are left out.

    In a BEIR folder (a folder with a corpus.jsonl), only the corpus is read, because queries and judgements are not
    documents.
    """
    found = False
    failures: list[OSError] = []
    visited: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:  # not os.walk, which is recursive in Python 3.11
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
        readable = sorted({name for name in names if _format(name)} - set(folders))
        corpora = [name for name in BEIR_CORPUS if name in readable]
        for name in corpora[:1] or readable:
            found = True
            yield here / name
        if not corpora:
            waiting += [here / name for name in reversed(folders)]
    for failure in failures:
        yield Skipped(_utf8_path(str(failure.filename)), f"cannot be listed: {failure.strerror}")
    if not found and not failures:
        raise Misuse(f"{folder}: no readable file in this folder; {KNOWN}")
