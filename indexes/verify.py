"""Look at every hash and every row of a collection, and put right what can be put right.

Repair never deletes: damaged files move to `quarantine/` inside the collection, damaged rows to the table of
the same name. What is derived is made again from SQLite; what was quarantined comes back when its source is
indexed again.
"""

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from indexes import generation as generations
from indexes.collection import GENERATIONS, Collection
from indexes.content import content_hash
from indexes.documents import VECTOR_TYPE, checksum
from indexes.errors import Damaged

QUARANTINE = "quarantine"


@dataclass
class Report:
    """What `verify` found: sentences for people, and the rows to put aside."""

    documents: int = 0
    vectors: int = 0
    files: int = 0
    problems: list[str] = field(default_factory=list)
    bad_documents: dict[int, str] = field(default_factory=dict)
    bad_vectors: dict[int, str] = field(default_factory=dict)
    database_broken: bool = False
    generation_broken: bool = False
    unused_wrong: bool = False
    quarantined: int = 0
    repaired: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.problems


def check(collection: Collection, progress: Callable[[int, int], None] | None = None) -> Report:
    """Check the database, every row, and every file of the published generation."""
    report = Report()
    try:
        with _any_text(collection):
            _check_rows(collection, report, progress)
    except sqlite3.DatabaseError as error:
        report.database_broken = True
        report.problems.append(f"{collection.store.path} is damaged: {error}")
    if not report.database_broken:
        _check_generation(collection, report)
    return report


def _check_rows(collection: Collection, report: Report, progress: Callable[[int, int], None] | None) -> None:
    _check_database(collection, report)
    if not report.database_broken:
        _check_vectors(collection, report, progress)
        _check_documents(collection, report)
        _check_unused(collection, report)


@contextlib.contextmanager
def _any_text(collection: Collection) -> Iterator[None]:
    """Read texts that damage has left as invalid UTF-8 too, instead of failing on the first."""
    connection = collection.store.db.conn
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    try:
        yield
    finally:
        connection.text_factory = str


def _sound(row: dict[str, Any]) -> bool:
    try:
        return bool(content_hash(row["title"], row["text"], row["metadata"]) == row["content_hash"])
    except UnicodeEncodeError:
        return False


def _check_database(collection: Collection, report: Report) -> None:
    for (message,) in collection.store.db.conn.execute("PRAGMA integrity_check"):
        if message != "ok":
            report.database_broken = True
            report.problems.append(f"{collection.store.path}: {message}")
    for table, _, parent, _ in collection.store.db.conn.execute("PRAGMA foreign_key_check"):
        report.problems.append(f"{collection.store.path}: a row of {table} points to a row of {parent} not there")


def _check_vectors(
    collection: Collection, report: Report, progress: Callable[[int, int], None] | None
) -> None:
    total = collection.store.count("vectors")
    encoder = collection.store.setting("encoder")
    width = encoder["dimension"] * VECTOR_TYPE.itemsize if encoder else 0
    for number, blob, expected in collection.store.db.conn.execute("SELECT id, vector, checksum FROM vectors"):
        report.vectors += 1
        if not isinstance(blob, bytes) or len(blob) != width:
            report.bad_vectors[number] = f"vector {number} is not {width} bytes"
        elif checksum(blob) != expected:
            report.bad_vectors[number] = f"vector {number} does not match its checksum"
        elif not np.isfinite(np.frombuffer(blob, VECTOR_TYPE)).all():
            report.bad_vectors[number] = f"vector {number} holds numbers that are not finite"
        if progress and report.vectors % 4096 == 0:
            progress(report.vectors, total)
    report.problems += report.bad_vectors.values()


def _check_documents(collection: Collection, report: Report) -> None:
    passages = _passages_by_document(collection)
    ahead = next(passages, None)
    for row in collection.store.each_document():
        report.documents += 1
        number, name = row["number"], f"document {row['id']!r}"
        if not _sound(row):
            report.bad_documents[number] = f"{name} does not match its content hash"
        own: list[tuple[int, ...]] = []
        while ahead and ahead[0] <= number:
            own += [ahead] if ahead[0] == number else []
            ahead = next(passages, None)
        length = len(row["text"])
        if [p[1] for p in own] != list(range(len(own))) or not own:
            report.bad_documents.setdefault(number, f"{name} lacks passages")
        elif any(not 0 <= start < end <= length for _, _, start, end, _ in own):
            report.bad_documents.setdefault(number, f"{name} has a passage outside its text")
        for passage in own:
            if passage[4] in report.bad_vectors:
                report.bad_documents.setdefault(number, f"{name} has a damaged vector ({passage[4]})")
    report.problems += report.bad_documents.values()


