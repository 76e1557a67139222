"""Verifies a collection in a folder: checks every file and row against its hash, and reports damage."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from indexes.checksums import content_hash, document_seal, vector_checksum
from indexes.errors import Damaged, first_line, salvage_advice
from indexes.folder import generation as generations
from indexes.folder.collection import DATABASE, Collection
from indexes.generation import INDEX_FILES, Generation, is_encoder, settings_of
from indexes.pages import wal
from indexes.rows import VECTOR_TYPE
from indexes.sqlite.connections import Database, migrate
from indexes.sqlite.database import CHECKSUMS, is_transient
from indexes.sqlite.documents import DocumentStore

Progress = Callable[[int, int], None]

SETTINGS: dict[str, Callable[[Any], bool]] = {
    "encoder": is_encoder,
    "transform": lambda value: isinstance(value, str),
    "index_type": lambda value: isinstance(value, str),
    "recall": lambda value: value is None or (type(value) in (int, float) and 0 < value <= 1),
    "memory": lambda value: value is None or (type(value) is int and value > 0),
    **dict.fromkeys(("choice", "pooling_choice", "precision_choice", "learning"), lambda value: True),
}
"""The settings, each with a test for a valid value. The last three only record how a choice was made."""


@dataclass
class Report:
    """The result of `verify`: problems as sentences for users, and details for the repair."""

    documents: int = 0
    vectors: int = 0
    files: int = 0
    problems: list[str] = field(default_factory=list)
    bad_settings: dict[str, Any] = field(default_factory=dict)
    """Damaged settings, with the values to restore: from the manifest, or defaults."""
    bad_documents: dict[int, str] = field(default_factory=dict)
    bad_vectors: dict[int, str] = field(default_factory=dict)
    stray_passages: set[int] = field(default_factory=set)
    """Numbers of documents that do not exist but have passages."""
    database_broken: bool = False
    generation_broken: bool = False
    transform_copy_broken: bool = False
    unused_wrong: bool = False
    words_wrong: bool = False
    checksums_wrong: bool = False
    """If True, the checksums of the settings must be computed again."""
    repaired: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Problems that remain after a repair."""

    @property
    def clean(self) -> bool:
        return not self.problems

    def broken(self, problem: str) -> None:
        """Add a problem of the database itself, which the repair cannot fix."""
        self.database_broken = True
        self.problems.append(problem)


def check(collection: Collection, defaults: Mapping[str, str | None], progress: Progress | None = None) -> Report:
    """Check the database, every row, and every file of the published generation.

    The rows are read in one snapshot. `defaults` are the values to which damaged settings are reset. The encoder has no
    default.
    """
    report, store = Report(), collection.store
    try:
        if found := wal.problem(store.path, with_index=False):
            report.broken(found)
        with any_text(store), store.db.atomic():
            _check_database(store, report)
            if not report.database_broken:
                _check_settings(collection, report, defaults)
            if not report.database_broken:
                _check_vectors(store, report, progress)
                _check_documents(store, report)
                _check_unused(store, report)
        if not report.database_broken:
            if not report.words_wrong and (found := collection.words.problem()):
                report.words_wrong = True
                report.problems.append(found)
            _check_generation(collection, report)
    except (sqlite3.Error, Damaged) as error:
        if isinstance(error, sqlite3.Error) and is_transient(error):
            raise
        report.broken(f"{store.path} is damaged: {first_line(error)}")
    return report


def refuse_broken_log(folder: Path) -> None:
    """Refuse a write-ahead log that is damaged, because SQLite drops transactions when it opens the database.

    Call this before this process opens the collection. Opening it rebuilds the index of the log, which shows how many
    frames were acknowledged.
    """
    if found := wal.problem(folder / DATABASE):
        raise Damaged(
            f"{found}. The next command that opens the collection will delete these transactions. To keep them, first "
            f"{salvage_advice(folder)}"
        )


