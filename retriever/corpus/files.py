"""Read a corpus: a stream of the documents in files, folders and standard input.

The stream also contains an item for everything that could not be read.
"""

import datetime
import gzip
import os
import posixpath
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Self

from retriever.corpus.account import Account
from retriever.corpus.content import Content, Refused, described
from retriever.corpus.document import Document, Keys, Skipped, Unchanged, content_id
from retriever.corpus.encodings import SAMPLE, binary_kind, checked_encoding, decoded, utf8_stream, utf16_marked
from retriever.corpus.formats import FORMATS
from retriever.corpus.language import language_of_text
from retriever.corpus.listing import PLAIN_TEXT, STDIN, Patterns, SourceFile, find_files, resolved
from retriever.corpus.readers.lines import (
    LARGEST_DOCUMENT,
    NO_TEXT,
    TOO_LONG,
    read_json,
    read_jsonl,
    read_lines,
    regular_file,
    unpacked,
    whole,
)
from retriever.corpus.readers.mail import messages
from retriever.corpus.readers.markdown import read_markdown
from retriever.corpus.readers.notebook import read_notebook
from retriever.corpus.readers.process import ReaderProcess
from retriever.corpus.readers.rst import read_rst
from retriever.corpus.readers.standard_input import read_stdin
from retriever.corpus.readers.tables import WrongColumns, read_csv, read_tsv
from retriever.errors import MissingExtra, Misuse, require_type, requires_extra, shown

TOLD_EVERY = 16
"""How far a file has been read is asked once for this many of its documents, because the answer is a system call."""
READ_AS = 2
"""Increase this if files are read differently, so that unchanged files are read again."""
SETTLED = 2.0
"""Seconds. A file that was changed more recently may change again without a new time."""
JSON = ("jsonl", "json")
RECORD_READERS = {"jsonl": read_jsonl, "json": read_json, "csv": read_csv, "tsv": read_tsv}
TEXT_READERS: dict[str, Callable[[str], Content]] = {
    "txt": Content,
    "md": read_markdown,
    "rst": read_rst,
    "ipynb": read_notebook,
}


Item = Document | Skipped | Unchanged


