"""The ingestion pipeline: read documents, embed them, and store raw vectors and rows in the collection.

    read ─▶ leave out unchanged documents ─▶ split into passages ─▶ embed new texts ─▶ store

Documents are collected into windows. Other threads tokenise, embed and store the texts of one window. Meanwhile, the
thread of the caller reads and splits the documents of the next window. A document is stored once all of its passages
have a vector. A run that is killed loses at most the few batches in the encoder. The next run continues, because it
finds stored documents by their content hash and stored vectors by the hash of their text. A run that is interrupted
stores the batches in the encoder first, and loses nothing.
"""

import hashlib
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from indexes.rows import VECTOR_TYPE, DocumentRow
from indexes.stores import AnyStore
from retriever.corpus.account import NAMES_KEPT, Account
from retriever.corpus.document import Document, Skipped, Unchanged
from retriever.corpus.source import OnError
from retriever.encoder.base import AnyEncoder
from retriever.encoder.batches import Batch
from retriever.encoder.functions import is_brought
from retriever.errors import BadSource, Misuse, NoDocuments, RetrieverError
from retriever.ingest.engines import Encodes, Engine
from retriever.progress import Progress, silent
from retriever.signals import Flag, defer_signals
from retriever.transforms.novelty import Drift

READ_TOGETHER = 512
# Texts are sorted by length within a window. The size of a window limits the memory for a corpus of any size.
WINDOW_TEXTS = 4096
WINDOW_CHARACTERS = 4_000_000
SKIPPED_KEPT = 1000
# Documents per transaction. Their vectors are stored already, so a kill loses no embedding, however many there are.
DOCUMENTS_TOGETHER = 1024
# Documents that are split into passages between two reports of progress.
REPORTED_TOGETHER = 32
PROGRESS_SECONDS = 0.1
# Documents that are gone are compared with new ones, to recognise renamed files, if there are at most this many.
MOST_COMPARED = 100_000
# The end of a place such as `pets.csv:12`, `pets.json[3]` or `pets.csv`.
_NUMBER = re.compile(r"(?::\d+|\[\d+\])$")


@dataclass
class IngestReport:
    """The counts of an ingestion. They count documents, unless the name says otherwise."""

    read: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    duplicate_ids: int = 0
    """Documents that had the id of an earlier document of the source, and replaced it."""
    duplicates: list[tuple[str, str, str]] = field(default_factory=list)
    """The first of them: the id, the place of the document, and the place of the earlier one."""
    pruned: int = 0
    gone: int = 0
    """Documents of the collection that the source no longer has, and that were not pruned."""
    gone_ids: list[str] = field(default_factory=list)
    """The first of them."""
    kept: int = 0
    """Documents that may be gone, but were kept because what could not be read may hold them."""
    kept_ids: list[str] = field(default_factory=list)
    """The first of them."""
    renamed: list[tuple[str, str]] = field(default_factory=list)
    """The old and the new id of each document whose text now has another id, e.g. after a file was renamed."""
    files: Account | None = None
    """Which files were read, and which were not. None if the source is not made of files."""
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


