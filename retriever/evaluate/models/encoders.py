"""The encoders of the benchmarks: any BERT with any pooling, its label in tables, and a cache of its raw vectors.

The cache has one SQLite file for each encoder, named by the encoder's key. A row is the hash of a text and its vector.
Vectors are stored every few hundred texts, so an interrupted run continues where it stopped. Two runs may share it.
"""

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import DEFAULT_ENCODER, EncoderIdentity
from retriever.errors import Damaged, Misuse, RetrieverError
from retriever.files import cache_folder
from retriever.progress import Progress, silent

SAVED_EVERY = 256
BUSY_SECONDS = 60

Batches = Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]


class TextEncoder:
    """An encoder with one pooling. `key` changes whenever the vectors would change."""

    def __init__(self, encoder: Encoder, label: str) -> None:
        self.encoder = encoder
        self.label = label
        self.pooling = encoder.identity.pooling
        self.dimension = encoder.identity.dimension

    @cached_property
    def key(self) -> str:
        return identity_digest(self.encoder.identity)

    def encode_batches(self, texts: Sequence[str], queries: bool = False) -> Batches:
        return self.encoder.encode_batches(texts, queries=queries)


def identity_digest(identity: EncoderIdentity, more: Mapping[str, str] | None = None) -> str:
    """Return the SHA-256 of everything that determines an encoder's vectors, i.e. of its identity without its name."""
    parts = {name: value for name, value in identity.to_json().items() if name != "name"} | dict(more or {})
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def open_encoders(
    names: Sequence[str] = (), poolings: Sequence[str] = (), *, precision: str = "fp32", **options: Any
) -> list[TextEncoder]:
    """Open every encoder with every pooling, or with its own pooling if none is given.

    The options are those of `Encoder`.
    """
    labels, own = labels_of(names or (DEFAULT_ENCODER,)), dict.fromkeys(poolings) or (None,)
    pairs = [(name, {"pooling": pooling, "precision": precision, **options}) for name in labels for pooling in own]
    return [TextEncoder(Encoder(name, **given), labels[name]) for name, given in pairs]


def labels_of(names: Sequence[str]) -> dict[str, str]:
    """Label each folder by the last part of its path, or by the whole path if two labels would be equal."""
    short = {name: Path(name).resolve().name if Path(name).expanduser().is_dir() else name for name in names}
    return {name: label if list(short.values()).count(label) == 1 else name for name, label in short.items()}


def default_cache() -> Path:
    return cache_folder() / "vectors"


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
        """Return one row for each text, as queries or as documents. Only texts that are not cached are embedded."""
        kind = b"query\0" if queries else b""
        hashes = [hashlib.sha256(kind + text.encode("utf-8")).digest() for text in texts]
        path = self.folder / f"{encoder.key}.sqlite"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as db:
                db.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB NOT NULL)")
                missing = {h: text for h, text in zip(hashes, texts, strict=True) if not _stored(db, h)}
                if missing:
                    _embed(db, encoder, missing, queries, progress)
                return _read(db, hashes, encoder.dimension, path)
        except (FileExistsError, NotADirectoryError):
            raise Misuse(f"{self.folder} is a file; give a folder.") from None
        except sqlite3.OperationalError as error:
            advice = "free disk space, wait for the other run, or give another `cache`"
            raise RetrieverError(f"the cached vectors in {path} cannot be used now ({error}); {advice}.") from error
        except sqlite3.DatabaseError as error:
            raise Damaged(f"{path}: the vectors cannot be used ({error}); delete the file to embed again.") from error


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