class Corpus:
    """The documents of files, folders and standard input (`-`), in a fixed order.

    Iterating yields a `Document` for each document, and a `Skipped` for each item that cannot be read. The caller
    decides whether to stop at a `Skipped`. A corpus can be iterated again, unless standard input is one of its sources.

    >>> from pathlib import Path
    >>> _ = Path("notes.md").write_text("# Budget\\nThe budget was approved.")
    >>> [document.id for document in Corpus(["notes.md"])]
    ['notes.md']
    """

    def __init__(
        self,
        sources: Sequence[str | Path],
        *,
        keys: Keys = Keys(),  # noqa: B008 - frozen
        lines: bool = False,
        whole: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        encoding: str | None = None,
        stdin: BinaryIO | None = None,
    ) -> None:
        """Find the files.

        If `lines` is True, each line of a .txt file is a document. Otherwise the whole file is one document. If `whole`
        is True, standard input is one document. `include` and `exclude` are patterns as in .gitignore, and apply to
        files in folders. Files that match a pattern of `exclude` are not read. If `include` is given, only files that
        match one of its patterns are read, and a matching file of an unknown kind is read as text. `encoding` is the
        encoding of all texts. By default it is detected.
        """
        _check_arguments(sources, keys, include, exclude, encoding)
        self._encoding = checked_encoding(encoding) if encoding else None
        self.sources = tuple(map(str, sources))
        self.stored: dict[str, str] = {}
        """The states of files whose documents are stored, by id."""
        self._found = Account()
        self._patterns = Patterns(tuple(include), tuple(exclude))
        self.places = find_files(sources, self._patterns, self._found)
        self.account = self._found.copy()
        """What was read and what was not. It is complete at the end of an iteration."""
        self._keys = keys
        self._lines = lines
        self._whole = whole
        self._stdin = stdin
        self._stdin_read = False
        self._total = sum(place.size for place in self.places if isinstance(place, SourceFile))
        self._read = 0.0

    @property
    def reads_stdin(self) -> bool:
        return STDIN in self.places

    @property
    def origins(self) -> list[str]:
        """The absolute paths of the sources, sorted."""
        return resolved(self.sources)

    def listed_again(self) -> Self:
        """Return a corpus of the same sources, read in the same way, with the files that there are now."""
        return type(self)(
            self.sources,
            keys=self._keys,
            lines=self._lines,
            include=self._patterns.include,
            exclude=self._patterns.exclude,
            encoding=self._encoding,
        )

    @property
    def fraction_read(self) -> float | None:
        """The fraction of all bytes that has been read, from 0 to 1. None if standard input is one of the sources."""
        if STDIN in self.places:
            return None
        return min(1.0, self._read / self._total) if self._total else 1.0

    def __iter__(self) -> Iterator[Document | Skipped]:
        """Read every file, including files whose documents are stored."""
        return (item for item in self._all({}) if not isinstance(item, Unchanged))

    def changed(self) -> Iterator[Item]:
        """Read the files whose state differs from that in `stored`."""
        return self._all(self.stored)

    def _all(self, stored: Mapping[str, str]) -> Iterator[Item]:
        self._read = 0.0
        self.account = self._found.copy()
        process = ReaderProcess()
        try:
            yield from self._items(process, stored)
        finally:
            process.close()

    def _items(self, process: ReaderProcess, stored: Mapping[str, str]) -> Iterator[Item]:
        before = 0
        for place in self.places:
            if isinstance(place, Skipped):
                self.account.add_unread("", place.reason, place.where)
                yield place
            elif isinstance(place, str):
                if self._stdin_read:
                    raise Misuse("standard input can be read only once")
                self._stdin_read = True
                stream = self._stdin or sys.stdin.buffer
                yield from read_stdin(stream, self._keys, whole_input=self._whole, encoding=self._encoding)
            else:
                if place.name in stored and self._is_unchanged(place, stored[place.name]):
                    self.account.read[place.kind] += 1
                    yield Unchanged(place.name)
                else:
                    yield from self._accounted(place, before, process)
                before += place.size
                self._read = before

    def _accounted(self, file: SourceFile, before: int, process: ReaderProcess) -> Iterator[Document | Skipped]:
        """Read a file and add it to the account. Every `Skipped` gets the name of the file."""
        documents = 0
        failure = ""
        for item in self._read_file(file, before, process):
            if isinstance(item, Skipped):
                failure = failure or (item.reason if item.where == file.name else "none of its records can be read")
                item = replace(item, file=file.name)
            else:
                documents += 1
            yield item
        if failure and not documents:
            self.account.add_unread(file.kind, failure, file.name)
        else:
            self.account.read[file.kind] += 1

    def _read_file(self, file: SourceFile, before: int, process: ReaderProcess) -> Iterator[Document | Skipped]:
        def progress(fraction: float) -> None:
            self._read = before + fraction * file.size

        try:
            with regular_file(file.path) as raw:
                stream = unpacked(raw) if file.gzipped else raw
                if file.format == "parquet":
                    with requires_extra("parquet", "reading Parquet"):
                        from retriever.corpus.readers.parquet import read_parquet
                    yield from read_parquet(stream, file.name, self._keys, progress)
                elif FORMATS[file.format].reader == "records" or (file.format == PLAIN_TEXT and self._lines):
                    for number, item in enumerate(self._records(stream, file, process)):
                        if number % TOLD_EVERY == 0:
                            self._read = before + raw.tell()
                        yield item
                else:
                    status = os.fstat(raw.fileno())  # before it is read, so that a change meanwhile is noticed
                    data = whole(stream, FORMATS[file.format].largest)
                    self._read = before + raw.tell()
                    yield self._document(data, file, status, process)
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

    def _records(self, stream: BinaryIO, file: SourceFile, process: ReaderProcess) -> Iterator[Document | Skipped]:
        if file.format == "mbox":
            return _mailbox(stream, file, process)
        encoding = self._encoding
        if not encoding and file.format in JSON:  # it is UTF-8 without a mark, so other bytes are errors
            stream, encoding = utf16_marked(stream)
        if encoding or file.format not in JSON:
            stream = utf8_stream(stream, encoding)
        if file.format == PLAIN_TEXT:
            return read_lines(stream, file.name)
        return RECORD_READERS[file.format](stream, file.name, self._keys)

    def _document(
        self, data: bytes, file: SourceFile, status: os.stat_result, process: ReaderProcess
    ) -> Document | Skipped:
        """Make one document of a whole file."""
        encoding = ""
        if FORMATS[file.format].reader == "process":
            content = process.read(file.format, data, self._encoding)
        else:
            if kind := binary_kind(data[:SAMPLE]):
                raise Refused(f"is not text: it looks like {kind}")
            text, encoding = decoded(data, self._encoding)
            content = TEXT_READERS[file.format](text)
        if content.note:
            self.account.add_note(content.note, file.name)
        found = _document_of(content, file.name, file.name)
        if isinstance(found, Skipped):
            return found
        day = datetime.datetime.fromtimestamp(status.st_mtime, datetime.UTC).date().isoformat()
        facts = {
            "file": file.name,
            "folder": posixpath.dirname(file.name),
            "format": file.kind,
            "encoding": encoding,
            "date": content.metadata.get("date") or day,
            "language": content.metadata.get("language")
            or (language_of_text(found.text) if file.kind == file.format else ""),
        }
        found.metadata.update({key: value for key, value in facts.items() if value})
        if time.time() - max(status.st_mtime, status.st_ctime) < SETTLED:
            return found
        return replace(found, state=self._state(status))

    def _state(self, status: os.stat_result) -> str:
        """Return a text that changes if the file, or the way it is read, changes."""
        times = f"{status.st_mtime_ns}:{status.st_ctime_ns}"
        return f"{READ_AS}:{self._encoding or ''}:{status.st_size}:{times}:{status.st_ino}"

    def _is_unchanged(self, file: SourceFile, state: str) -> bool:
        if FORMATS[file.format].reader == "records" or (file.format == PLAIN_TEXT and self._lines):
            return False
        try:
            return state == self._state(file.path.stat())
        except OSError:
            return False


