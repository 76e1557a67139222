"""Reads and writes the numbered rows of a collection in a folder, for `retriever copy`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from indexes.checksums import vector_checksum
from indexes.rows import VECTOR_TYPE, NumberedDocument, NumberedVector
from indexes.sqlite.documents import DocumentStore

BATCH_ROWS = 1000


@dataclass(frozen=True)
class LocalTransfer:
    """The numbered rows of a collection in a folder."""

    store: DocumentStore
    dimension: int

    def last(self) -> tuple[int, int]:
        row = self.store.db.conn.execute("SELECT coalesce(max(number), 0) FROM documents").fetchone()
        return self.store.last_vector(), int(row[0])

    def vectors(self, after: int) -> Iterator[list[NumberedVector]]:
        for numbers, rows in self.store.each_vector(self.dimension, after=after, rows=BATCH_ROWS):
            hashes = self.store.hashes_of_vectors(numbers.tolist())
            halves = rows.astype(VECTOR_TYPE)
            yield [(number, hashes[number], half) for number, half in zip(numbers.tolist(), halves, strict=True)]

    def documents(self, after: int) -> Iterator[list[NumberedDocument]]:
        query = "SELECT number FROM documents WHERE number > ? ORDER BY number LIMIT ?"
        while found := self.store.db.conn.execute(query, [after, BATCH_ROWS]).fetchall():
            numbers = [row[0] for row in found]
            after = numbers[-1]
            yield list(self.store.document_rows(numbers))

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
                self.store.put_document(row, number)

    def seals(self) -> Iterator[tuple[int, str]]:
        for number, seal in self.store.db.conn.execute("SELECT number, seal FROM documents ORDER BY number"):
            yield number, seal.hex()
