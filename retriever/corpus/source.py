"""Turn the argument of the caller into one stream of documents.

The argument is a corpus of files, an iterable of documents, texts or dicts, or a data frame.
"""

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from retriever.corpus.account import Account
from retriever.corpus.document import TIMES, Document, Keys, Skipped, Unchanged, as_numbers, json_name
from retriever.corpus.files import Corpus, Item
from retriever.corpus.frames import VECTOR, Frame, plain_value, rows_of
from retriever.corpus.readers.lines import (
    LARGEST_DOCUMENT,
    LARGEST_METADATA,
    NESTED,
    TOO_LONG,
    lone_surrogate,
    record_document,
    too_deep,
)
from retriever.errors import BadSource, Misuse, NoDocuments

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OnError = Literal["skip", "stop"]
Documents = Iterable[Document | Skipped | str | Mapping[str, object]] | Frame
"""Texts, dicts or `Document` objects, a `Corpus` of files, or a frame of pandas, polars or Arrow."""

KEYS = Keys(fixed=True)
REASONS_SHOWN = 5
MOST_SKIPPED_AHEAD = 100_000
DOCUMENTS_AHEAD = 5000
CHARACTERS_AHEAD = 8_000_000


class Source:
    """A stream of documents. It can be read ahead, and it knows which fraction of it has been read."""

    def __init__(self, documents: Documents) -> None:
        rows = None if isinstance(documents, Corpus) else rows_of(documents, KEYS)
        if rows is not None:
            documents = rows
        if isinstance(documents, PathLike) or (isinstance(documents, str) and os.path.lexists(documents)):
            raise Misuse(f"documents must be a list or a Corpus; to read files, give Corpus([{str(documents)!r}]).")
        if isinstance(documents, str | Mapping) or not isinstance(documents, Iterable):
            raise Misuse(
                "documents must be a list, a Corpus, a data frame or another iterable of documents, texts or dicts, "
                f"not {_kind(documents)}."
            )
        self._documents = documents
        self._items = documents.changed() if isinstance(documents, Corpus) else iter(documents)
        self.taken = 0
        """The number of items read, including those read ahead."""
        self._ahead: deque[Item] = deque()
        self._failure: Exception | None = None

    def __iter__(self) -> Iterator[Item]:
        yield from self.read_ahead()
        yield from self._rest()

    def read_ahead(self) -> Iterator[Item]:
        """Yield the items that were read ahead. Then raise the error that ended the reading, if any."""
        while self._ahead:
            yield self._ahead.popleft()
        if self._failure:
            raise self._failure

    def _rest(self) -> Iterator[Item]:
        for given in self._items:
            self.taken += 1
            yield _as_document(given, f"document {self.taken}")

    def leave_out(self, stored: Mapping[str, str]) -> None:
        """Do not read files whose state is the stored one.

        They become `Unchanged`. Items that were read ahead are kept.
        """
        if isinstance(self._documents, Corpus):
            self._documents.stored.update(stored)

    @property
    def files(self) -> Corpus | None:
        """The corpus, if it consists only of files, so that another process can read it too. Otherwise None."""
        corpus = self._documents
        return corpus if isinstance(corpus, Corpus) and corpus.fraction_read is not None else None

    @property
    def account(self) -> Account | None:
        """What was read of the files, and what was not. None if the source is not made of files."""
        return self._documents.account if isinstance(self._documents, Corpus) else None

    @property
    def origins(self) -> list[str] | None:
        """The absolute paths of the files and folders, sorted. None if the source is not made of files."""
        return self._documents.origins if isinstance(self._documents, Corpus) else None

    @property
    def fraction_taken(self) -> float | None:
        """The fraction that has been read, from 0 to 1, including items that were read ahead. None if unknown."""
        if isinstance(self._documents, Corpus):
            return self._documents.fraction_read
        return self.taken / len(self._documents) if isinstance(self._documents, Sized) else None

    @property
    def fraction_read(self) -> float | None:
        """The fraction that has been yielded, from 0 to 1, without items that were read ahead. None if unknown."""
        taken = self.fraction_taken
        return taken * (1 - len(self._ahead) / self.taken) if taken and self._ahead else taken

    def refuse_if_empty(self, on_error: OnError = "skip") -> None:
        """Read ahead to the first document. Raise `NoDocuments` if there is none, before a collection is created.

        With `on_error="stop"`, also raise `BadSource` if the source begins with an unreadable item. The reading ends
        after `MOST_SKIPPED_AHEAD` unreadable items, because they are held in memory.
        """
        reasons: list[str] = []
        for item in self._from_the_start():
            if not isinstance(item, Skipped):
                return
            if on_error == "stop":
                raise BadSource(
                    f"{item.where}: {item.reason}. Nothing was indexed. Fix it and try again, or give "
                    '`on_error="skip"`.'
                )
            if len(self._ahead) >= MOST_SKIPPED_AHEAD:
                return
            if len(reasons) < REASONS_SHOWN:
                reasons.append(f"\n  {item.where}: {item.reason}")
        raise NoDocuments(
            f"there is no document in the source, so nothing was indexed.{''.join(reasons)}",
            [(item.where, item.reason) for item in self._ahead if isinstance(item, Skipped)],
        )

    def _from_the_start(self) -> Iterator[Item]:
        """Yield the items that were read ahead, then read further ahead. Iterating still yields all of them."""
        yield from list(self._ahead)
        for item in self._rest():
            self._ahead.append(item)
            yield item

    def brings_vectors(self) -> bool:
        """Return whether the first document brings its vector. Documents of files never do."""
        return not isinstance(self._documents, Corpus) and self.dimension() > 0

    def dimension(self) -> int:
        """Return the dimension of the vector that the first document brings, or 0 if it brings none."""
        for item in self._from_the_start():
            if isinstance(item, Document):
                return 0 if item.vector is None else len(item.vector)
            if len(self._ahead) >= MOST_SKIPPED_AHEAD:
                break
        return 0

    def peek(self, factor: int = 1) -> list[Document]:
        """Return the first documents, within limits of number and memory. Iterating still yields them.

        `factor` multiplies the limits.

        An error of the caller's iterable is not raised here, but later, when the iteration reaches it.
        """
        characters = sum(item.characters() for item in self._ahead if isinstance(item, Document))
        rest = iter(self._rest())
        try:
            while len(self._ahead) < factor * DOCUMENTS_AHEAD and characters < factor * CHARACTERS_AHEAD:
                if (item := next(rest, None)) is None:
                    break
                self._ahead.append(item)
                characters += item.characters() if isinstance(item, Document) else 0
        except Exception as error:  # any class: it comes from the caller's iterable
            self._failure = error
        return [item for item in self._ahead if isinstance(item, Document)]