def _check_arguments(sources: object, keys: object, include: object, exclude: object, encoding: object) -> None:
    if isinstance(sources, str | PathLike):
        raise Misuse(f"`sources` must be a list of files and folders: Corpus([{str(sources)!r}]).")
    for name, given, kinds, what in (
        ("sources", sources, (str, PathLike), "files and folders"),
        ("include", include, (str,), "patterns"),
        ("exclude", exclude, (str,), "patterns"),
    ):
        if isinstance(given, str):
            raise Misuse(f"`{name}` must be a list of {what}: {name}=[{given!r}].")
        if not isinstance(given, Sequence) or not all(isinstance(one, kinds) for one in given):
            raise Misuse(f"`{name}` must be a list of {what}, not {shown(given)}.")
    if isinstance(keys, str):
        raise Misuse(f"`keys` must be Keys, e.g. Keys(text={keys!r}).")
    if isinstance(keys, Mapping):
        raise Misuse(
            f"`keys` must be Keys, not a dict: Keys({', '.join(f'{name}={key!r}' for name, key in keys.items())})."
        )
    require_type("keys", keys, "Keys", Keys)
    if encoding is not None:
        require_type("encoding", encoding, "the name of an encoding, e.g. cp1252", str)


def _document_of(content: Content, id_: str, where: str) -> Document | Skipped:
    text = content.text.replace("\0", "")
    if not text.strip():
        return Skipped(where, NO_TEXT, empty=True)
    source = f"{where}:{content.line}" if content.line > 1 else where
    return Document(id_, text, content.title.replace("\0", ""), content.metadata, source)


def _mailbox(stream: BinaryIO, file: SourceFile, process: ReaderProcess) -> Iterator[Document | Skipped]:
    """Read the messages of a mailbox. The id of a message is its Message-ID."""
    for line, data in messages(stream, LARGEST_DOCUMENT):
        where = f"{file.name}:{line}"
        if data is None:
            yield Skipped(where, TOO_LONG)
            continue
        try:
            content = process.read("eml", data)
        except Refused as error:
            yield Skipped(where, str(error))
            continue
        content.line = 1
        id_ = str(content.metadata.get("message_id", ""))
        found = _document_of(content, id_, where)
        if isinstance(found, Document):
            found.metadata.update(described(file=file.name, folder=posixpath.dirname(file.name), format="eml"))
            if not id_:
                found = replace(found, id=content_id(file.name, *found.content()))
        yield found
