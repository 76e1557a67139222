"""A collection in a folder: the SQLite database, the published generation of the FAISS index, and the locks.

    DIR/documents.sqlite     the documents and vectors; only this file is authoritative
    DIR/generations/000007/  built from the database: FAISS index, transform, manifest
    DIR/encoder/             an encoder that was learned from this collection, if there is one
    DIR/quarantine/          damaged files that `verify --repair` has moved away
    DIR/writer.lock          the lock of the process that writes
    DIR/checked.json         a list of the files that were hashed and found intact

A search uses the index of the generation, scans all vectors that are newer than the generation, and ignores vectors
that are no longer used.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from indexes.errors import Damaged, Misuse, NotACollection, RetrieverError, salvage_advice
from indexes.faiss import gpu
from indexes.faiss.types import AUTO, IndexRequest, factory_string
from indexes.faiss.vectors import VectorIndex, empty_index, exact_index, gpu_count, unit_rows
from indexes.folder import generation as generations
from indexes.folder.generation import CHECKED, GENERATIONS, WRITE_LOCK, ReadLock, WriteLock, remove_superseded
from indexes.folder.publishing import IndexPublisher
from indexes.folder.space import Space
from indexes.folder.transfer import LocalTransfer
from indexes.generation import Generation, plain_name
from indexes.mapped import changed
from indexes.protocol import unchanged
from indexes.rows import Apply
from indexes.sqlite.connections import Lock
from indexes.sqlite.database import is_blank, is_transient
from indexes.sqlite.documents import DocumentStore
from indexes.sqlite.words import Words

DATABASE = "documents.sqlite"
QUARANTINE = "quarantine"
ENCODER = "encoder"
OWN_NAMES = {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal"}
OWN_NAMES |= {
    GENERATIONS,
    QUARANTINE,
    ENCODER,
    f"{ENCODER}.part",
    f"{ENCODER}.next",
    f"{ENCODER}.next.part",
    WRITE_LOCK,
    CHECKED,
}
NOTHING = np.zeros(0, np.int64)

Result = TypeVar("Result")


class _Spaces(threading.local):
    """The spaces that a thread searched last. They belong to the snapshots of its own connection."""

    index: Space | None = None
    raw: Space | None = None


class Collection(IndexPublisher):
    """A collection in a folder."""

    def __init__(self, folder: Path, store: DocumentStore, device: str = "cpu") -> None:
        super().__init__(device)
        self.folder = folder
        self.store = store
        self.name = str(folder)
        self.advice = f"run: retriever verify --repair --index {folder}"
        self._lock = WriteLock(folder)
        self._loaded = None
        self._loading = Lock()
        self._spaces = _Spaces()

    @cached_property
    def words(self) -> Words:
        return Words(self.store)

    # ---- opening -------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, folder: Path | str, *, device: str = "cpu") -> Self:
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise Misuse(f"{folder} is a file; `index` must be a folder.")
        if not cls.exists(folder):
            why = "is not a collection" if folder.is_dir() else "does not exist"
            raise NotACollection(f"{folder} {why}; make one with: retriever index SOURCE --index {folder}")
        generations.refuse_links(folder, OWN_NAMES)
        return cls(folder, DocumentStore(folder / DATABASE), device)

    @classmethod
    def create(cls, folder: Path | str, settings: dict[str, Any]) -> Self:
        """Create a collection in an empty or new folder."""
        folder = Path(folder)
        cls.refuse_if_taken(folder)
        try:
            generations.new_folder(folder)
        except (FileExistsError, NotADirectoryError):
            raise Misuse(
                f"the folder {folder} cannot be created, because it or one of its parent folders is a file."
            ) from None
        with WriteLock(folder).held():
            # SQLite gives its log the permissions of the database.
            os.close(os.open(folder / DATABASE, os.O_RDWR | os.O_CREAT, generations.file_mode(folder)))
            collection = cls(folder, DocumentStore(folder / DATABASE, create=True))
            if collection.is_empty():  # else another process has created it, and its settings count
                collection.store.set_settings(settings)
            generations.sync(folder.parent)
        return collection

    @staticmethod
    def encoder_place(folder: Path | str) -> Path:
        return Path(folder) / ENCODER

    @staticmethod
    def refuse_if_taken(folder: Path | str) -> None:
        """Refuse a folder that holds files other than those of a collection."""
        folder = Path(folder)
        generations.refuse_links(folder, OWN_NAMES)
        if folder.is_dir() and any(path.name not in OWN_NAMES for path in folder.iterdir()):
            raise Misuse(f"{folder} holds other files and no collection; give `index` an empty or new folder.")

    @staticmethod
    def exists(folder: Path) -> bool:
        """Return whether the folder holds a collection. It may be unfinished if the first run was killed."""
        return (folder / DATABASE).is_file()

    @staticmethod
    def changed(folder: Path) -> float:
        """Return the time of the last change. A search does not count as a change."""
        paths = (folder / DATABASE, folder / f"{DATABASE}-wal", folder / generations.GENERATIONS)
        status = [path.stat() for path in paths if path.exists()]
        return max((one.st_mtime for one in status if one.st_size), default=0.0)  # a search leaves an empty log

    @classmethod
    def is_begun(cls, folder: Path | str) -> bool:
        folder = Path(folder)
        if not cls.exists(folder):
            return False
        try:
            with cls.open(folder) as collection:
                return not collection.is_empty()
        except sqlite3.DatabaseError as error:
            if is_transient(error):
                raise
            raise Damaged(f"{folder / DATABASE} is damaged: {error}; {salvage_advice(folder)}") from error
        except NotACollection:
            if is_blank(folder / DATABASE):
                return False
            raise

    @staticmethod
    def check_index(request: IndexRequest, dimension: int, device: str) -> None:
        """Refuse an index type that FAISS does not have, or that the requested GPU cannot search."""
        if request.type == AUTO:
            return
        factory = factory_string(request.type, 0, dimension)
        index = empty_index(factory, dimension)
        if device == "cuda":
            gpu.obstacle(device, index, factory)

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of every file. Files that are removed meanwhile are left out."""
        found = {}
        for parent, _, names in os.walk(self.folder):
            for path in (Path(parent, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    found[path.relative_to(self.folder).as_posix()] = path.stat().st_size
        return found

    @property
    def transfer(self) -> LocalTransfer:
        return LocalTransfer(self.store, self.dimension)

    def published(self) -> tuple[int, str, str] | None:
        row = self.store.db.conn.execute(
            "SELECT number, folder, manifest_sha256 FROM generations ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return None if row is None else (int(row[0]), plain_name(row[1], self.store.path), str(row[2]))

    def _read(self, row: tuple[int, str, str], fresh: bool) -> Generation:
        loaded = self._loaded  # a variable of the caller would keep an old index in memory
        if not fresh and loaded and loaded[0].row == row:
            return loaded[0]
        return generations.read_generation(row[0], self.folder / GENERATIONS / row[1], row[2])

    def backlog(self) -> tuple[int, int]:
        generation = self.generation()
        last = generation.last_vector if generation else 0
        return self.store.count_used_after(last), self.store.count("unused")

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the write lock. The system releases it when the process ends. May be nested."""
        self.store.refuse_if_replaced()  # else the lock file would create a removed folder again
        with self._lock.held():
            yield
            self.store.refuse_if_replaced()  # the changes may not have been stored

    def close(self) -> None:
        if self._loaded:
            self._release()
        self.store.close()

    def _release(self) -> None:
        """Drop the loaded index. Remove its files if a newer index replaced it and no process uses it."""
        self._loaded, self._spaces = None, _Spaces()
        if self.store.replaced:  # then the folder belongs to another collection
            return
        with contextlib.suppress(sqlite3.Error, RetrieverError):
            if published := self.published():
                remove_superseded(self.folder / GENERATIONS, published[0])

    # ---- searching -----------------------------------------------------------------------------------------

    def _load_index(self, generation: Generation) -> None:
        with self._loading:  # other threads wait here until the index is loaded
            if self._loaded is None or self._loaded[0].row != generation.row:
                self._replace_index(generation)

    def _replace_index(self, generation: Generation) -> None:
        read_lock = ReadLock(generation.folder)
        index = generations.load_index(generation)
        index.read_lock = read_lock
        in_table = self.store.count_vectors(generation.last_vector)
        if len(index) != in_table:
            raise Damaged(
                f"{generation.folder}: the index holds {len(index):,} vectors, but the table has {in_table:,} rows; "
                f"{self.advice}"
            )
        self.refuse_another_encoder(generation)
        if self.device != "cpu" and (self.device != "auto" or gpu_count()):
            self.device_note = gpu.search_on_gpu(self.device, index, generation.manifest["factory"])
        self._release()
        self._loaded = (generation, index)

    def in_space(self, transform_of: Callable[[Generation], Apply], look: Callable[[Space], Result]) -> Result:
        """Call `look` with the space of the published generation, in one snapshot of the tables."""
        while True:
            with self.store.snapshot():
                published, loaded = self.published(), self._loaded
                if published and loaded and loaded[0].row == published:
                    try:
                        return look(self._index_space(*loaded, transform_of(loaded[0])))
                    finally:
                        self._refuse_if_changed(loaded[1])
            self.load(transform_of)

    def _refuse_if_changed(self, index: VectorIndex) -> None:
        """Raise `Damaged` if a file of the index was changed while it was searched, because the result may be wrong."""
        if path := changed(index.mapped):
            self._loaded, self._spaces = None, _Spaces()  # the next search loads and checks all files again
            raise Damaged(f"{path} was changed by another program while it was searched; {self.advice}")

    def in_raw_space(self, look: Callable[[Space], Result]) -> Result:
        """Call `look` with the space of the raw vectors. A search in it scans all stored vectors exactly."""
        with self.store.snapshot():
            version, space = self.store.data_version, self._spaces.raw
            if space is None or space.version != version:
                parts = ((self._newer_than(0, unchanged), NOTHING),)
                space = self._spaces.raw = Space(self.store, self.dimension, version, parts, unchanged)
            return look(space)

    def _index_space(self, generation: Generation, index: VectorIndex, apply: Apply) -> Space:
        version, space = self.store.data_version, self._spaces.index
        if space is None or space.version != version:
            parts = [(index, self.store.unused_vectors(generation.last_vector))]
            newer = self._newer_than(generation.last_vector, apply)
            if len(newer):
                parts.append((newer, NOTHING))
            space = self._spaces.index = Space(self.store, self.dimension, version, tuple(parts), apply)
        return space

    def _newer_than(self, last: int, apply: Apply) -> VectorIndex:
        """Build an exact index in memory over the used vectors that are newer than `last`."""
        blocks = [
            (numbers, unit_rows(apply(raw)))
            for numbers, raw in self.store.each_vector(self.dimension, after=last, used_only=True)
        ]
        return exact_index(blocks[0][1].shape[1] if blocks else 1, blocks)