def _as_document(given: object, where: str) -> Item:
    """Convert an item from the caller. The id of a text, or of a dict without an id, is the hash of its text."""
    if isinstance(given, Skipped | Unchanged):
        return given
    file = given.source if isinstance(given, Document) else ""
    if isinstance(given, str):
        given = {"text": given}
    if isinstance(given, Mapping):
        given = _record(given, where)
    elif not isinstance(given, Document):
        return Skipped(where, f"is of the type {type(given).__name__}, not a text, a dict or a Document")
    if isinstance(given, Skipped):
        return given
    reason, row = _flaw(given), None
    # Converted once, here: what is stored and hashed is this row.
    if not reason and given.vector is not None:
        reason, row = _stored_vector(given.vector)
    if reason:
        return Skipped(given.source or where, reason, file=file)
    return given if row is None else replace(given, vector=row)


def _flaw(document: Document) -> str | None:
    """Return the reason why a document cannot be stored, or None if it can be stored."""
    for name in ("id", "title", "text", "source"):
        value = getattr(document, name)
        if not isinstance(value, str):
            return f"its {name} is {json_name(value)}, not a string"
        if "\0" in value:
            return f"its {name} holds a NUL character"
    if not document.id.strip():
        return "its id is empty"
    if not document.text.strip():
        return "has no text"
    if len(document.id) + len(document.title) + len(document.text) > LARGEST_DOCUMENT:
        return TOO_LONG
    if not isinstance(document.metadata, dict):
        return f"its metadata is {json_name(document.metadata)}, not an object"
    strings = "\n".join((document.id, document.title, document.text))
    return lone_surrogate(strings) or _metadata_flaw(document.metadata)


def _record(given: Mapping[str, Any], where: str) -> Document | Skipped:
    """Make a document from a dict, with its vector if it has the key `vector`."""
    record = _plain(given)
    vector = record.pop(VECTOR, None)
    if isinstance(metadata := record.get("metadata"), dict):
        record["metadata"] = _plain(metadata)
    document = record_document(record, KEYS, where)
    return document if vector is None or isinstance(document, Skipped) else replace(document, vector=vector)


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Convert dates, times and values of numpy to those that JSON can hold, as for frames."""
    return {
        key: plain_value(value)
        if key != VECTOR and not isinstance(value, str) and (hasattr(value, "tolist") or isinstance(value, TIMES))
        else value
        for key, value in record.items()
    }


def _stored_vector(vector: Any) -> tuple[str | None, "NDArray[np.float16] | None"]:
    """Return the vector of a document in half precision, as it is stored. If that is impossible, return the reason."""
    import numpy as np

    try:
        row = as_numbers(vector, np.float16)
    except TypeError:
        return f"its vector is {json_name(vector)} that is not a list of numbers", None
    if row.ndim != 1 or not row.size:
        return f"its vector is {json_name(vector)}, not a list of numbers", None
    if not np.isfinite(row).all():
        return "its vector holds NaN, infinity, or a number beyond half precision", None
    return None, row


def _metadata_flaw(metadata: dict[str, Any]) -> str | None:
    if not metadata:
        return None
    try:
        written = json.dumps(metadata, sort_keys=True, ensure_ascii=False, allow_nan=False)
        if len(written) > LARGEST_METADATA:
            return f"its metadata has {len(written):,} characters as JSON; the maximum is {LARGEST_METADATA:,}"
        return f"its metadata is {NESTED}" if too_deep(written, metadata) else lone_surrogate(written)
    except RecursionError:
        return f"its metadata is {NESTED}"
    except (TypeError, ValueError) as error:
        return f"its metadata cannot be written as JSON: {error}"


def _kind(given: object) -> str:
    return (
        "one text"
        if isinstance(given, str)
        else "one dict"
        if isinstance(given, Mapping)
        else f"an object of the type {type(given).__name__}"
    )