class Unread:
    """The files and folders of a source that could not be read. Their stored documents do not count as removed."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self.anywhere = False
        """True if an item that is not from a file could not be read. It could be any document."""

    def add(self, item: Skipped) -> None:
        if item.empty:
            return
        if item.file:
            self._files.add(_NUMBER.sub("", item.file))
        else:
            self.anywhere = True

    def holds(self, source: str) -> bool:
        """Return whether a document from this place is in a file or folder that could not be read."""
        if not self._files:
            return False
        file = PurePosixPath(_NUMBER.sub("", source))
        return any(str(part) in self._files for part in (file, *file.parents))


def hash_of_text(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8")).digest()


def hash_of_vector(text: str, vector: NDArray[np.float16]) -> bytes:
    """Return the key of a vector that a document brought.

    It differs from the key of the encoder's vector of the same text.
    """
    return hashlib.sha256(b"brought\0" + hash_of_text(text) + vector.tobytes()).digest()


def _key(text_hashes: Iterable[bytes]) -> bytes:
    return hashlib.sha256(b"".join(text_hashes)).digest()


def _is_file(id_: str, place: str) -> bool:
    """Return whether a document is a whole file. Its place names a line if its text begins after the first one."""
    return id_ in (place, _NUMBER.sub("", place))


def _row_key(id_: str, place: str) -> bytes:
    """Return the hash in the id of a row that goes by its content. It is empty for any other document."""
    file, mark, content = id_.rpartition("#")
    return content.encode() if mark and file == _NUMBER.sub("", place) else b""


class Window:
    """A group of documents, and a thread that stores the vectors of their new texts.

    The thread stores each batch as soon as the encoder has finished it. A process that is killed therefore loses only
    the batches in the encoder.
    """

    def __init__(
        self,
        store: AnyStore,
        documents: Mapping[str, DocumentRow] = MappingProxyType({}),
        hashes: Sequence[bytes] = (),
        encoding: Encodes | None = None,
        encoder: str = "",
    ) -> None:
        """Prepare a window. `documents` are its documents by id.

        `hashes` are the hashes of the texts in `encoding`. `encoder` is the name of the encoder in messages.
        """
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
        self._ended = Flag()
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
        encoder: AnyEncoder,
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
        self.engine = engine or Engine()
        self.on_error = on_error
        self.progress = progress
        self.report = IngestReport()
        self._encoding = Window(store)
        self._expected: int | None = None
        self._rows: dict[str, DocumentRow] = {}
        self._texts: dict[bytes, str] = {}
        self._brought: dict[bytes, NDArray[np.float16]] = {}
        self._characters = 0
        self._compares = False
        self._new: dict[bytes, list[str]] = {}
        self._unread = Unread()
        self._states: dict[str, str] = {}
        self._source: Iterable[Document | Skipped | Unchanged] = ()
        self._all_read = False

    def run(
        self, source: Iterable[Document | Skipped | Unchanged], *, prune: bool = False, whole: bool = False
    ) -> IngestReport:
        """Store new and changed documents of the source.

        `whole` means that the collection should have only the documents of the source. Documents that the source no
        longer has are then counted, and `prune` deletes them.
        """
        self._compares = whole and self.store.count("documents") > 0
        self._source = source
        self.store.start_run()
        try:
            try:
                for documents in self._read():
                    self._take(documents)
                    if len(self._texts) + len(self._brought) >= WINDOW_TEXTS or self._characters >= WINDOW_CHARACTERS:
                        self._flush()
            except (BadSource, Misuse):
                self._finish()  # store everything that was read before the error
                raise
            self._finish()
            self.store.set_file_states(self._states)
        finally:
            self._encoding.close()
        if self.report.skipped and not self.report.read:
            reasons = [(item.where, item.reason) for item in self.report.skipped_list]
            told = "".join(f"\n  {where}: {reason}" for where, reason in reasons[:NAMES_KEPT])
            raise NoDocuments(f"there is no document in the source, so nothing was stored.{told}", reasons)
        if prune or self._compares:
            self._compare(prune)
        self.report.files = getattr(source, "account", None)
        return self.report

    def _compare(self, prune: bool) -> None:
        """Find the documents that the source no longer has, and delete them if they were renamed or `prune` is set.

        Documents from files that could not be read are kept.
        """
        left_out: dict[str, str] = {}
        for id_, place in self.store.not_met():
            if not self._unread.holds(place):
                left_out[id_] = place
                continue
            self.report.kept += 1
            if len(self.report.kept_ids) < NAMES_KEPT:
                self.report.kept_ids.append(id_)
        gone = list(left_out)
        self.report.renamed = self._renames(left_out)
        old = {id_ for id_, _ in self.report.renamed}
        left = [id_ for id_ in gone if id_ not in old]
        self.store.delete_documents(list(old))
        if prune and self._unread.anywhere:
            self.report.prune_refused = (
                "nothing was pruned, because a document that could not be read would count as removed; fix what was "
                "skipped and run the same command again"
            )
        elif prune:
            self.report.pruned, left = len(self.store.delete_documents(left)), []
        self.report.gone, self.report.gone_ids = len(left), left[:NAMES_KEPT]

    def _renames(self, gone: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return pairs of a document that is gone and a new one: files with the same passages, rows with the same
        content. `gone` has the place of each document by its id.
        """
        if not self._new or len(gone) > MOST_COMPARED:
            return []
        keys = {id_: key for id_, place in gone.items() if (key := _row_key(id_, place))}
        files = [id_ for id_, place in gone.items() if _is_file(id_, place)]
        keys |= {id_: _key(hashes) for id_, hashes in self.store.text_hashes(files).items()}
        return [(id_, same.pop(0)) for id_ in gone if id_ in keys and (same := self._new.get(keys[id_]))]

    def _read(self) -> Iterator[list[Document]]:
        """Yield the documents in lists of up to READ_TOGETHER, and record in the report what was skipped."""
        batch: list[Document] = []
        same: list[str] = []
        characters = 0
        try:
            for item in self._source:
                if isinstance(item, Unchanged):
                    same.append(item.id)
                    if len(same) == READ_TOGETHER:
                        self._count_unchanged(same)
                        same = []
                    continue
                if isinstance(item, Document) and (reason := self._problem(item)):
                    self.store.met_before([item.id])
                    item = Skipped(item.source or item.id, reason, empty=True)
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
        self._count_unchanged(same)
        self._all_read = True
        yield batch

    def _problem(self, document: Document) -> str | None:
        """Return the reason why this collection cannot hold a document, or None if it can."""
        expected = self.encoder.identity.dimension
        if document.vector is None:
            if is_brought(self.encoder.identity):
                of_file = " (those in files are metadata; add it from Python)" if "vector" in document.metadata else ""
                return (
                    f"has no vector of the length {expected:,}, and the collection has no encoder to make one{of_file}"
                )
        elif len(document.vector) != expected:
            return f"its vector has the length {len(document.vector):,}, and those of the collection have {expected:,}"
        return self.store.metadata_problem(document.metadata)

    def _count_unchanged(self, ids: list[str]) -> None:
        """Count documents of files that were not read, because they are unchanged."""
        self.report.read += len(ids)
        self.report.unchanged += len(set(ids) - self.store.met_before(ids))

    def _skip(self, item: Skipped) -> None:
        if self.on_error == "stop":
            raise BadSource(
                f"{item.where}: {item.reason}. All documents before it were stored. Fix it and try again, or give "
                '`on_error="skip"`.'
            )
        self.report.skipped += 1
        self._unread.add(item)
        if len(self.report.skipped_list) < SKIPPED_KEPT:
            self.report.skipped_list.append(item)

    def _take(self, documents: list[Document]) -> None:
        """Add new and changed documents to the next window."""
        ids = list({document.id: None for document in documents})
        waiting = [row for id_ in ids for rows in (self._encoding.documents, self._rows) if (row := rows.get(id_))]
        hashes = self.store.content_hashes(ids) | {row.id: row.content_hash for row in waiting}
        met = self.store.met_before(ids)
        held = self._stored_hashes(documents, waiting)
        last = {document.id: number for number, document in enumerate(documents)}
        earlier: dict[str, tuple[list[bytes], str]] = {}
        for number, document in enumerate(documents):
            if number % REPORTED_TOGETHER == 0:
                self._report_progress()
            content_hash = document.content_hash()
            half = None if document.vector is None else np.asarray(document.vector, VECTOR_TYPE)
            brought = [] if half is None else [hash_of_vector(document.text, half)]
            own = [content_hash, *brought]
            if document.id in earlier and earlier[document.id][0] != own:
                self._count_duplicate(document, earlier[document.id][1])
            if last[document.id] != number:  # a later document of the batch replaces it
                earlier[document.id] = own, document.source
                continue
            if document.state:
                self._states[document.id] = document.state
            stored = hashes.get(document.id)
            if stored == content_hash and (not brought or held.get(document.id) == brought):
                self.report.unchanged += document.id not in met
            else:
                if document.id in met:
                    self._count_duplicate(document, self._place_of(document.id))
                elif stored is None:
                    self.report.new += 1
                else:
                    self.report.changed += 1
                if half is not None:
                    self._brought[brought[0]] = half
                row = self._add_row(document, content_hash, brought)
                if stored is None and self._compares and len(self._new) < MOST_COMPARED:
                    key = _row_key(row.id, row.source)
                    if _is_file(row.id, row.source):
                        key = _key(text_hash for _, _, text_hash in row.passages)
                    if key:
                        self._new.setdefault(key, []).append(row.id)
                hashes[document.id] = content_hash
                held[document.id] = brought
            met.add(document.id)

    def _count_duplicate(self, document: Document, earlier: str) -> None:
        self.report.duplicate_ids += 1
        if len(self.report.duplicates) < NAMES_KEPT:
            self.report.duplicates.append((document.id, document.source, earlier))

    def _place_of(self, id_: str) -> str:
        """Return the place of the document that now has an id."""
        if row := self._rows.get(id_) or self._encoding.documents.get(id_):
            return row.source
        number = self.store.document_number(id_)
        return "" if number is None else str(self.store.documents([number])[number]["source"])

    def _stored_hashes(self, documents: Sequence[Document], waiting: Sequence[DocumentRow]) -> dict[str, list[bytes]]:
        """Return the text hashes of the passages of those documents that bring a vector, by id.

        The passages are the stored ones, or those of a row that waits to be stored.
        """
        ids = [document.id for document in documents if document.vector is not None]
        if not ids:
            return {}
        return self.store.text_hashes(ids) | {
            row.id: [text_hash for _, _, text_hash in row.passages] for row in waiting
        }

    def _add_row(self, document: Document, content_hash: bytes, brought: Sequence[bytes]) -> DocumentRow:
        """Make the row of a document. `brought` is the hash of the vector that it brings, if it brings one."""
        passages = []
        for text_hash in brought:
            start = len(document.text) - len(document.text.lstrip())
            passages.append((start, len(document.text.rstrip()), text_hash))
        for start, end, text in () if passages else self.engine.passages(document, self.encoder):
            text_hash = hash_of_text(text)
            self._texts[text_hash] = text
            passages.append((start, end, text_hash))
        self._characters += document.characters()
        source = document.source.encode("utf-8", "replace").decode()  # a file name need not be UTF-8
        row = DocumentRow(document.id, document.title, document.text, document.metadata, content_hash, source, passages)
        self._rows[document.id] = row
        return row

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
        if self._brought:
            self.store.add_vectors(list(self._brought), np.stack(list(self._brought.values())))
        known = self.store.vectors_of_texts(list(self._texts))
        missing = {h: text for h, text in self._texts.items() if h not in known}
        self.report.texts_reused += len(known)
        fraction = 1.0 if self._all_read else getattr(self._source, "fraction_read", None)
        self._expected = int((self.report.texts_embedded + len(missing)) / fraction) if fraction else None
        encoding = self.engine.encoding(list(missing.values()), self.encoder) if missing else None
        with defer_signals():  # otherwise an interrupt could leave a started window that `run` does not close
            name = self.encoder.identity.name
            self._encoding = Window(self.store, self._rows, list(missing), encoding, name)
            self._encoding.start()
        self._rows, self._texts, self._brought, self._characters = {}, {}, {}, 0
        self._report_progress()
        rows = list(previous.documents.values())
        for start in range(0, len(rows), DOCUMENTS_TOGETHER):
            with defer_signals():  # an interrupt at the edge of a transaction could leave it open
                self.store.put_documents(rows[start : start + DOCUMENTS_TOGETHER])
            self._report_progress()
        self.report.passages += sum(len(row.passages) for row in rows)

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
