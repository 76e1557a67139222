"""A small collection with something of everything, for the tests that damage it."""

import shutil
import sqlite3
from pathlib import Path

from retriever import Document, Retriever

QUERIES = ("Number 7 is odd.", "a long story about rivers")
DELETED = [f"d{i}" for i in range(20, 40)] + ["gone-long"]
WORDS = "river stone light winter window paper engine garden letter signal copper morning"


def long_text(seed: int, sentences: int) -> str:
    words = WORDS.split()
    parts = [f"The {words[(seed + i) % 12]} of part {i} met the {words[(seed * i) % 12]}." for i in range(sentences)]
    return " ".join(parts)


def documents() -> list[Document]:
    made = [
        Document(f"d{i}", f"Number {i} is {'even' if i % 2 == 0 else 'odd'}.", f"T{i}", {"n": i, "kind": f"k{i % 3}"})
        for i in range(130)
    ]
    made += [Document(f"story{i}", long_text(i, 40), f"Story {i}", {"long": True}) for i in range(10)]
    # Long enough to fill pages of its own, which its deletion sets free.
    made += [Document("long", long_text(3, 480)), Document("gone-long", f"SECRET {long_text(5, 480)}")]
    made += [Document("same", "Number 7 is odd.", "T7"), Document("umlaut", "Größe über alles: naïve façade 漢字.")]
    return made


def make(folder: Path, bert: str, *, with_log: bool, with_index: bool = False) -> Path:
    """With documents deleted, and others changed and added since the index was made; `with_log` leaves those in the
    write-ahead log, as a process does that was killed; `with_index` the index of the log, too."""
    made = folder.with_name(f"{folder.name}-open")
    # Rounds of their own, so that the tables have pages that were freed and used again.
    Retriever.build(documents(), made, encoder=bert, transform="whiten", precision="fp32").close()
    retriever = Retriever.open(made)
    with retriever:
        connection = retriever.collection.store.db.conn
        retriever.delete(DELETED)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        retriever.add([Document(f"new{i}", f"Newer {i}. {long_text(i, 3)}") for i in range(8)])
        retriever.add([Document("d3", "Number 3 was changed.", "T3", {"n": 3})])
        retriever.delete(["d5"])
        if not with_log:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copytree(made, folder, ignore=None if with_index else shutil.ignore_patterns("*-shm"))
    return folder


def contents(folder: Path) -> dict[str, tuple[str, str, str]]:
    """Every document by its id: title, text, metadata."""
    connection = sqlite3.connect(folder / "documents.sqlite")
    try:
        rows = connection.execute("SELECT id, title, text, metadata FROM documents").fetchall()
    finally:
        connection.close()
    return {row[0]: row[1:] for row in rows}
