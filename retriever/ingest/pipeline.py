"""The ingestion pipeline: read documents, embed them, and store raw vectors and rows in the collection.

    read ─▶ leave out unchanged documents ─▶ split into passages ─▶ embed new texts ─▶ store

Documents are collected into windows. Other threads tokenise, embed and store the texts of one window. Meanwhile, the
thread of the caller reads and splits the documents of the next window. A document is stored once all of its passages
have a vector. A run that is killed loses at most the few batches in the encoder. The next run continues, because it
finds stored documents by their content hash and stored vectors by the hash of their text. A run that is interrupted
stores the batches in the encoder first, and loses nothing.
"""

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from indexes.rows import VECTOR_TYPE, DocumentRow
from indexes.stores import AnyStore
from retriever.corpus import Document, Skipped
from retriever.corpus.source import OnError
from retriever.encoder.batches import Batch
from retriever.encoder.encoder import Encoder
from retriever.errors import BadSource, Misuse, RetrieverError
from retriever.ingest.engines import Encodes, Engine, Local
from retriever.progress import Progress, silent
from retriever.signals import defer_signals
from retriever.transforms.novelty import Drift

READ_TOGETHER = 512
# Texts are sorted by length within a window. The size of a window limits the memory for a corpus of any size.
WINDOW_TEXTS = 4096
WINDOW_CHARACTERS = 4_000_000
SKIPPED_KEPT = 1000
# Documents per transaction, and per report of progress.
DOCUMENTS_TOGETHER = 32
PROGRESS_SECONDS = 0.1


@dataclass
class IngestReport:
    """The counts of an ingestion. They count documents, unless the name says otherwise."""

    read: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    duplicate_ids: int = 0
    pruned: int = 0
    prune_refused: str = ""
    """The reason why `prune` was refused and deleted nothing; empty if it was not refused."""
    passages: int = 0
    texts_embedded: int = 0
    tokens_embedded: int = 0
    texts_reused: int = 0
    skipped: int = 0
    skipped_list: list[Skipped] = field(default_factory=list)
    drift: Drift | None = None
    """How much the added passages differ from those of the fit. None if the transform was fitted again."""


