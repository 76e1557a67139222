"""Cache raw vectors on disk, so that a text is embedded only once.

There is one SQLite file for each encoder, named by the encoder's key. A row is the hash of a text and its vector.
Vectors are stored every few hundred texts, so an interrupted run continues where it stopped. Two runs may share the
folder.
"""

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retriever.errors import Damaged, Misuse, RetrieverError
from retriever.evaluate.models.encoders import TextEncoder
from retriever.progress import Progress, silent

SAVED_EVERY = 256
BUSY_SECONDS = 60


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flow-retriever" / "vectors"


def collections_folder(cache: Path | None) -> Path:
    """Return the folder of the collections that benchmarks index."""
    return cache / "collections" if cache else default_cache().with_name("collections")


class VectorCache:
    """The cached vectors of all encoders, in one folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_cache()

    def vectors(
        self, encoder: TextEncoder, texts: Sequence[str], *, queries: bool = False, progress: Progress = silent
    ) -> NDArray[np.float32]:
        """Return one row for each text. Only texts that are not in the cache are embedded.

        `queries` says that the texts are queries. A text has another vector as a query than as a document.
        """
        kind = b"query\0" if queries else b""
        hashes = [hashlib.sha256(kind + text.encode("utf-8")).digest() for text in texts]
        path = self.folder / f"{encoder.key}.sqlite"
        try:
            with self._open(path) as db:
                missing = {h: text for h, text in zip(hashes, texts, strict=True) if not _stored(db, h)}
                if missing:
                    _embed(db, encoder, missing, queries, progress)
                return _read(db, hashes, encoder.dimension, path)
        except sqlite3.OperationalError as error:
            raise RetrieverError(
                f"the cached vectors in {path} cannot be read or written ({error}); free disk space, wait for the "
                "other run, or give another `cache`."
            ) from error
        except sqlite3.DatabaseError as error:
            raise Damaged(
                f"the cached vectors in {path} cannot be used ({error}); delete the file to embed again."
            ) from error

    @contextlib.contextmanager
    def _open(self, path: Path) -> Iterator[sqlite3.Connection]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise Misuse(f"{self.folder} is a file; give a folder.") from None
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as db:
            db.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB NOT NULL)")
            yield db


def _stored(db: sqlite3.Connection, text_hash: bytes) -> bytes:
    """Return the stored vector of a text. Return an empty value if it is not stored."""
    row = db.execute("SELECT vector FROM vectors WHERE text = ?", (text_hash,)).fetchone()
    return bytes(row[0]) if row else b""


def _embed(
    db: sqlite3.Connection, encoder: TextEncoder, missing: dict[bytes, str], queries: bool, progress: Progress
) -> None:
    hashes = list(missing)
    waiting: list[tuple[bytes, bytes]] = []
    done, stage = 0, f"embedding with {encoder.label}, {encoder.pooling}"
    progress(stage, 0, len(missing))
    try:
        for positions, vectors in encoder.encode_batches(list(missing.values()), queries):
            rows = np.ascontiguousarray(vectors, np.float32)
            waiting += [(hashes[position], row.tobytes()) for position, row in zip(positions, rows, strict=True)]
            done += len(positions)
            if len(waiting) >= SAVED_EVERY:
                _store(db, waiting)
                waiting = []
            progress(stage, done, len(missing))
    finally:
        _store(db, waiting)


def _store(db: sqlite3.Connection, rows: list[tuple[bytes, bytes]]) -> None:
    with db:
        db.executemany("INSERT OR IGNORE INTO vectors (text, vector) VALUES (?, ?)", rows)


def _read(db: sqlite3.Connection, hashes: list[bytes], dimension: int, path: Path) -> NDArray[np.float32]:
    out = np.empty((len(hashes), dimension), np.float32)
    for row, text_hash in enumerate(hashes):
        stored = _stored(db, text_hash)
        vector = np.frombuffer(stored, np.float32) if len(stored) == 4 * dimension else np.array([np.nan])
        if not np.isfinite(vector).all():
            raise Damaged(f"{path} has a damaged vector; delete the file to embed again.")
        out[row] = vector
    return out
