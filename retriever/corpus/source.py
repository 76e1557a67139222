"""Turn the argument of the caller into one stream of documents.

The argument is a corpus of files, or an iterable of documents, texts or dicts.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, Literal

from retriever.corpus.document import Document, Keys, Skipped, json_name
from retriever.corpus.files import Corpus
from retriever.corpus.lines import (
    LARGEST_DOCUMENT,
    LARGEST_METADATA,
    NESTED,
    TOO_LONG,
    lone_surrogate,
    record_document,
    too_deep,
)
from retriever.errors import BadSource, Misuse, NoDocuments

OnError = Literal["skip", "stop"]
Documents = Iterable[Document | Skipped | str | dict[str, Any]]

KEYS = Keys(fixed=True)
REASONS_SHOWN = 5
MOST_SKIPPED_AHEAD = 100_000
DOCUMENTS_AHEAD = 5000
CHARACTERS_AHEAD = 8_000_000


class Source:
    """A stream of documents. It can be read ahead, and it knows which fraction of it has been read."""

    def __init__(self, documents: Documents) -> None:
        if isinstance(documents, str | Mapping) or not isinstance(documents, Iterable):
            raise Misuse("documents must be a list, a Corpus or another iterable of documents, texts or dicts.")
        self._documents = documents
        self._items = iter(documents)
        self.taken = 0
        """The number of items read, including those read ahead."""
        self._ahead: deque[Document | Skipped] = deque()
        self._failure: Exception | None = None

    def __iter__(self) -> Iterator[Document | Skipped]:
        yield from self.read_ahead()
        yield from self._rest()

    def read_ahead(self) -> Iterator[Document | Skipped]:
        """Yield the items that were read ahead. Then raise the error that ended the reading, if any."""
        while self._ahead:
            yield self._ahead.popleft()
        if self._failure:
            raise self._failure

    def _rest(self) -> Iterator[Document | Skipped]:
        for given in self._items:
            self.taken += 1
            yield _as_document(given, f"document {self.taken}")

    @property
    def files(self) -> Corpus | None:
        """The corpus, if it consists only of files, so that another process can read it too. Otherwise None."""
        corpus = self._documents
        return corpus if isinstance(corpus, Corpus) and corpus.fraction_read is not None else None

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
        for item in self._rest():
            self._ahead.append(item)
            if isinstance(item, Document):
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

    def peek(self, factor: int = 1) -> list[Document]:
        """Return the first documents, within limits of number and memory. Iterating still yields them.

        `factor` multiplies the limits.

        An error of the caller's iterable is not raised here, but later, when the iteration reaches it.
        """
        characters = sum(item.characters() for item in self._ahead if isinstance(item, Document))
        try:
            for item in self._rest():
                self._ahead.append(item)
                characters += item.characters() if isinstance(item, Document) else 0
                if len(self._ahead) >= factor * DOCUMENTS_AHEAD or characters >= factor * CHARACTERS_AHEAD:
                    break
        except Exception as error:  # any class: it comes from the caller's iterable
            self._failure = error
        return [item for item in self._ahead if isinstance(item, Document)]


def _as_document(given: object, where: str) -> Document | Skipped:
    """Convert an item from the caller. The id of a text, or of a dict without an id, is the hash of its text."""
    if isinstance(given, Skipped):
        return given
    if isinstance(given, str):
        given = {"text": given}
    if isinstance(given, dict):
        given = record_document(given, KEYS, where, by_text=True)
    elif not isinstance(given, Document):
        return Skipped(where, f"is of the type {type(given).__name__}, not a text, a dict or a Document")
    if isinstance(given, Document) and (reason := _flaw(given)):
        return Skipped(given.source or where, reason)
    return given


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
