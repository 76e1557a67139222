"""Whatever holds documents, a corpus of files or a Python list of texts, as one stream of documents."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, Literal

from retriever.corpus import Corpus, Document, Keys, Skipped
from retriever.corpus.document import kind
from retriever.corpus.limits import LARGEST_DOCUMENT, LARGEST_METADATA, TOO_LONG
from retriever.corpus.lines import MAX_DEPTH, half_character, record_document, too_deep
from retriever.errors import BadSource, Misuse, NoDocuments

OnError = Literal["skip", "stop"]
Documents = Iterable[Document | Skipped | str | dict[str, Any]]

KEYS = Keys(fixed=True)
REASONS_SHOWN = 5
MOST_UNREADABLE = 100_000
LOOKED_AT = 5000
CHARACTERS_LOOKED_AT = 8_000_000


class Source:
    """Documents from whatever the caller has, and how much of it has been read, where that can be known."""

    def __init__(self, documents: Documents) -> None:
        if isinstance(documents, str | Mapping) or not isinstance(documents, Iterable):
            raise Misuse("documents must be a list, a Corpus or another iterable of documents, texts or dicts.")
        self._documents = documents
        self._items = iter(documents)
        self._taken = 0
        self._ahead: deque[Document | Skipped] = deque()
        self._failure: Exception | None = None

    def __iter__(self) -> Iterator[Document | Skipped]:
        yield from self.looked_at()
        yield from self._rest()

    def looked_at(self) -> Iterator[Document | Skipped]:
        """What was read to look ahead; where that failed, the failure after it."""
        while self._ahead:
            yield self._ahead.popleft()
        if self._failure:
            raise self._failure

    @property
    def files(self) -> Corpus | None:
        """The corpus, if another process can read the same from it: files alone."""
        corpus = self._documents
        return corpus if isinstance(corpus, Corpus) and corpus.fraction_read is not None else None

    @property
    def taken(self) -> int:
        """How many have been read, those that were only looked at too."""
        return self._taken

    def _rest(self) -> Iterator[Document | Skipped]:
        for given in self._items:
            self._taken += 1
            yield _as_document(given, f"document {self._taken}")

    @property
    def fraction_read(self) -> float | None:
        """How much has been given out, from 0 to 1; what was only looked at does not count."""
        taken = None
        if isinstance(self._documents, Corpus):
            taken = self._documents.fraction_read
        elif isinstance(self._documents, Sized):
            taken = self._taken / len(self._documents)
        return taken * (1 - len(self._ahead) / self._taken) if taken and self._ahead else taken

    def refuse_if_empty(self, on_error: OnError = "skip") -> None:
        """Look ahead to the first document, so that no folder is made for a source that has none.

        With `stop`, nor is one made for a source that begins with what cannot be read. Of a source that begins with
        `MOST_UNREADABLE` such places no more is looked at: they are held in memory.
        """
        reasons: list[str] = []
        for item in self._rest():
            self._ahead.append(item)
            if isinstance(item, Document):
                return
            if on_error == "stop":
                raise BadSource(
                    f"{item.where}: {item.reason}. Nothing was indexed; mend it and run the same command again, or "
                    "give --on-error skip."
                )
            if len(self._ahead) >= MOST_UNREADABLE:
                return
            if len(reasons) < REASONS_SHOWN:
                reasons.append(f"\n  {item.where}: {item.reason}")
        raise NoDocuments(
            f"there is no document in the source, so nothing was indexed.{''.join(reasons)}",
            [(item.where, item.reason) for item in self._ahead if isinstance(item, Skipped)],
        )

    def look_ahead(self) -> list[Document]:
        """The first documents, as many as memory is spent on; they are still to come when it is read.

        An error is raised where the reading comes to it, not here: what stands before it is not lost.
        """
        characters = sum(item.characters() for item in self._ahead if isinstance(item, Document))
        try:
            for item in self._rest():
                self._ahead.append(item)
                characters += item.characters() if isinstance(item, Document) else 0
                if len(self._ahead) >= LOOKED_AT or characters >= CHARACTERS_LOOKED_AT:
                    break
        except Exception as error:  # whatever the caller's iterable raises
            self._failure = error
        return [item for item in self._ahead if isinstance(item, Document)]


def _as_document(given: object, where: str) -> Document | Skipped:
    """A document from whatever was given, or why it is none.

    A plain text or a dict without an id goes by the hash of its text; dicts are read as files' objects are.
    """
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
    """Why a document cannot be stored as it is; None if it can."""
    for name in ("id", "title", "text", "source"):
        value = getattr(document, name)
        if not isinstance(value, str):
            return f"its {name} is {kind(value)}, not a string"
        if "\0" in value:
            return f"its {name} holds a NUL character"
    if not document.id.strip():
        return "its id is empty"
    if not document.text.strip():
        return "has no text"
    if len(document.id) + len(document.title) + len(document.text) > LARGEST_DOCUMENT:
        return TOO_LONG
    if not isinstance(document.metadata, dict):
        return f"its metadata is {kind(document.metadata)}, not an object"
    return half_character(document.id + "\n" + document.title + "\n" + document.text) or _metadata_flaw(
        document.metadata
    )


def _metadata_flaw(metadata: dict[str, Any]) -> str | None:
    if not metadata:
        return None
    try:
        written = json.dumps(metadata, sort_keys=True, ensure_ascii=False, allow_nan=False)
        if len(written) > LARGEST_METADATA:
            return f"its metadata has {len(written):,} characters as JSON, and at most {LARGEST_METADATA:,} are kept"
        if written.count("[") + written.count("{") > MAX_DEPTH and too_deep(json.loads(written)):
            return "its metadata is nested too deeply"
        return half_character(written)
    except RecursionError:
        return "its metadata is nested too deeply"
    except (TypeError, ValueError) as error:
        return f"its metadata cannot be written as JSON: {error}"
