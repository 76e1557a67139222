"""The raw vector of every distinct text, in float16, each with a checksum."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import vector_checksum
from indexes.errors import Damaged, salvage_advice
from indexes.sqlite.settings import SettingsTable

VECTOR_TYPE = np.dtype("<f2")
USED = " AND id NOT IN (SELECT vector FROM unused)"


class VectorTable(SettingsTable):
    """Reads and writes the table of vectors. A vector is used if a passage points to it."""

    def vectors(self, numbers: Sequence[int], dimension: int, *, checked: bool = False) -> NDArray[np.float32]:
        """Return the raw vectors with these numbers, in that order. `checked` ones must match their checksums."""
        if checked:
            rows = self._select_in("SELECT id, vector, text_hash, checksum FROM vectors WHERE id IN ({})", numbers)
            blobs = {row[0]: self._checked(*row) for row in rows}
        else:
            blobs = dict(self._select_in("SELECT id, vector FROM vectors WHERE id IN ({})", numbers))
        if missing := [number for number in numbers if number not in blobs]:
            raise Damaged(f"{self.path} has no vector {missing[0]}; run: retriever verify --repair")
        return self._matrix([blobs[number] for number in numbers], dimension)

    def each_vector(
        self, dimension: int, *, after: int = 0, last: int | None = None, used_only: bool = False, rows: int = 8192
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Yield all vectors numbered above `after` up to `last`, in blocks: (numbers, raw float32 rows).

        Each must match its checksum, because what is made of them would hide the damage.
        """
        query = (
            "SELECT id, vector, text_hash, checksum FROM vectors WHERE id > ? AND id <= ?"  # noqa: S608 - constant text
            f"{USED if used_only else ''} ORDER BY id LIMIT ?"
        )
        upto = self.last_vector() if last is None else last
        while block := self.db.conn.execute(query, [after, upto, rows]).fetchall():
            rising = [after, *(row[0] for row in block)]
            if any(a >= b for a, b in zip(rising, rising[1:], strict=False)):  # else this might never end
                raise Damaged(f"{self.path}: the table of vectors is out of order; {salvage_advice(self.path.parent)}")
            after = block[-1][0]
            blobs = [self._checked(*row) for row in block]
            yield np.array([row[0] for row in block], np.int64), self._matrix(blobs, dimension)

    def _checked(self, number: int, vector: Any, text_hash: Any, expected: Any) -> bytes:
        typed = isinstance(vector, bytes) and isinstance(text_hash, bytes)
        if not typed or vector_checksum(text_hash, vector) != expected:
            raise self._not_as_stored(f"vector {number}")
        return bytes(vector)

    def _matrix(self, blobs: Sequence[Any], dimension: int) -> NDArray[np.float32]:
        width = dimension * VECTOR_TYPE.itemsize
        if any(not isinstance(blob, bytes) or len(blob) != width for blob in blobs):
            raise self._not_as_stored(f"a vector of {dimension} dimensions")
        return np.frombuffer(b"".join(blobs), VECTOR_TYPE).reshape(len(blobs), dimension).astype(np.float32)

    def vectors_of_texts(self, hashes: Sequence[bytes]) -> dict[bytes, int]:
        """Return the vector number of each of these text hashes that was embedded before."""
        return dict(self._select_in("SELECT text_hash, id FROM vectors WHERE text_hash IN ({})", hashes))

    def hashes_of_vectors(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return the hash of the text of each of these vectors."""
        return dict(self._select_in("SELECT id, text_hash FROM vectors WHERE id IN ({})", numbers))

    def last_vector(self) -> int:
        return int(self.db.conn.execute("SELECT coalesce(max(id), 0) FROM vectors").fetchone()[0])

    def count_vectors(self, last: int) -> int:
        """Count the vectors up to `last` without reading them: SQLite counts all of them by another index."""
        query = "SELECT (SELECT count(*) FROM vectors) - (SELECT count(*) FROM vectors WHERE id > ?)"
        return int(self.db.conn.execute(query, [last]).fetchone()[0])

    def count_used_after(self, last: int) -> int:
        """Count the used vectors that are newer than `last`."""
        return int(self.db.conn.execute(f"SELECT count(*) FROM vectors WHERE id > ?{USED}", [last]).fetchone()[0])  # noqa: S608 - constant text

    def vector_numbers(self, last: int, *, used_only: bool = False) -> NDArray[np.int64]:
        """Return the numbers of the vectors up to `last`, rising."""
        query = f"SELECT id FROM vectors WHERE id <= ?{USED if used_only else ''} ORDER BY id"  # noqa: S608 - constant text
        return self._integers((number for (number,) in self.db.conn.execute(query, [last])), "the table of vectors")

    def used_vectors(self, after: int = 0) -> NDArray[np.int64]:
        """Return the numbers of the used vectors that are newer than `after`, rising."""
        rows = self.db.conn.execute(f"SELECT id FROM vectors WHERE id > ?{USED} ORDER BY id", [after])  # noqa: S608 - constant text
        return self._integers((number for (number,) in rows), "the table of vectors")

    def unused_vectors(self, last: int) -> NDArray[np.int64]:
        """Return the numbers of the vectors up to `last` that no passage points to any more, rising."""
        rows = self.db.conn.execute("SELECT vector FROM unused WHERE vector <= ? ORDER BY vector", [last])
        return self._integers((number for (number,) in rows), "the list of unused vectors")

    def add_vectors(self, hashes: Sequence[bytes], vectors: NDArray[np.floating[Any]]) -> None:
        """Store one raw vector per text, before any document points to it, so that no embedding is lost."""
        blobs = [row.tobytes() for row in np.ascontiguousarray(vectors, dtype=VECTOR_TYPE)]
        with self.changing() as db:
            db.conn.executemany(
                "INSERT OR IGNORE INTO vectors (text_hash, vector, checksum) VALUES (?, ?, ?)",
                [(own, blob, vector_checksum(own, blob)) for own, blob in zip(hashes, blobs, strict=True)],
            )

    def drop_unused_vectors(self) -> int:
        """Delete the unused vectors; only together with publishing an index that does not hold them."""
        with self.changing() as db:
            return int(db.conn.execute("DELETE FROM vectors WHERE id IN (SELECT vector FROM unused)").rowcount)
