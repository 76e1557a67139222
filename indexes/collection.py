"""One folder = one collection: the SQLite tables, the published generation of the FAISS index, and the lock.

    DIR/documents.sqlite     the only truth
    DIR/generations/000007/  a disposable derivative: FAISS index, transform, manifest
    DIR/quarantine/          what `verify --repair` put aside
    DIR/writer.lock          held by the one process that writes

A search sees the generation, plus an exact scan of the vectors that are newer, minus what was deleted.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from indexes import generation as generations
from indexes import vectors as vector_indexes
from indexes.documents import DocumentStore
from indexes.errors import Damaged, Locked, Misuse, NotACollection
from indexes.generation import Generation
from indexes.space import Apply, Match, Space
from indexes.vectors import VectorIndex, unit_rows

FORMAT = 1
DATABASE = "documents.sqlite"
GENERATIONS = "generations"
LOCK = "writer.lock"
OWN_NAMES = {LOCK, GENERATIONS, "quarantine", DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"}
NOTHING = np.zeros(0, np.int64)



class Collection:
    """A collection opened for reading, or for reading and writing."""

    def __init__(self, folder: Path, store: DocumentStore, lock: FileLock) -> None:
        self.folder = folder
        self.store = store
        self._lock = lock
        self._loaded: tuple[Generation, VectorIndex] | None = None
        self._space: Space | None = None
        self._raw_space: Space | None = None

    # ---- opening -----------------------------------------------------------------------------------------

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the collection in `folder` for reading; `writing()` takes the lock to change it."""
        if folder.exists() and not folder.is_dir():
            raise Misuse(f"{folder} is a file; --index takes a folder.")
        if not cls.is_there(folder):
            there = "is no collection" if folder.is_dir() else "does not exist"
            raise NotACollection(f"{folder} {there}; make one with: retriever index SOURCE --index {folder}")
        return cls(folder, DocumentStore(folder / DATABASE), FileLock(folder / LOCK))

    @classmethod
    def create(cls, folder: Path, settings: dict[str, Any]) -> Self:
        """Make a new collection in an empty or new folder."""
        if folder.is_dir() and any(path.name not in OWN_NAMES for path in folder.iterdir()):
            raise Misuse(f"{folder} holds other files and no collection; give --index an empty or new folder.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise Misuse(f"{folder} cannot be made a folder: a file is in the way.") from None
        lock = FileLock(folder / LOCK)
        with _held(lock, folder):
            collection = cls(folder, DocumentStore(folder / DATABASE, create=True), lock)
            collection.store.set_settings({"format": FORMAT, **settings})
        return collection

    @staticmethod
    def is_there(folder: Path) -> bool:
        """Whether the folder holds a collection, whole or of a run that was killed while making it."""
        return (folder / DATABASE).is_file()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the collection's one write lock; it dies with the process. May be nested."""
        with _held(self._lock, self.folder):
            yield

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def dimension(self) -> int:
        return int(self.store.setting("encoder")["dimension"])

    # ---- generations -------------------------------------------------------------------------------------

    def generation(self) -> Generation | None:
        """The published generation, or None before the first."""
        row = self.store.db.conn.execute(
            "SELECT number, folder, manifest_sha256 FROM generations ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return None if row is None else generations.read(row[0], self.folder / GENERATIONS / row[1], row[2])

    def publish(
        self,
        apply: Apply,
        dimension_out: int,
        factory: str,
        write_transform: Callable[[Path], list[str]],
        facts: dict[str, Any],
        settings: dict[str, Any],
        *,
        compact: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Generation:
        """Build a generation from the stored raw vectors and switch to it; readers see the old or the new one.

        `facts` go into the manifest, `settings` into the table together with the switch. `compact` leaves the
        unused vectors out and forgets them in the same transaction.
        """
        store = self.store
        last = store.last_vector()
        count = store.count_vectors(last) - (len(store.unused_vectors(last)) if compact else 0)

        def blocks() -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
            done = 0
            for numbers, raw in store.each_vector(self.dimension, last=last, used_only=compact):
                yield numbers, unit_rows(apply(raw))
                done += len(numbers)
                if progress:
                    progress(done, count)

        index = vector_indexes.build(factory, dimension_out, count, blocks())
        previous = store.db.conn.execute("SELECT coalesce(max(number), 0) FROM generations").fetchone()[0]
        name = f"{previous + 1:06d}"
        root = self.folder / GENERATIONS
        aside, final = root / f"{name}.writing", root / name
        facts = {"format": FORMAT, "factory": factory, "last_sequence": last, **facts}
        sha256, extra = generations.write(aside, index, write_transform, facts)
        if final.exists():  # left by a process that was killed between the rename and the switch
            shutil.rmtree(final)
        aside.rename(final)
        generations.sync(root)
        generations.sync(self.folder)
        with store.db.atomic():
            if compact:
                store.drop_unused_vectors()
            store.db.conn.execute("DELETE FROM generations")
            store.db.conn.execute(
                "INSERT INTO generations (number, folder, manifest_sha256, published_at) VALUES (?, ?, ?, ?)",
                [previous + 1, name, sha256, datetime.now(UTC).isoformat(timespec="seconds")],
            )
            store.db.conn.executemany(
                "INSERT INTO generation_files VALUES (?, ?, ?)",
                [(previous + 1, extra_name, (final / extra_name).read_bytes()) for extra_name in extra],
            )
            store.set_settings(settings)
        self._space = None
        self._remove_superseded(name)
        published = self.generation()
        if published is None:
            raise Damaged(f"{self.folder} lost its generation {name} while publishing it.")
        return published

    def _remove_superseded(self, current: str) -> None:
        # A reader that holds an old generation has its files open or in memory, and goes on using them.
        for path in (self.folder / GENERATIONS).iterdir():
            if path.name != current:
                shutil.rmtree(path, ignore_errors=True)

    def kept_files(self) -> dict[str, bytes]:
        """The transform's files as SQLite keeps them, for making a damaged generation again."""
        rows = self.store.db.conn.execute("SELECT name, bytes FROM generation_files ORDER BY name")
        return {name: data for name, data in rows}

    def backlog(self) -> tuple[int, int]:
        """How many vectors are newer than the generation, and how many of its own are no longer in use."""
        generation = self.generation()
        last = generation.last_vector if generation else 0
        return self.store.count_used_after(last), len(self.store.unused_vectors(last))

    # ---- searching ---------------------------------------------------------------------------------------

    def generation_or_raise(self) -> Generation:
        generation = self.generation()
        if generation is None:
            raise NotACollection(
                f"{self.folder} has {self.store.count('documents'):,} documents but no index yet: "
                "its first run was interrupted. Run the same `retriever index` command again to finish it."
            )
        return generation

    def _superseded(self, generation: Generation) -> bool:
        """Whether a newer generation was published, and this one's files perhaps removed, meanwhile."""
        return self.generation_or_raise().number != generation.number

    def load(self) -> Generation:
        """The published generation, loaded and checked; a newer one when one was published meanwhile."""
        while True:
            generation = self.generation_or_raise()
            if self._loaded and self._loaded[0].number == generation.number:
                return generation
            try:
                index = generations.load_index(generation)
            except Damaged:
                if self._superseded(generation):
                    continue
                raise
            in_table = self.store.count_vectors(generation.last_vector)
            if len(index) != in_table and not self._superseded(generation):
                raise Damaged(
                    f"{generation.folder}: index holds {len(index):,} vectors, table {in_table:,} rows; "
                    f"run: retriever verify --repair --index {self.folder}"
                )
            self._loaded, self._space = (generation, index), None
            return generation

    def search(
        self, queries: NDArray[np.float32], k: int, transform_of: Callable[[Generation], Apply]
    ) -> list[list[Match]]:
        """The k documents nearest to each query (raw vectors), by cosine in the space of the transform.

        The order is exact; documents that tie on the score come by arrival. `transform_of` gives the
        transform that belongs to a generation.
        """
        while True:
            generation = self.load()
            try:
                apply = transform_of(generation)
            except Damaged:
                if self._superseded(generation):
                    continue
                raise
            with self.store.db.atomic():  # one snapshot for everything a search reads
                if not self._superseded(generation):
                    return self._current_space(generation, apply).nearest_documents(queries, k)

    def search_raw(self, queries: NDArray[np.float32], k: int) -> list[list[Match]]:
        """The same in the encoder's own space, by an exact scan of the stored vectors."""
        with self.store.db.atomic():
            version = self.store.data_version
            if self._raw_space is None or self._raw_space.version != version:
                blocks = self.store.each_vector(self.dimension, used_only=True)
                raw = ((numbers, unit_rows(vectors)) for numbers, vectors in blocks)
                count = self.store.count_used_after(0)
                index = vector_indexes.build("Flat", self.dimension, count, raw)
                self._raw_space = Space(self.store, self.dimension, version, ((index, NOTHING),), lambda vectors: vectors)
            return self._raw_space.nearest_documents(queries, k)

    def _current_space(self, generation: Generation, apply: Apply) -> Space:
        assert self._loaded is not None
        version = self.store.data_version
        if self._space is None or self._space.version != version:
            excluded = self.store.unused_vectors(generation.last_vector)
            parts = [(self._loaded[1], excluded)]
            blocks = self.store.each_vector(self.dimension, after=generation.last_vector, used_only=True)
            newer = [(numbers, unit_rows(apply(raw))) for numbers, raw in blocks]
            if newer:
                rows = sum(len(numbers) for numbers, _ in newer)
                parts.append((vector_indexes.build("Flat", newer[0][1].shape[1], rows, iter(newer)), NOTHING))
            self._space = Space(self.store, self.dimension, version, tuple(parts), apply)
        return self._space


@contextlib.contextmanager
def _held(lock: FileLock, folder: Path) -> Iterator[None]:
    path = folder / LOCK
    try:
        lock.acquire(timeout=0)
    except Timeout:
        holder = path.read_text(encoding="utf-8").strip() or "another one"
        raise Locked(
            f"{folder} is being written to by process {holder}; wait for it or stop it, then try again."
        ) from None
    try:
        path.write_text(f"{os.getpid()}\n", encoding="utf-8")
        yield
    finally:
        lock.release()
