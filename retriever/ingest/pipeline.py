"""The ingestion pipeline: documents in, raw vectors and rows in the collection out.

    read ─▶ leave out what is stored unchanged ─▶ split into passages ─▶ embed new texts ─▶ store

Documents are collected into windows. While other threads tokenise, embed and store the texts of one window, this one
reads and splits the next. A document is stored once all its passages have a vector. A run that is killed loses at most
the few batches in the encoder: the next run finds documents by their content hash and vectors by the hash of their
text, and continues. A run that is interrupted stores those batches first and loses nothing.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from indexes.protocol import AnyStore
from indexes.rows import DocumentRow
from retriever.corpus import Document, Skipped
from retriever.corpus.source import OnError
from retriever.encoder.encoder import Encoder
from retriever.errors import BadSource, Misuse
from retriever.ingest.engines import Engine, Local
from retriever.ingest.vector_writer import VectorWriter
from retriever.progress import Progress, silent
from retriever.signals import defer_signals
from retriever.transforms.drift import Drift

READ_TOGETHER = 512
# Texts are sorted by length within a window. The window bounds the memory, whatever the size of the corpus.
WINDOW_TEXTS = 4096
WINDOW_CHARACTERS = 4_000_000
SKIPPED_KEPT = 1000
# Documents per transaction, and per report of progress.
DOCUMENTS_TOGETHER = 32
PROGRESS_SECONDS = 0.1


@dataclass
class IngestReport:
    """What an ingestion did, counted in documents unless the name says otherwise."""

    read: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    duplicate_ids: int = 0
    pruned: int = 0
    prune_refused: str = ""
    """Why `prune` deleted nothing, if it was refused."""
    passages: int = 0
    texts_embedded: int = 0
    tokens_embedded: int = 0
    texts_reused: int = 0
    skipped: int = 0
    skipped_list: list[Skipped] = field(default_factory=list)
    drift: Drift | None = None
    """How unlike the added passages are to those that the transform was fitted on; None if it was fitted again."""


@dataclass
class Window:
    """Documents, and the writer of their texts that had no vector yet; None if all had one."""

    documents: list[DocumentRow]
    writer: VectorWriter | None


def hash_of_text(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8")).digest()


class Ingestion:
    """One run over a source."""

    def __init__(
        self,
        store: AnyStore,
        encoder: Encoder,
        *,
        on_error: OnError = "skip",
        progress: Progress = silent,
        engine: Engine | None = None,
    ) -> None:
        """Prepare a run; `engine` splits documents and embeds texts, by default in this process."""
        if on_error not in ("skip", "stop"):
            raise Misuse(f"unknown on_error {on_error!r}; known: skip, stop.")
        self.store = store
        self.encoder = encoder
        self.engine: Engine = engine or Local()
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
        """Bring the store up to date with the source; `prune` deletes documents that the source no longer has."""
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
                self._finish()  # what was read before the error is kept
                raise
            self._finish()
        finally:
            if self._encoding and self._encoding.writer:
                self._encoding.writer.close()
        if prune and self.report.skipped:
            self.report.prune_refused = (
                "nothing was pruned, because a document that could not be read would count as removed; fix what was "
                "skipped and run the same command again"
            )
        elif prune:
            self.report.pruned = self.store.delete_not_met()
        return self.report

    def _next_batch(self, items: Iterator[Document | Skipped]) -> list[Document | Skipped]:
        batch: list[Document | Skipped] = []
        characters = 0
        try:
            for item in islice(items, READ_TOGETHER):
                batch.append(item)
                characters += item.characters() if isinstance(item, Document) else 0
                if characters >= WINDOW_CHARACTERS:
                    return batch
        except (BadSource, Misuse):
            self._take(list(self._documents(batch)))
            raise
        self._all_read = len(batch) < READ_TOGETHER
        return batch

    def _documents(self, batch: list[Document | Skipped]) -> Iterator[Document]:
        """Yield the documents of a batch and report the items that were skipped."""
        for place, item in enumerate(batch):
            if isinstance(item, Document) and (reason := self.store.metadata_problem(item.metadata)):
                item = Skipped(item.source or item.id, reason)
            if isinstance(item, Document):
                self.report.read += 1
                yield item
                continue
            if self.on_error == "stop":
                self._take([d for d in batch[:place] if isinstance(d, Document)])
                raise BadSource(
                    f"{item.where}: {item.reason}. Everything before it is stored; fix it and run the same command "
                    "again, or give --on-error skip."
                )
            self.report.skipped += 1
            if len(self.report.skipped_list) < SKIPPED_KEPT:
                self.report.skipped_list.append(item)

    def _take(self, documents: list[Document]) -> None:
        """Put the documents that are new or changed into the window."""
        ids = list({document.id: None for document in documents})
        hashes = self.store.content_hashes(ids)
        pending = {row.id: row.content_hash for row in (self._encoding.documents if self._encoding else ())}
        pending |= {i: row.content_hash for i, row in self._window.items()}
        hashes |= {i: pending[i] for i in ids if i in pending}
        met = self.store.met_before(ids)
        for number, document in enumerate(documents):
            if number % DOCUMENTS_TOGETHER == 0:
                self._report_progress()
            content_hash = document.content_hash()
            stored = hashes.get(document.id)
            if stored == content_hash:
                self.report.unchanged += document.id not in met
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
        for start, end, text in self.engine.passages(document, self.encoder):
            text_hash = hash_of_text(text)
            self._texts[text_hash] = text
            passages.append((start, end, text_hash))
        self._characters += document.characters()
        source = document.source.encode("utf-8", "replace").decode()  # a file name need not be UTF-8
        self._window[document.id] = DocumentRow(
            document.id, document.title, document.text, document.metadata, content_hash, source, passages
        )

    def _flush(self) -> None:
        """Wait until the texts of the previous window are stored, send this window to the encoder, and store the
        documents of the previous one."""
        previous = self._encoding
        if previous and previous.writer:
            while not previous.writer.done(PROGRESS_SECONDS):
                self._report_progress()
            self.report.texts_embedded += previous.writer.texts
            self.report.tokens_embedded += previous.writer.tokens
        known = self.store.vectors_of_texts(list(self._texts))
        missing = {h: text for h, text in self._texts.items() if h not in known}
        self.report.texts_reused += len(known)
        fraction = 1.0 if self._all_read else getattr(self._source, "fraction_read", None)
        self._expected = int((self.report.texts_embedded + len(missing)) / fraction) if fraction else None
        writer = None
        if missing:
            encoding = self.engine.encoding(list(missing.values()), self.encoder)
            writer = VectorWriter(self.store, encoding, list(missing), self.encoder.identity.name)
        with defer_signals():  # so that `run` closes every writer that was started
            self._encoding = Window(list(self._window.values()), writer)
            if writer:
                writer.start()
        self._window, self._texts, self._characters = {}, {}, 0
        self._report_progress()
        if previous:
            self._put_documents(previous.documents)

    def _finish(self) -> None:
        """Embed and store everything that was read."""
        self._flush()
        self._flush()

    def _put_documents(self, rows: list[DocumentRow]) -> None:
        for start in range(0, len(rows), DOCUMENTS_TOGETHER):
            self.store.put_documents(rows[start : start + DOCUMENTS_TOGETHER])
            self._report_progress()
        self.report.passages += sum(len(row.passages) for row in rows)

    def _report_progress(self) -> None:
        report, writer = self.report, self._encoding.writer if self._encoding else None
        texts, tokens = report.texts_embedded, report.tokens_embedded
        if writer:
            writer.done()  # raises the error of its thread
            texts, tokens = texts + writer.texts, tokens + writer.tokens
        if texts or writer:
            detail = f"{report.new + report.changed:,} documents, {tokens:,} tokens"
            self.progress("embedding", texts, self._expected, detail)
