"""Verifies and repairs a collection (`verify` and `verify --repair`).

A repair moves damaged rows and files away, so that the index can be rebuilt from the intact ones. In a folder, damaged
files are moved to the folder `quarantine/` of the collection, and damaged rows to the table `quarantine`. Milvus has no
quarantine, so damaged documents are deleted there. To restore such a document, index its source again.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from indexes.folder import verify
from indexes.folder.collection import QUARANTINE, Collection
from indexes.folder.generation import GENERATIONS
from indexes.folder.verify import Report, any_text
from indexes.generation import INDEX_FILES, MANIFEST
from indexes.protocol import AnyCollection
from indexes.sqlite.connections import Database
from retriever.encoder.model_files import LEARNED, EncoderIdentity
from retriever.errors import Damaged, EncoderUnavailable, Mismatch, salvage_advice
from retriever.progress import Progress
from retriever.settings import EncoderOptions, IndexSettings
from retriever.transforms import load_transform

if TYPE_CHECKING:
    from indexes.milvus.collection import MilvusCollection

Restore = Callable[[Iterable[Mapping[str, bytes]], Mapping[str, int] | None], bool]
"""A function that publishes the index again with the first intact copy of the transform.

If no copy is intact, it fits a new transform. It returns whether a copy was intact. Its first argument is the copies of
the transform's files. Its second argument is the counts of what the transform was fitted on.
"""

COLUMNS = {
    "documents": ("number", "number, id, title, text, metadata, source"),
    "passages": ("document", 'document, position, start, "end", vector'),
    "vectors": ("id", "id, hex(text_hash), hex(vector)"),
}
"""For each table: the column that identifies a row, and the columns to keep."""


def verified(collection: AnyCollection, progress: Progress) -> Report:
    """Check every file and row of a collection, and its word table if it has one, against its checksum."""

    def tell(done: int, total: int) -> None:
        progress("verifying", done, total)

    if isinstance(collection, Collection):
        report = verify.check(collection, IndexSettings().to_json(), tell)
    else:
        from indexes.milvus import verify as in_milvus

        report = in_milvus.check(_in_milvus(collection), lambda found: load_transform(found).apply, tell)
    # If settings are damaged, which the report then says, it is unknown which table belongs here.
    if not report.database_broken and not report.bad_settings:
        try:
            if EncoderIdentity.from_json(collection.encoder).pooling == LEARNED:
                EncoderOptions().encoder_of(collection)
        except (EncoderUnavailable, Mismatch) as error:
            report.problems.append(f"the word table is damaged or missing: {error}")
        except Damaged:
            if not report.problems:
                raise
    return report


def repaired(collection: AnyCollection, restore: Restore, progress: Progress) -> Report:
    """Check a collection and repair it. The report lists what was repaired and which problems are left."""
    with collection.writing():
        report = verified(collection, progress)
        if report.database_broken:
            raise Damaged(
                f"{report.problems[0]}. The database itself is damaged and nothing was changed; "
                f"{salvage_advice(collection.name)}"
            )
        if not report.clean:
            _repair(collection, report, restore)
            report.left = verified(collection, progress).problems
    return report


def _repair(collection: AnyCollection, report: Report, restore: Restore) -> None:
    copies, fitted_on = [], None
    with contextlib.suppress(Damaged):
        copies.append(collection.transform_files())
    with contextlib.suppress(Damaged):
        generation = collection.generation()
        fitted_on = generation.manifest.get("fitted_on") if generation else None
    if isinstance(collection, Collection):
        copies.append(_folder_files(collection))
        _put_aside(collection, report)
        is_due = report.generation_broken or bool(report.bad_vectors)
        if is_due and not collection.store.count("passages"):
            collection.forget_generation()
            is_due = False
    else:
        _delete_damaged(_in_milvus(collection), report)
        is_due = bool(collection.store.count("documents"))
    if not is_due:
        return
    if restore(copies, fitted_on):
        report.repaired.append("rebuilt the index from the stored vectors")
    else:
        report.repaired.append("no copy of the transform was intact: fitted a new transform and rebuilt the index")


# ---- Milvus ----------------------------------------------------------------------------------------------


def _in_milvus(collection: AnyCollection) -> "MilvusCollection":
    from indexes.milvus.collection import MilvusCollection

    assert isinstance(collection, MilvusCollection)
    return collection


def _delete_damaged(collection: "MilvusCollection", report: Report) -> None:
    store = collection.store
    collection.state.renew()
    store.client.delete_in(store.documents_table, "number", list(report.bad_documents))
    store.client.delete_in(store.vectors_table, "number", list(report.bad_vectors))
    if report.bad_documents:
        report.repaired.append(f"deleted {len(report.bad_documents):,} damaged documents; index their source again")


# ---- a folder --------------------------------------------------------------------------------------------


def _generation_folder(collection: Collection) -> Path:
    """Return the folder of the published generation. If none is published, the folder does not exist."""
    row = collection.published()
    return collection.folder / GENERATIONS / (row[1] if row else "none")


def _folder_files(collection: Collection) -> dict[str, bytes]:
    """Read the files of the transform from the generation folder, even if they are damaged."""
    others = (*INDEX_FILES, MANIFEST)
    with contextlib.suppress(Damaged, FileNotFoundError, NotADirectoryError):
        folder = _generation_folder(collection)
        if folder.is_symlink():
            return {}
        files = [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
        return {path.name: path.read_bytes() for path in files if path.name not in others}
    return {}


def _put_aside(collection: Collection, report: Report) -> None:
    """Move away everything that is damaged according to the report, and restore what can be restored."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    store = collection.store
    rebuild_words = bool(report.words_wrong or report.bad_documents)
    with any_text(store), store.changing() as db:
        if rebuild_words:  # FTS5 can remove a text only if it is unchanged
            db.conn.execute("DROP TRIGGER IF EXISTS words_leave")
        _quarantine(db, "documents", report.bad_documents, stamp)
        _quarantine(db, "passages", dict.fromkeys(report.stray_passages, "its document does not exist"), stamp)
        _quarantine(db, "vectors", report.bad_vectors, stamp)
        if report.unused_wrong:
            db.conn.execute("DELETE FROM unused")
            db.conn.execute("INSERT INTO unused SELECT id FROM vectors WHERE id NOT IN (SELECT vector FROM passages)")
            report.repaired.append("rebuilt the list of unused vectors")
        if rebuild_words:
            collection.words.rebuild()
        if report.words_wrong:
            report.repaired.append("rebuilt the index of words")
        if report.transform_copy_broken and not report.generation_broken:
            (number,) = db.conn.execute("SELECT number FROM generations").fetchone()
            collection.keep_transform(number, _folder_files(collection))
            report.repaired.append("copied the transform's files into the database again")
        if report.checksums_wrong:
            store.renew_checksums()
        if report.bad_settings:
            store.set_settings(report.bad_settings)
            report.repaired.append(f"restored the settings {', '.join(sorted(report.bad_settings))}")
    if report.generation_broken and (folder := _generation_folder(collection)).exists():
        # The files are moved last, because settings may be restored from the manifest.
        target = collection.folder / QUARANTINE / stamp
        target.mkdir(parents=True)
        shutil.move(folder, target / folder.name)
        report.repaired.append(f"moved the damaged generation to {target}")
    if report.stray_passages:
        report.repaired.append("moved passages without a document to the quarantine table")
    if count := len(report.bad_documents):
        report.repaired.append(
            f"moved {count:,} damaged document{'s' if count > 1 else ''} to the quarantine table; "
            "index their source again to restore them"
        )


def _quarantine(db: Database, table: str, reasons: Mapping[int, str], stamp: str) -> None:
    """Move the rows with these numbers to the quarantine table."""
    key, columns = COLUMNS[table]
    for number, reason in reasons.items():
        rows = db.conn.execute(f"SELECT {columns} FROM {table} WHERE {key} = ?", [number]).fetchall()  # noqa: S608 - constant text
        readable = reason.encode("utf-8", "replace").decode()
        db.conn.executemany(
            "INSERT INTO quarantine (reason, at, table_name, row) VALUES (?, ?, ?, ?)",
            [(readable, stamp, table, json.dumps(row, ensure_ascii=True, default=repr)) for row in rows],
        )
        db.conn.execute(f"DELETE FROM {table} WHERE {key} = ?", [number])  # noqa: S608 - constant text