def hash_of_text(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8")).digest()


class Window:
    """A group of documents, and a thread that stores the vectors of their new texts.

    The thread stores each batch as soon as the encoder has finished it. A process that is killed therefore loses only
    the batches in the encoder.
    """

    def __init__(
        self,
        store: AnyStore,
        documents: Sequence[DocumentRow] = (),
        hashes: Sequence[bytes] = (),
        encoding: Encodes | None = None,
        encoder: str = "",
    ) -> None:
        """Prepare a window. `hashes` are the hashes of the texts in `encoding`; `encoder` is its name for messages."""
        self.documents = documents
        self.hashes = hashes
        self.texts = 0
        """The number of texts whose vectors this window has stored."""
        self.tokens = 0
        """The number of tokens of these texts."""
        self._store = store
        self._encoding = encoding
        self._encoder = encoder
        self._error: BaseException | None = None
        self._started = False
        self._ended = threading.Event()
        if encoding is None:
            self._ended.set()

    def start(self) -> None:
        if self._encoding:
            self._encoding.start()
            threading.Thread(target=self._work, args=[self._encoding], name="storing", daemon=True).start()
            self._started = True

    def _work(self, encoding: Encodes) -> None:
        try:
            while batches := encoding.finished():
                self._put(batches)
        except BaseException as error:  # `done` raises it in the caller's thread
            self._error = error
            encoding.close()
        finally:
            self._ended.set()

    def _put(self, batches: list[Batch]) -> None:
        positions = np.concatenate([batch.positions for batch in batches])
        with np.errstate(over="ignore"):
            halves = np.concatenate([batch.vectors for batch in batches]).astype(VECTOR_TYPE)
        if not np.isfinite(halves).all():
            raise RetrieverError(f"the encoder {self._encoder} makes vectors that are too large for float16.")
        self._store.add_vectors([self.hashes[position] for position in positions], halves)
        self.texts += len(positions)
        self.tokens += sum(batch.tokens for batch in batches)

    def done(self, seconds: float = 0.0) -> bool:
        """Wait up to `seconds` and return whether everything is stored. If the thread failed, raise its error."""
        ended = self._ended.wait(seconds)
        if self._error:
            raise self._error
        return ended

    def close(self) -> None:
        """Stop starting batches, and wait until the batches in the encoder are stored. This never raises an error."""
        if self._encoding:
            self._encoding.close()
        if self._started:
            self._ended.wait()


class Ingestion:
    """One ingestion of a source."""

    def __init__(
        self,
        store: AnyStore,
        encoder: Encoder,
        *,
        on_error: OnError = "skip",
        progress: Progress = silent,
        engine: Engine | None = None,
    ) -> None:
        """Prepare a run. `engine` splits documents and embeds texts; the default engine works in this process."""
        if on_error not in ("skip", "stop"):
            raise Misuse(f"unknown on_error {on_error!r}; known: skip, stop.")
        self.store = store
        self.encoder = encoder
        self.engine: Engine = engine or Local()
        self.on_error = on_error
        self.progress = progress
        self.report = IngestReport()
        self._encoding = Window(store)
        self._expected: int | None = None
        self._rows: dict[str, DocumentRow] = {}
        self._texts: dict[bytes, str] = {}
        self._characters = 0
        self._source: Iterable[Document | Skipped] = ()
        self._all_read = False

    def run(self, source: Iterable[Document | Skipped], *, prune: bool = False) -> IngestReport:
        """Store new and changed documents of the source. `prune` deletes documents that the source no longer has."""
        self._source = source
        self.store.start_run()
        try:
            try:
                for documents in self._read():
                    self._take(documents)
                    if len(self._texts) >= WINDOW_TEXTS or self._characters >= WINDOW_CHARACTERS:
                        self._flush()
            except (BadSource, Misuse):
                self._finish()  # store everything that was read before the error
                raise
            self._finish()
        finally:
            self._encoding.close()
        if prune and self.report.skipped:
            self.report.prune_refused = (
                "nothing was pruned, because a document that could not be read would count as removed; fix what was "
                "skipped and run the same command again"
            )
        elif prune:
            self.report.pruned = self.store.delete_not_met()
        return self.report

    def _read(self) -> Iterator[list[Document]]:
        """Yield the documents in lists of up to READ_TOGETHER, and record in the report what was skipped."""
        batch: list[Document] = []
        characters = 0
        try:
            for item in self._source:
                if isinstance(item, Document) and (reason := self.store.metadata_problem(item.metadata)):
                    item = Skipped(item.source or item.id, reason)
                if isinstance(item, Skipped):
                    self._skip(item)
                    continue
                self.report.read += 1
                batch.append(item)
                characters += item.characters()
                if len(batch) == READ_TOGETHER or characters >= WINDOW_CHARACTERS:
                    yield batch
                    batch, characters = [], 0
        except (BadSource, Misuse):
            yield batch
            raise
        self._all_read = True
        yield batch

    def _skip(self, item: Skipped) -> None:
        if self.on_error == "stop":
            raise BadSource(
                f"{item.where}: {item.reason}. All documents before it were stored. Fix it and try again, or give "
                '`on_error="skip"`.'
            )
        self.report.skipped += 1
        if len(self.report.skipped_list) < SKIPPED_KEPT:
            self.report.skipped_list.append(item)

    def _take(self, documents: list[Document]) -> None:
        """Add new and changed documents to the next window."""
        ids = list({document.id: None for document in documents})
        hashes = self.store.content_hashes(ids)
        hashes |= {row.id: row.content_hash for row in (*self._encoding.documents, *self._rows.values())}
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
                self._add_row(document, content_hash)
                hashes[document.id] = content_hash
            met.add(document.id)

    def _add_row(self, document: Document, content_hash: bytes) -> None:
        passages = []
        for start, end, text in self.engine.passages(document, self.encoder):
            text_hash = hash_of_text(text)
            self._texts[text_hash] = text
            passages.append((start, end, text_hash))
        self._characters += document.characters()
        source = document.source.encode("utf-8", "replace").decode()  # a file name need not be UTF-8
        self._rows[document.id] = DocumentRow(
            document.id, document.title, document.text, document.metadata, content_hash, source, passages
        )

    def _flush(self) -> None:
        """Start the next window.

        Wait until the vectors of the previous window are stored, start to encode the texts of the next window, and
        store the documents of the previous window.
        """
        previous = self._encoding
        while not previous.done(PROGRESS_SECONDS):
            self._report_progress()
        self.report.texts_embedded += previous.texts
        self.report.tokens_embedded += previous.tokens
        known = self.store.vectors_of_texts(list(self._texts))
        missing = {h: text for h, text in self._texts.items() if h not in known}
        self.report.texts_reused += len(known)
        fraction = 1.0 if self._all_read else getattr(self._source, "fraction_read", None)
        self._expected = int((self.report.texts_embedded + len(missing)) / fraction) if fraction else None
        encoding = self.engine.encoding(list(missing.values()), self.encoder) if missing else None
        with defer_signals():  # otherwise an interrupt could leave a started window that `run` does not close
            rows, name = list(self._rows.values()), self.encoder.identity.name
            self._encoding = Window(self.store, rows, list(missing), encoding, name)
            self._encoding.start()
        self._rows, self._texts, self._characters = {}, {}, 0
        self._report_progress()
        for start in range(0, len(previous.documents), DOCUMENTS_TOGETHER):
            self.store.put_documents(previous.documents[start : start + DOCUMENTS_TOGETHER])
            self._report_progress()
        self.report.passages += sum(len(row.passages) for row in previous.documents)

    def _finish(self) -> None:
        """Embed and store everything that was read: the first flush starts the last window, the second stores it."""
        self._flush()
        self._flush()

    def _report_progress(self) -> None:
        report, window = self.report, self._encoding
        window.done()  # raises the error of its thread
        texts, tokens = report.texts_embedded + window.texts, report.tokens_embedded + window.tokens
        if texts or window.hashes:
            detail = f"{report.new + report.changed:,} documents, {tokens:,} tokens"
            self.progress("embedding", texts, self._expected, detail)
