"""Whatever holds documents, a corpus of files or a Python list of texts, as one stream of documents."""

import hashlib
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from retriever.corpus import Corpus, Document, Skipped
from retriever.errors import Misuse

Documents = Iterable[Document | Skipped | str | dict[str, Any]]


class Source:
    """Documents from whatever the caller has, and how much of it has been read, where that can be known."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._items = iter(documents)
        self._taken = 0
        self._ahead: list[Document | Skipped] = []

    def __iter__(self) -> Iterator[Document | Skipped]:
        yield from self._ahead
        yield from self._rest()

    def _rest(self) -> Iterator[Document | Skipped]:
        for given in self._items:
            self._taken += 1
            yield _as_document(given)

    @property
    def fraction_read(self) -> float | None:
        if isinstance(self._documents, Corpus):
            return self._documents.fraction_read
        return self._taken / len(self._documents) if isinstance(self._documents, Sized) else None

    def refuse_if_empty(self) -> None:
        """Look ahead to the first document, so that no folder is made for a source that has none."""
        for item in self._rest():
            self._ahead.append(item)
            if isinstance(item, Document):
                return
        reasons = "".join(f"\n  {item.where}: {item.reason}" for item in self._ahead[:5] if isinstance(item, Skipped))
        raise Misuse(f"there is no document in the source, so nothing was indexed.{reasons}")


def _as_document(given: Document | Skipped | str | dict[str, Any]) -> Document | Skipped:
    """A document from a plain text or a dict; without an id of its own it goes by the hash of its text."""
    if isinstance(given, Document | Skipped):
        return given
    if isinstance(given, str):
        return _as_document({"text": given})
    text = given.get("text")
    if not isinstance(text, str) or not text.strip():
        return Skipped(str(given.get("id", given)), "has no text")
    given_id = given.get("id")
    own_id = hashlib.sha256(text.encode("utf-8")).hexdigest()[:16] if given_id is None else str(given_id)
    return Document(own_id, text, str(given.get("title") or ""), dict(given.get("metadata") or {}))