def _passages_by_document(collection: Collection) -> Iterator[tuple[int, ...]]:
    yield from collection.store.db.conn.execute(
        'SELECT document, position, start, "end", vector FROM passages ORDER BY document, position'
    )


def _check_unused(collection: Collection, report: Report) -> None:
    wrong = collection.store.db.conn.execute(
        "SELECT count(*) FROM vectors WHERE (id IN (SELECT vector FROM unused))"
        " = (id IN (SELECT vector FROM passages))"
    ).fetchone()[0]
    if wrong:
        report.unused_wrong = True
        report.problems.append(f"the list of unused vectors is wrong about {wrong:,} of them")


def _check_generation(collection: Collection, report: Report) -> None:
    try:
        generation = collection.generation()
    except (Damaged, ValueError) as error:
        report.generation_broken = True
        report.problems.append(str(error))
        return
    if generation is None:
        return
    report.files = len(generation.manifest["files"]) + 1
    found = generations.problems(generation)
    if not found:
        in_table = collection.store.count_vectors(generation.last_vector)
        if generation.count != in_table:
            found = [f"{generation.folder}: index holds {generation.count:,} vectors, table {in_table:,} rows"]
    report.generation_broken = bool(found)
    report.problems += found


def quarantine(collection: Collection, report: Report) -> None:
    """Put damaged files and rows aside, so that the index can be made again from what is sound."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    if report.generation_broken:
        _put_files_aside(collection, collection.folder / QUARANTINE / stamp)
        report.repaired.append(f"moved the damaged generation to {collection.folder / QUARANTINE / stamp}")
    store = collection.store
    with _any_text(collection), store.db.atomic():
        for number, reason in report.bad_documents.items():
            row = store.db.conn.execute(
                "SELECT number, id, title, text, metadata, source FROM documents WHERE number = ?", [number]
            ).fetchone()
            _keep_row(store.db.conn, "documents", reason, stamp, row)
            store.db.conn.execute("DELETE FROM documents WHERE number = ?", [number])
        for number, reason in report.bad_vectors.items():
            row = store.db.conn.execute(
                "SELECT id, hex(text_hash), hex(vector) FROM vectors WHERE id = ?", [number]
            ).fetchone()
            _keep_row(store.db.conn, "vectors", reason, stamp, row)
            store.db.conn.execute("DELETE FROM passages WHERE vector = ?", [number])
            store.db.conn.execute("DELETE FROM vectors WHERE id = ?", [number])
        if report.unused_wrong:
            store.db.conn.execute("DELETE FROM unused")
            store.db.conn.execute(
                "INSERT INTO unused SELECT id FROM vectors WHERE id NOT IN (SELECT vector FROM passages)"
            )
            report.repaired.append("made the list of unused vectors again")
    if report.bad_documents:
        ids = len(report.bad_documents)
        report.repaired.append(
            f"put {ids:,} damaged document{'s' if ids > 1 else ''} into the quarantine table; "
            "index their source again to have them back"
        )
    report.quarantined = len(report.bad_documents) + len(report.bad_vectors)


def _keep_row(
    connection: sqlite3.Connection, table: str, reason: str, stamp: str, row: tuple[Any, ...]
) -> None:
    connection.execute(
        "INSERT INTO quarantine (reason, at, table_name, row) VALUES (?, ?, ?, ?)",
        [reason, stamp, table, json.dumps(row, ensure_ascii=True, default=repr)],
    )


def _put_files_aside(collection: Collection, target: Path) -> None:
    row = collection.store.db.conn.execute("SELECT folder FROM generations").fetchone()
    folder = collection.folder / GENERATIONS / row[0]
    target.mkdir(parents=True)
    if folder.exists():
        shutil.move(str(folder), str(target / folder.name))
