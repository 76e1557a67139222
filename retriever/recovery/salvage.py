"""Makes a new collection from everything that is intact in a damaged collection. The damaged one is never changed.

    pages ──carve──▶ rows ──checksums──▶ vectors ─────────────┐
                                    ├──▶ sealed documents ────┼──▶ a new collection ──▶ the same transform, an index
                                    └──▶ others ──encoder─────┘
                                    damaged but readable ──▶ quarantine/salvage.jsonl

A document whose seal, passages and vectors are all intact is stored unchanged, without using the encoder. A document
that has lost passages or vectors is embedded again if its content is intact. The new collection is written under a
temporary name and renamed when it is complete. A killed run therefore leaves nothing at the target, and the same
command starts from the beginning.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from indexes.folder.collection import DATABASE, OWN_NAMES, QUARANTINE, Collection
from indexes.pages.carved import Carved, CarvedDocument
from indexes.pages.carving import Carver
from indexes.pages.page_file import Pages
from indexes.pages.wal import path_of
from indexes.rows import VECTOR_TYPE, DocumentRow
from retriever.corpus import Document
from retriever.corpus.passages import encoded_passages
from retriever.encoder.base import AnyEncoder
from retriever.encoder.static.folder import copy_folder
from retriever.errors import Damaged, EncoderUnavailable, Mismatch, Misuse, NotACollection, RetrieverError
from retriever.files import atomic_write
from retriever.ingest.pipeline import Ingestion, hash_of_text
from retriever.ingest.writer import Writer, republish
from retriever.progress import Progress, silent
from retriever.recovery.survivors import Survivors, survivors
from retriever.settings import OTHER_KEYS, CollectionSettings, EncoderOptions, IndexSettings

QUARANTINE_FILE = "salvage.jsonl"
BATCH_DOCUMENTS = 256


@dataclass
class SalvageReport:
    """The numbers of saved and lost documents and vectors, and notes about the damage."""

    source: Path
    target: Path
    documents: int = 0
    vectors: int = 0
    texts_embedded: int = 0
    """The number of texts that were embedded again."""
    lost: list[str] = field(default_factory=list)
    """The ids of lost documents, as far as they are known."""
    lost_unnamed: int = 0
    """The number of further lost documents, whose ids are not known."""
    quarantined: int = 0
    """The number of rows in the quarantine file. They are damaged but readable."""
    quarantine: Path | None = None
    transform: str = ""
    notes: list[str] = field(default_factory=list)
    """Further facts about the damage."""


def salvage(
    target: str | Path,
    index: str | Path,
    *,
    encoder: str | None = None,
    device: str = "auto",
    progress: Progress = silent,
) -> SalvageReport:
    """Make a collection in the new folder `target` from everything that is intact in the folder `index`.

    `encoder` is the new location of the encoder, if it has moved. The encoder is needed only for texts that must be
    embedded again.
    """
    target, index = Path(target), Path(index)
    _refuse(target, index)
    report = SalvageReport(index, target)
    target.resolve().parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{target.name}.", dir=target.resolve().parent) as scratch:
        carved = Carved(Path(scratch) / "carved.sqlite")
        with contextlib.closing(carved.connection), atomic_write(target.resolve()) as temporary:
            _carve(index, carved, report, progress)
            options = EncoderOptions(encoder, device=device)
            _Salvage(temporary, carved, survivors(index, carved), options, report, encoder).run(progress)
    return report


def _refuse(target: Path, index: Path) -> None:
    if not index.is_dir() or not any((index / name).exists() for name in OWN_NAMES):
        raise NotACollection(
            f"{index} holds no file of a collection; `index` must be the folder of the damaged collection."
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Misuse(f"{target} already exists; salvage into a new or empty folder.")
    if target.resolve().is_relative_to(index.resolve()):
        raise Misuse(f"{target} is inside the damaged collection, which must not be changed; choose another folder.")


def _carve(index: Path, carved: Carved, report: SalvageReport, progress: Progress) -> None:
    database = index / DATABASE
    with Pages(database) as pages:
        progress("reading pages", 0, None)
        carver = Carver(pages)
        carved.take(carver)
        notes = report.notes
        if pages.header_lost:
            notes.append(f"the header of {database} is lost; its pages were read as {pages.size:,} bytes each")
        if pages.freelist_lost or carver.stray_pages():
            notes.append(
                "the list of free pages, or a tree, cannot be read: deleted documents may have come back, and changed "
                "documents may be in an older version"
            )
        if pages.log.broken_at is not None:
            notes.append(
                f"{path_of(database)} is damaged from frame {pages.log.broken_at + 1:,} on: changed documents may "
                "be in an older version, and deleted documents may have come back"
            )
        if pages.unreadable:
            notes.append(f"the disk cannot read {len(set(pages.unreadable)):,} pages of {database}")
        if carver.damaged_cells:
            notes.append(f"{carver.damaged_cells:,} rows, or pointers to rows, are destroyed and cannot be read")


@dataclass
class _Salvage:
    """Fills a new collection in `folder` with the intact rows."""

    folder: Path
    carved: Carved
    left: Survivors
    options: EncoderOptions
    report: SalvageReport
    given: str | None
    """The new location of the encoder."""
    stored: dict[str, int] = field(default_factory=dict)
    """The row number of the stored document, by id. If several rows have the same id, the highest number wins."""

    def run(self, progress: Progress) -> None:
        settings, width = self._settings()
        own = Collection.encoder_place(self.report.source)
        place = Collection.encoder_place(self.folder)
        try:
            copy_folder(settings.encoder, own, place, self.report.source, self.given)
        except (EncoderUnavailable, Mismatch) as error:
            self.report.notes.append(f"the word table is lost, so only a search by words works: {error}")
        collection = Collection.create(self.folder, settings.to_json())
        encoder = cache(lambda: self.options.encoder_of(collection, progress))
        with collection, collection.writing():
            if width:
                for hashes, rows in self.carved.vectors(width):
                    collection.store.add_vectors(hashes, rows)
            rest = self._store_sealed(collection, width, progress)
            self._embed(collection, encoder, rest, progress)
            self.report.vectors = collection.store.count("vectors") - collection.store.count("unused")
            self.report.vectors -= self.report.texts_embedded
            collection.store.drop_unused_vectors()  # no index holds them yet
            self.report.documents = collection.store.count("documents")
            if not self.report.documents:
                raise Damaged(
                    f"nothing could be salvaged from {self.report.source}: no document in it is intact"
                    f"{''.join(f'; {note}' for note in self.report.notes)}. It was not changed."
                )
            self._publish(collection, Writer(collection, encoder, self.options.device, progress), progress)
            self._report_lost(collection)
        self._write_quarantine()

    def _settings(self) -> tuple[CollectionSettings, int]:
        """Return the settings of the new collection and the size of a vector in bytes, 0 if the encoder is unknown."""
        kept = {key: self.carved.setting(key) for key in OTHER_KEYS}
        if self.left.identity is not None:
            settings = CollectionSettings(self.left.identity, self.left.index, **kept)
            return settings, self.left.identity.dimension * VECTOR_TYPE.itemsize
        if self.options.name is None:
            raise Damaged(
                f"no intact record says which encoder made {self.report.source}; give it as `encoder`. All "
                "documents are then embedded again."
            )
        self.report.notes.append("no intact record says which encoder made the vectors: all texts were embedded again")
        kept |= dict.fromkeys(("pooling_choice", "precision_choice", "pieces_per_word", "learning", "choice"))
        return CollectionSettings(self.options.encoder().identity, self.left.index, **kept), 0

    # ---- documents ----------------------------------------------------------------------------------------

    def _store_sealed(self, collection: Collection, width: int, progress: Progress) -> list[int]:
        """Store the documents that need no encoder. Return the numbers of the other documents."""
        rest, window = [], []
        for document in self.carved.documents(width):
            if not document.row.passages:
                rest.append(document.number)
                continue
            if self._is_newest(document):
                window.append(document.row)
            if len(window) >= BATCH_DOCUMENTS:
                collection.store.put_documents(window)
                window = []
                progress("storing", collection.store.count("documents"), None)
        collection.store.put_documents(window)
        return rest

    def _is_newest(self, document: CarvedDocument) -> bool:
        if self.stored.get(document.row.id, -1) > document.number:
            return False
        self.stored[document.row.id] = document.number
        return True

    def _embed(
        self, collection: Collection, find: Callable[[], AnyEncoder], numbers: list[int], progress: Progress
    ) -> None:
        """Embed the remaining documents again, if their content and id are confirmed."""
        if not numbers:
            return
        try:
            encoder, reason = find(), ""
        except (EncoderUnavailable, Mismatch) as error:
            encoder, reason = None, str(error)
            self.report.notes.append(
                f"the encoder cannot be loaded, so documents without an intact vector could not be saved: {error} "
                "Give the new location of the encoder, and salvage into another folder."
            )

        def proven() -> Iterator[Document]:
            for found in self.carved.documents_numbered(numbers):
                problem = f"its vectors are lost, and the encoder cannot be loaded: {reason}"
                if encoder is not None:
                    found, problem = _judged(found, encoder)
                row = found.row
                if found.number == self.stored.get(row.id):
                    continue  # another image of the page had the complete document
                if problem:
                    values = [row.id, row.title, row.text, row.metadata, row.source]
                    self.carved.keep_unsound("documents", found.number, problem, values)
                elif self._is_newest(found):
                    yield _document(row)

        if encoder is None:
            list(proven())
            return
        ingestion = Ingestion(collection.store, encoder, progress=progress)
        self.report.texts_embedded = ingestion.run(proven()).texts_embedded

    # ---- the index ----------------------------------------------------------------------------------------

    def _publish(self, collection: Collection, writer: Writer, progress: Progress) -> None:
        wanted = self.left.index
        try:
            wanted.check(collection.dimension, "cpu", Collection)
        except Misuse:  # damage has changed a setting
            wanted = IndexSettings()
        for files, counts in self.left.transforms:
            try:
                republish(collection, wanted, files, counts, progress=progress)
            except (RetrieverError, ValueError, KeyError, TypeError):
                continue
            self.report.transform = "the original one, so scores are unchanged to the last bit"
            return
        self.report.transform = "fitted again, because no copy of the original transform is intact"
        try:
            writer.publish(wanted, refit=True, compact=True)
        except (EncoderUnavailable, Mismatch):
            writer.publish(replace(wanted, transform="none"), refit=True, compact=True)
            self.report.transform = (
                "none, because no copy of the original is intact and choosing a new one needs the encoder"
            )

    # ---- lost documents -----------------------------------------------------------------------------------

    def _report_lost(self, collection: Collection) -> None:
        stored_ids = {id_ for (id_,) in collection.store.db.conn.execute("SELECT id FROM documents")}
        saved = set(self.stored.values())
        for number, id_ in self.carved.known():
            if number in saved or (id_ is not None and id_ in stored_ids):
                continue
            if isinstance(id_, str):
                self.report.lost.append(id_)
            else:
                self.report.lost_unnamed += 1

    def _write_quarantine(self) -> None:
        records = self.carved.unsound()
        if (first := next(records, None)) is None:
            return
        (self.folder / QUARANTINE).mkdir(exist_ok=True)
        with (self.folder / QUARANTINE / QUARANTINE_FILE).open("w", encoding="utf-8") as file:
            for record in chain([first], records):
                file.write(json.dumps(record) + "\n")
                self.report.quarantined += 1
        self.report.quarantine = self.report.target / QUARANTINE / QUARANTINE_FILE


def _document(row: DocumentRow) -> Document:
    return Document(row.id, row.text, row.title, row.metadata, row.source)


def _judged(found: CarvedDocument, encoder: AnyEncoder) -> tuple[CarvedDocument, str]:
    """Return the document, and the reason why it cannot be confirmed. The reason is empty if it is confirmed.

    The text is cut into passages again, and the seal is checked with these passages. They equal the lost passages if
    the encoder is the same. If the seal matches, the document gets the id that the seal confirms. Otherwise two things
    must hold: the content matches its hash, and the id matches its copy in the index of ids.
    """
    passages = encoded_passages(_document(found.row), encoder)
    sealed = found.sealed_with([(start, end, hash_of_text(text)) for start, end, text in passages])
    if sealed:
        return sealed, ""
    if not found.content_proven:
        return found, "does not match its content hash"
    return found, "" if found.id_proven else "its content is intact, but nothing confirms its id"
