"""The ingestion pipeline: documents in, raw vectors and rows in SQLite out.

    read ─▶ leave out what is stored unchanged ─▶ split into passages ─▶ embed texts never met ─▶ store

Documents are gathered into windows. While the encoder's threads tokenise and embed one window, this thread, the only
one that touches SQLite, stores what they have finished and reads and splits the next. Vectors are stored batch by batch
as they come, documents once all their passages have one. A run that is killed has lost at most the few batches in the
encoder: the next run finds the documents by their content hash and the vectors by the hash of their text, and goes on.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import numpy as np

from indexes.documents import VECTOR_TYPE, DocumentRow, DocumentStore
from retriever.corpus import Document, Skipped
from retriever.drift import Drift
from retriever.encoder import Encoder
from retriever.encoding import Encoding
from retriever.errors import BadSource, Misuse, RetrieverError
from retriever.passages import encoded_text, fit_title, split
from retriever.progress import Progress, silent

OnError = Literal["skip", "stop"]

READ_TOGETHER = 512
# Texts are sorted by length within a window this large; memory is bounded by it, not by the corpus.
WINDOW_TEXTS = 4096
WINDOW_CHARACTERS = 4_000_000
SKIPPED_KEPT = 1000
# So many documents are prepared between two looks at what the encoder has finished.
PREPARED_BETWEEN = 32


@dataclass
class IngestReport:
    """What a run did, in documents unless the name says otherwise."""

    read: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    duplicate_ids: int = 0
    pruned: int = 0
    prune_refused: str = ""
    """Why `prune` was not carried out, if it was not."""
    passages: int = 0
    texts_embedded: int = 0
    tokens_embedded: int = 0
    texts_reused: int = 0
    skipped: int = 0
    skipped_list: list[Skipped] = field(default_factory=list)
    drift: Drift | None = None
    """How unlike the passages added are to those that the transform was fitted on, where it was kept."""


@dataclass
class Window:
    """Some documents, and the texts of theirs that have no vector yet, on their way through the encoder."""

    documents: list[DocumentRow]
    hashes: list[bytes]
    encoding: Encoding | None


def encoded_passages(document: Document, encoder: Encoder) -> Iterator[tuple[int, int, str]]:
    """Where the passages of a document begin and end, and what the encoder is given for each."""
    budget, count_tokens = encoder.token_budget, encoder.count_tokens
    title = fit_title(document.title, budget, count_tokens)
    for passage in split(document.text, title, budget, count_tokens):
        yield passage.start, passage.end, encoded_text(title, document.text[passage.start : passage.end])


def hash_of_text(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8")).digest()


class Ingestion:
    """One run over a source."""

    def __init__(
        self,
        store: DocumentStore,
        encoder: Encoder,
        *,
        on_error: OnError = "skip",
        progress: Progress = silent,
    ) -> None:
        if on_error not in ("skip", "stop"):
            raise Misuse(f"unknown --on-error {on_error!r}; known: skip, stop.")
        self.store = store
        self.encoder = encoder
        self.on_error = on_error
        self.progress = progress
        self.report = IngestReport()
        self._encoding: Window | None = None
        self._expected: int | None = None
        self._window: dict[str, DocumentRow] = {}
        self._texts: dict[bytes, str] = {}
        self._characters = 0
        self._source: Iterable[Document | Skipped] = ()
        self._all_read = False

    def run(self, source: Iterable[Document | Skipped], *, prune: bool = False) -> IngestReport:
        """Bring the store up to date with the source; `prune` deletes what the source no longer has."""
        self._source = source
        self.store.start_run()
        items = iter(source)
        try:
            try:
                while batch := self._next_batch(items):
                    self._take(list(self._documents(batch)))
                    if len(self._texts) >= WINDOW_TEXTS or self._characters >= WINDOW_CHARACTERS:
                        self._flush()
            except (BadSource, Misuse):
                self._finish()  # what was read before is kept
                raise
            self._finish()
        finally:
            if self._encoding and self._encoding.encoding:
                self._encoding.encoding.close()
        if prune and self.report.skipped:
            self.report.prune_refused = (
                "nothing was pruned, because a document that could not be read would count as gone; mend what was "
                "skipped and run the same command again"
            )
        elif prune:
            self.report.pruned = self.store.delete_not_met()
        return self.report

    def _next_batch(self, items: Iterator[Document | Skipped]) -> list[Document | Skipped]:
        batch: list[Document | Skipped] = []
        try:
            for item in islice(items, READ_TOGETHER):
                batch.append(item)
        except (BadSource, Misuse):
            self._take(list(self._documents(batch)))
            raise
        self._all_read = len(batch) < READ_TOGETHER
        return batch

    def _documents(self, batch: list[Document | Skipped]) -> Iterator[Document]:
        for item in batch:
            if isinstance(item, Document):
                self.report.read += 1
                yield item
                continue
            if self.on_error == "stop":
                self._take([d for d in batch[: batch.index(item)] if isinstance(d, Document)])
                raise BadSource(
                    f"{item.where}: {item.reason}. What came before it is stored; mend the line and run the same "
                    "command again, or give --on-error skip."
                )
            self.report.skipped += 1
            if len(self.report.skipped_list) < SKIPPED_KEPT:
                self.report.skipped_list.append(item)

    def _take(self, documents: list[Document]) -> None:
        """Put the documents that are new or changed into the window."""
        ids = list({document.id: None for document in documents})
        hashes = self.store.content_hashes(ids)
        on_their_way = {row.id: row.content_hash for row in (self._encoding.documents if self._encoding else ())}
        on_their_way |= {i: row.content_hash for i, row in self._window.items()}
        hashes |= {i: on_their_way[i] for i in ids if i in on_their_way}
        met = self.store.met_before(ids)
        for number, document in enumerate(documents):
            if number % PREPARED_BETWEEN == 0:
                self._store_finished(wait=False)
            content_hash = document.content_hash()
            stored = hashes.get(document.id)
            if stored == content_hash:
                if document.id not in met:
                    self.report.unchanged += 1
            else:
                if document.id in met:
                    self.report.duplicate_ids += 1
                elif stored is None:
                    self.report.new += 1
                else:
                    self.report.changed += 1
                self._add_to_window(document, content_hash)
                hashes[document.id] = content_hash
            met.add(document.id)

    def _add_to_window(self, document: Document, content_hash: bytes) -> None:
        passages = []
        for start, end, text in encoded_passages(document, self.encoder):
            text_hash = hash_of_text(text)
            self._texts[text_hash] = text
            passages.append((start, end, text_hash))
        self._characters += len(document.text)
        self._window[document.id] = DocumentRow(
            document.id,
            document.title,
            document.text,
            document.metadata,
            content_hash,
            document.source.encode("utf-8", "replace").decode(),  # a file's name may be no UTF-8
            passages,
        )

    def _flush(self) -> None:
        """Send the window to the encoder once it has done the one before, then store that one's documents."""
        self._store_finished(wait=True)
        before = self._encoding
        known = self.store.vectors_of_texts(list(self._texts))
        missing = {h: text for h, text in self._texts.items() if h not in known}
        self.report.texts_reused += len(known)
        # What is read so far against all there is tells how many texts are to come.
        fraction = 1.0 if self._all_read else getattr(self._source, "fraction_read", None)
        self._expected = int((self.report.texts_embedded + len(missing)) / fraction) if fraction else None
        encoding = self.encoder.encoding(list(missing.values())) if missing else None
        self._encoding = Window(list(self._window.values()), list(missing), encoding)
        self._window, self._texts, self._characters = {}, {}, 0
        if missing:
            self._tell()
        if before:
            self._put_documents(before.documents)

    def _finish(self) -> None:
        """Embed and store all that was read."""
        self._flush()
        self._flush()

    def _put_documents(self, rows: list[DocumentRow]) -> None:
        for start in range(0, len(rows), PREPARED_BETWEEN):
            self.store.put_documents(rows[start : start + PREPARED_BETWEEN])
            self._store_finished(wait=False)
        self.report.passages += sum(len(row.passages) for row in rows)

    def _store_finished(self, *, wait: bool) -> None:
        """Store the vectors that the encoder has finished, or with `wait` all that it was given."""
        window = self._encoding
        if window is None or window.encoding is None:
            return
        while batches := window.encoding.finished(wait=wait):
            positions = np.concatenate([batch.positions for batch in batches])
            with np.errstate(over="ignore"):
                halves = np.concatenate([batch.vectors for batch in batches]).astype(VECTOR_TYPE)
            if not np.isfinite(halves).all():
                raise RetrieverError(
                    f"the encoder {self.encoder.identity.name} gives vectors too large to be stored as float16."
                )
            self.store.add_vectors([window.hashes[p] for p in positions], halves)
            self.report.texts_embedded += len(positions)
            self.report.tokens_embedded += sum(batch.tokens for batch in batches)
            self._tell()
            if not wait:
                return

    def _tell(self) -> None:
        report = self.report
        detail = f"{report.new + report.changed:,} documents, {report.tokens_embedded:,} tokens"
        self.progress("embedding", report.texts_embedded, self._expected, detail)
