"""The corpus: a stream of the documents of all sources, and of what could not be read."""

import gzip
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from retriever.corpus import limits, tables
from retriever.corpus import lines as line_formats
from retriever.corpus.document import Document, Keys, Skipped
from retriever.corpus.files import SourceFile, Stdin, find
from retriever.errors import MissingExtra, Misuse, requires_extra


class Corpus:
    """The documents of files, folders and standard input (`-`), in a fixed order.

    Iterating yields a `Document`, or a `Skipped` for what cannot be read, and continues; the caller decides whether to
    stop. A corpus can be iterated again, unless standard input is one of its sources.
    """

    def __init__(
        self,
        sources: Sequence[str | Path],
        *,
        keys: Keys = Keys(),  # noqa: B008 - frozen
        lines: bool = False,
        stdin: BinaryIO | None = None,
    ) -> None:
        """`lines`: each line of a .txt file is a document; otherwise the file is one document."""
        self.places = find(sources)
        self._keys = keys
        self._lines = lines
        self._stdin = stdin
        self._stdin_read = False
        self._total = sum(place.size for place in self.places if isinstance(place, SourceFile))
        self._read = 0.0

    @property
    def fraction_read(self) -> float | None:
        """The fraction of all bytes that has been read, from 0 to 1; None if standard input is one of the sources."""
        if any(isinstance(place, Stdin) for place in self.places):
            return None
        return min(1.0, self._read / self._total) if self._total else 1.0

    def __iter__(self) -> Iterator[Document | Skipped]:
        self._read = 0.0
        before = 0
        for place in self.places:
            if isinstance(place, Skipped):
                yield place
            elif isinstance(place, Stdin):
                if self._stdin_read:
                    raise Misuse("standard input can be read only once")
                self._stdin_read = True
                yield from line_formats.read_stdin(self._stdin or sys.stdin.buffer, self._keys)
            else:
                yield from self._read_file(place, before)
                before += place.size
                self._read = before

    def _read_file(self, file: SourceFile, before: int) -> Iterator[Document | Skipped]:
        def progress(fraction: float) -> None:
            self._read = before + fraction * file.size

        try:
            with limits.regular_file(file.path) as raw:
                stream = limits.unpacked(raw) if file.gzipped else raw
                if file.format == "parquet":
                    with requires_extra("parquet", "reading Parquet"):
                        from retriever.corpus.parquet import read_parquet
                    with _seekable(stream, file.gzipped) as whole:
                        yield from read_parquet(whole, file.name, self._keys, progress)
                    return
                for item in self._parse(stream, file):
                    self._read = before + raw.tell()
                    yield item
        except (tables.WrongColumns, MissingExtra) as error:
            if not file.walked:
                raise Misuse(f"{file.name}: {error}") from error
            yield Skipped(file.name, str(error))
        except limits.Refused as error:
            yield Skipped(file.name, str(error))
        except EOFError:
            yield Skipped(file.name, "is a truncated gzip file")
        except (gzip.BadGzipFile, zlib.error) as error:
            yield Skipped(file.name, f"is not a sound gzip file: {error}")
        except OSError as error:
            yield Skipped(file.name, f"cannot be read: {error.strerror or error}")

    def _parse(self, stream: BinaryIO, file: SourceFile) -> Iterator[Document | Skipped]:
        if file.format == "jsonl":
            return line_formats.read_jsonl(stream, file.name, self._keys)
        if file.format == "csv":
            return tables.read_csv(stream, file.name, self._keys)
        if file.format == "tsv":
            return tables.read_tsv(stream, file.name, self._keys)
        if file.format == "txt" and self._lines:
            return line_formats.read_lines(stream, file.name)
        return line_formats.read_text(stream, file.name, markdown=file.format == "md")


@contextmanager
def _seekable(stream: BinaryIO, gzipped: bool) -> Iterator[BinaryIO]:
    """Unpack a gzip stream into a temporary file, because Parquet has its directory at the end."""
    if not gzipped:
        yield stream
        return
    with tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(stream, unpacked)
        yield cast(BinaryIO, unpacked)
