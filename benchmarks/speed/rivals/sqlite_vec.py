"""sqlite-vec: a virtual table of vectors and texts in SQLite. It is searched by cosine, and always exactly.

It is loaded by APSW, because the `sqlite3` of many Pythons cannot load extensions.
"""

from typing import Any

import numpy as np

from benchmarks.speed.rivals import Documents, Found, Matrix, Queries, Rival, StoredVectors

TOGETHER = 5000


class System(Rival):
    def ingest(self, documents: Documents, vectors: StoredVectors | None) -> None:
        connection, first = self._connected(), 0
        for ids, texts in documents.batches(TOGETHER):
            rows = self.encoder.encode(texts) if vectors is None else vectors.rows(first, first + len(ids))
            if first == 0:
                columns = f"embedding float[{int(rows.shape[1])}] distance_metric=cosine"
                connection.execute(f"CREATE VIRTUAL TABLE documents USING vec0({columns}, +id TEXT, +text TEXT)")
            first += len(ids)
            both = zip(_blobs(rows), ids, texts, strict=True)
            with connection:
                connection.executemany("INSERT INTO documents(embedding, id, text) VALUES (?, ?, ?)", both)
        connection.close()

    def open(self) -> None:
        self._connection = self._connected()

    def search(self, queries: Queries, k: int) -> list[list[Found]]:
        ask = "SELECT id, text FROM documents WHERE embedding MATCH ? AND k = ? ORDER BY distance"
        vectors = _blobs(self.encoder.vectors_of(queries))
        return [[Found(*row) for row in self._connection.execute(ask, (one, k))] for one in vectors]

    def close(self) -> None:
        self._connection.close()

    def _connected(self) -> Any:
        import apsw
        import sqlite_vec

        self.folder.mkdir(parents=True, exist_ok=True)
        connection = apsw.Connection(str(self.folder / "documents.sqlite"))
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        connection.enable_load_extension(False)
        return connection


def _blobs(vectors: Matrix) -> list[bytes]:
    return [row.tobytes() for row in np.ascontiguousarray(vectors, np.float32)]