@contextlib.contextmanager
def any_text(store: DocumentStore) -> Iterator[None]:
    """Also read texts that are invalid UTF-8 because of damage."""
    connection = store.db.conn
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    try:
        yield
    finally:
        connection.text_factory = str


def _check_database(store: DocumentStore, report: Report) -> None:
    connection = store.db.conn
    if changed := _changed_schema(connection):
        # The index of words can be rebuilt, unless its table is damaged in such a way that SQLite cannot even drop it.
        existing = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchone()
        report.words_wrong = all(n.startswith("words") for n in changed) and not ("words" in changed and existing)
        report.database_broken = not report.words_wrong
        what = "the index of words" if report.words_wrong else "the schema"
        report.problems.append(f"{store.path}: {what} was changed: {', '.join(changed)} differ")
    for (message,) in connection.execute("PRAGMA integrity_check"):
        if message != "ok" and "fts5" not in message.lower():  # reported since SQLite 3.44; `Words.problem` checks FTS5
            report.broken(f"{store.path}: {message}")


def _check_settings(collection: Collection, report: Report, defaults: Mapping[str, str | None]) -> None:
    """Compare the settings with the manifest, whose hash is known.

    This comes first, because a damaged setting must not make intact rows look damaged.
    """
    known: dict[str, Any] = {}
    with contextlib.suppress(Damaged):
        if generation := collection.with_generation(lambda found: found, fresh=True):
            known = settings_of(generation.manifest)
    changed, empty = collection.store.changed_settings(), collection.is_empty()
    for key in dict.fromkeys([*SETTINGS, *changed]):
        try:
            value = collection.store.setting(key, checked=False)
            valid = empty or SETTINGS.get(key, lambda value: True)(value)
        except Damaged:
            value, valid = None, False
        if key in known and value != known[key]:
            problem = "is not what the index was built with"
        elif key not in changed and (key in known or valid):
            continue
        else:
            problem = "does not match its checksum" if key in changed else "is damaged"
        if key == "encoder" and not known:
            report.broken("the setting 'encoder' is damaged, and there is no index to restore it from")
            continue
        report.problems.append(f"the setting {key!r} {problem}")
        report.checksums_wrong |= key in changed
        if key != CHECKSUMS and (key not in known or value != known[key]):
            report.bad_settings[key] = known.get(key, defaults.get(key))


def _check_vectors(store: DocumentStore, report: Report, progress: Progress | None) -> None:
    total = store.count("vectors")
    encoder = report.bad_settings.get("encoder") or store.setting("encoder", checked=False)
    width = encoder["dimension"] * VECTOR_TYPE.itemsize if encoder else 0
    for number, text_hash, blob, expected in store.db.conn.execute(
        "SELECT id, text_hash, vector, checksum FROM vectors"
    ):
        report.vectors += 1
        if not isinstance(blob, bytes) or not isinstance(text_hash, bytes) or len(blob) != width:
            report.bad_vectors[number] = f"vector {number} does not have {width} bytes"
        elif vector_checksum(text_hash, blob) != expected:
            report.bad_vectors[number] = f"vector {number} does not match its checksum"
        elif not np.isfinite(np.frombuffer(blob, VECTOR_TYPE)).all():
            report.bad_vectors[number] = f"vector {number} holds numbers that are not finite"
        if progress and report.vectors % 4096 == 0:
            progress(report.vectors, total)
    report.problems += report.bad_vectors.values()


def _check_documents(store: DocumentStore, report: Report) -> None:
    passages = store.db.conn.execute(
        'SELECT document, position, start, "end", passages.vector, text_hash FROM passages'
        " LEFT JOIN vectors ON vectors.id = passages.vector ORDER BY document, position"
    )
    ahead = next(passages, None)
    for row in store.each_document():
        report.documents += 1
        own = []
        while ahead and (not isinstance(ahead[0], int) or ahead[0] <= row["number"]):
            if ahead[0] == row["number"]:
                own.append(ahead)
            else:
                report.stray_passages.add(ahead[0])
            ahead = next(passages, None)
        if problem := _document_problem(row, own, report.bad_vectors):
            report.bad_documents[row["number"]] = f"document {row['id']!r} {problem}"
    while ahead:
        report.stray_passages.add(ahead[0])
        ahead = next(passages, None)
    report.problems += report.bad_documents.values()
    report.problems += [
        f"there are passages of a document {number} that does not exist" for number in report.stray_passages
    ]


