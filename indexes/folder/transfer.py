"""Rows of a collection with their numbers, out of one and into another: what `retriever copy` moves."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import document_seal, metadata_text, vector_checksum
from indexes.errors import Damaged
from indexes.sqlite.documents import VECTOR_TYPE, DocumentRow, DocumentStore

NumberedVector = tuple[int, bytes, NDArray[np.float16]]
"""A number, the hash of the text, and its raw vector as it is stored."""
NumberedDocument = tuple[int, DocumentRow]

TOGETHER = 1000


class Transfer(Protocol):
    """The rows of one collection."""

    def last(self) -> tuple[int, int]:
        """The numbers of the last vector and the last document."""

    def vectors(self, after: int) -> Iterator[list[NumberedVector]]:
        """All vectors numbered after `after`, rising, some at a time; refused where one is damaged."""

    def documents(self, after: int) -> Iterator[list[NumberedDocument]]:
        """The same of documents."""

    def put_vectors(self, rows: Sequence[NumberedVector]) -> None:
        """Store vectors under their numbers, again if need be."""

    def put_documents(self, rows: Sequence[NumberedDocument]) -> None:
        """Store documents under their numbers, again if need be; their vectors are there."""

    def seals(self) -> Iterator[tuple[int, str]]:
        """The number and seal of every document, rising."""


class LocalTransfer:
    """The rows of a collection in a folder."""

    def __init__(self, store: DocumentStore, dimension: int) -> None:
        self.store = store
        self.dimension = dimension

    def last(self) -> tuple[int, int]:
        row = self.store.db.conn.execute("SELECT coalesce(max(number), 0) FROM documents").fetchone()
        return self.store.last_vector(), int(row[0])

    def vectors(self, after: int) -> Iterator[list[NumberedVector]]:
        for numbers, rows in self.store.each_vector(self.dimension, after=after, rows=TOGETHER):
            hashes = self.store.hashes_of_vectors(numbers.tolist())
            halves = rows.astype(VECTOR_TYPE)
            yield [(number, hashes[number], half) for number, half in zip(numbers.tolist(), halves, strict=True)]

    def documents(self, after: int) -> Iterator[list[NumberedDocument]]:
        query = "SELECT number FROM documents WHERE number > ? ORDER BY number LIMIT ?"
        while found := self.store.db.conn.execute(query, [after, TOGETHER]).fetchall():
            numbers = [row[0] for row in found]
            after = numbers[-1]
            yield list(self.store.sealed_rows(numbers))

    def put_vectors(self, rows: Sequence[NumberedVector]) -> None:
        with self.store.changing() as db:
            db.conn.executemany(
                "INSERT OR IGNORE INTO vectors (id, text_hash, vector, checksum) VALUES (?, ?, ?, ?)",
                [
                    (number, text_hash, half.tobytes(), vector_checksum(text_hash, half.tobytes()))
                    for number, text_hash, half in rows
                ],
            )

    def put_documents(self, rows: Sequence[NumberedDocument]) -> None:
        with self.store.changing() as db:
            db.conn.executemany("DELETE FROM documents WHERE number = ?", [[number] for number, _ in rows])
            for number, row in rows:
                vectors = self.store.vectors_of_texts([text_hash for _, _, text_hash in row.passages])
                seal = document_seal(row.id, row.content_hash, row.source, row.passages)
                metadata = metadata_text(row.metadata)
                db.conn.execute(
                    "INSERT INTO documents (number, id, title, text, metadata, content_hash, source, seal)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    [number, row.id, row.title, row.text, metadata, row.content_hash, row.source, seal],
                )
                if lost := [text_hash for _, _, text_hash in row.passages if text_hash not in vectors]:
                    raise Damaged(f"document {row.id!r} has a passage without a vector ({lost[0].hex()[:12]}).")
                db.conn.executemany(
                    "INSERT INTO passages VALUES (?, ?, ?, ?, ?)",
                    [
                        (number, position, start, end, vectors[text_hash])
                        for position, (start, end, text_hash) in enumerate(row.passages)
                    ],
                )

    def seals(self) -> Iterator[tuple[int, str]]:
        for number, seal in self.store.db.conn.execute("SELECT number, seal FROM documents ORDER BY number"):
            yield number, seal.hex()
