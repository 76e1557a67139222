"""Moves damaged files and rows away, so that the index can be rebuilt from the intact ones.

Nothing is deleted. Damaged files are moved to the folder `quarantine/` inside the collection, and damaged rows to the
table `quarantine`. To restore a document that was moved, index its source again.
"""

import json
import shutil
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime

from indexes.folder.collection import QUARANTINE, Collection
from indexes.folder.generation import GENERATIONS
from indexes.folder.verify import Report, any_text
from indexes.generation import INDEX_FILE, MANIFEST, NUMBERS_FILE

COLUMNS = {
    "documents": ("number", "number, id, title, text, metadata, source"),
    "passages": ("document", 'document, position, start, "end", vector'),
    "vectors": ("id", "id, hex(text_hash), hex(vector)"),
}
"""For each table: the column that identifies a row, and the columns to keep."""


def folder_files(collection: Collection) -> dict[str, bytes]:
    """Read the files of the transform from the generation folder, even if they are damaged."""
    row = collection.published()
    folder = collection.folder / GENERATIONS / (row[1] if row else "none")
    others = (INDEX_FILE, NUMBERS_FILE, MANIFEST)
    if not folder.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name not in others}


def put_aside(collection: Collection, report: Report) -> None:
    """Move everything away that is damaged according to the report, and restore what can be restored."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    connection = collection.store.db.conn
    with any_text(collection.store), collection.store.changing():
        _quarantine(connection, "documents", report.bad_documents, stamp)
        _quarantine(connection, "passages", dict.fromkeys(report.stray_passages, "its document does not exist"), stamp)
        _quarantine(connection, "vectors", report.bad_vectors, stamp)
        if report.unused_wrong:
            connection.execute("DELETE FROM unused")
            connection.execute(
                "INSERT INTO unused SELECT id FROM vectors WHERE id NOT IN (SELECT vector FROM passages)"
            )
            report.repaired.append("rebuilt the list of unused vectors")
        if report.words_wrong or report.bad_documents:  # FTS5 can remove a text only if it is unchanged
            collection.words.rebuild()
        if report.words_wrong:
            report.repaired.append("rebuilt the index of words")
        if report.transform_copy_broken and not report.generation_broken:
            (number,) = connection.execute("SELECT number FROM generations").fetchone()
            collection.keep_transform(number, folder_files(collection))
            report.repaired.append("copied the transform's files into the database again")
        if report.checksums_wrong:
            collection.store.renew_checksums()
        if report.bad_settings:
            collection.store.set_settings(report.bad_settings)
            report.repaired.append(f"restored the settings {', '.join(sorted(report.bad_settings))}")
    if report.generation_broken:  # last, because settings may be restored from the manifest
        _put_files_aside(collection, report, stamp)
    if report.stray_passages:
        report.repaired.append("moved passages without a document to the quarantine table")
    if count := len(report.bad_documents):
        report.repaired.append(
            f"moved {count:,} damaged document{'s' if count > 1 else ''} to the quarantine table; "
            "index their source again to restore them"
        )


def _quarantine(connection: sqlite3.Connection, table: str, reasons: Mapping[int, str], stamp: str) -> None:
    """Move the rows with these numbers to the quarantine table."""
    key, columns = COLUMNS[table]
    for number, reason in reasons.items():
        rows = connection.execute(f"SELECT {columns} FROM {table} WHERE {key} = ?", [number]).fetchall()  # noqa: S608 - constant text
        readable = reason.encode("utf-8", "replace").decode()
        connection.executemany(
            "INSERT INTO quarantine (reason, at, table_name, row) VALUES (?, ?, ?, ?)",
            [(readable, stamp, table, json.dumps(row, ensure_ascii=True, default=repr)) for row in rows],
        )
        connection.execute(f"DELETE FROM {table} WHERE {key} = ?", [number])  # noqa: S608 - constant text


def _put_files_aside(collection: Collection, report: Report, stamp: str) -> None:
    row = collection.published()
    folder = collection.folder / GENERATIONS / (row[1] if row else "none")
    if folder.exists():
        target = collection.folder / QUARANTINE / stamp
        target.mkdir(parents=True)
        shutil.move(str(folder), str(target / folder.name))
        report.repaired.append(f"moved the damaged generation to {target}")