def _document_problem(row: dict[str, Any], own: list[tuple[Any, ...]], bad_vectors: dict[int, str]) -> str:
    if not all(isinstance(row[name], str) for name in ("id", "title", "text", "metadata", "source")):
        return "holds a value that is not a text"
    try:
        if content_hash(row["title"], row["text"], row["metadata"]) != row["content_hash"]:
            return "does not match its content hash"
    except UnicodeEncodeError:
        return "does not match its content hash"
    if not own or [passage[1] for passage in own] != list(range(len(own))):
        return "lacks passages"
    if any(passage[5] is None or passage[4] in bad_vectors for passage in own):
        return "has a damaged or missing vector"
    try:
        places = [(start, end, text_hash) for _, _, start, end, _, text_hash in own]
        sealed = document_seal(row["id"], row["content_hash"], row["source"], places)
    except (TypeError, UnicodeEncodeError):
        sealed = None
    return "" if sealed == row["seal"] else "does not match its seal: its id or its passages were changed"


def _check_unused(store: DocumentStore, report: Report) -> None:
    wrong = store.db.conn.execute(
        "SELECT (SELECT count(*) FROM vectors WHERE (id IN (SELECT vector FROM unused))"
        " = (id IN (SELECT vector FROM passages)))"
        " + (SELECT count(*) FROM unused WHERE vector NOT IN (SELECT id FROM vectors))"
    ).fetchone()[0]
    if wrong:
        report.unused_wrong = True
        report.problems.append(f"the list of unused vectors is wrong about {wrong:,} vectors")


def _check_generation(collection: Collection, report: Report) -> None:
    while True:
        before = collection.published()
        try:
            found, copy_differs = collection.with_generation(
                lambda generation: _generation_problems(collection, report, generation), fresh=True
            )
        except Damaged as error:
            found, copy_differs = [str(error)], False
        if collection.published() == before:  # else a new generation was published during the check
            break
    report.generation_broken = bool(found)
    report.transform_copy_broken = copy_differs
    report.problems += found
    if copy_differs:
        report.problems.append("the copy of the transform in the database is damaged")


def _generation_problems(
    collection: Collection, report: Report, generation: Generation | None
) -> tuple[list[str], bool]:
    """Return the problems of the files, and whether the copies of the transform in the database differ from them."""
    if generation is None:
        return (["the published generation is missing"] if collection.transform_files() else []), False
    report.files = len(generation.manifest["files"]) + 1
    found = generations.problems(generation)
    in_table = collection.store.count_vectors(generation.last_vector)
    if not found and generation.count != in_table:
        found = [
            f"{generation.folder}: the index holds {generation.count:,} vectors, but the table has {in_table:,} rows"
        ]
    copies = {name: sha256(data).hexdigest() for name, data in collection.transform_files().items()}
    files = generation.manifest["files"].items()
    published = {name: facts["sha256"] for name, facts in files if name not in INDEX_FILES}
    return found, copies != published


def _changed_schema(connection: sqlite3.Connection) -> list[str]:
    """List the names of the tables, indexes and triggers that differ from those that the migrations create."""
    query = "SELECT name, type, tbl_name, sql FROM sqlite_master"
    with contextlib.closing(Database(sqlite3.connect(":memory:")).conn) as fresh:
        migrate(fresh)
        expected = set(fresh.execute(query))
    return sorted({str(row[0]) for row in expected ^ set(connection.execute(query))})
