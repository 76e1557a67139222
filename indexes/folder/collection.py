"""One folder = one collection: the SQLite tables, the published generation of the FAISS index, and the lock.

    DIR/documents.sqlite     the only truth
    DIR/generations/000007/  a disposable derivative: FAISS index, transform, manifest
    DIR/quarantine/          what `verify --repair` put aside
    DIR/writer.lock          held by the one process that writes
    DIR/checked.json         which files were found sound, to be opened without reading them all

A search sees the generation, plus an exact scan of the vectors that are newer, minus what was deleted. A generation
that was superseded is removed when its last reader lets go of it.
"""

import contextlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexes.errors import Damaged, Misuse, NotACollection, RetrieverError, salvage_advice
from indexes.faiss import gpu
from indexes.faiss.auto import chosen
from indexes.faiss.building import Stage, Vectors, exact_index, made, silent
from indexes.faiss.recall import WANTED, stored_queries
from indexes.faiss.types import AUTO, IndexRequest, factory_string
from indexes.faiss.vectors import VectorIndex, empty_index, unit_rows
from indexes.folder import checked_files as checked
from indexes.folder import generation as generations
from indexes.folder import generation_lock as holding
from indexes.folder import write_lock as locking
from indexes.folder.generation import Generation
from indexes.folder.space import Apply, Blocks, Space, unchanged
from indexes.folder.transfer import LocalTransfer
from indexes.folder.write_lock import WriteLock
from indexes.fork import Lock
from indexes.publication import Publication
from indexes.sqlite.documents import BOOKKEEPING_TABLES, DocumentStore, is_transient
from indexes.sqlite.words import Words

FORMAT = 1
DATABASE = "documents.sqlite"
GENERATIONS = "generations"
OWN_NAMES = {locking.NAME, GENERATIONS, checked.NAME, "quarantine", DATABASE}
OWN_NAMES |= {f"{DATABASE}-{ending}" for ending in ("wal", "shm", "journal")}
NOTHING = np.zeros(0, np.int64)

Result = TypeVar("Result")


class _Spaces(threading.local):
    """What a thread last searched: as of the snapshots of its own connection."""

    index: Space | None = None
    raw: Space | None = None


class Collection:
    """A collection opened for reading, or for reading and writing; threads may share it."""

    def __init__(self, folder: Path, store: DocumentStore, device: str = "cpu") -> None:
        self.folder = folder
        self.device = device
        """Where the index is searched: cpu, cuda, or auto."""
        self.device_note = ""
        """Once the index is loaded: whether a GPU searches it, if there is one."""
        self.apply_of: Callable[[Generation], Apply] | None = None
        self.store = store
        self.words = Words(store)
        self._lock = WriteLock(folder)
        self._loaded: tuple[Generation, VectorIndex] | None = None
        self._loading = Lock()
        self._spaces = _Spaces()

    # ---- opening -----------------------------------------------------------------------------------------

    @classmethod
    def open(cls, folder: Path | str, *, device: str = "cpu") -> Self:
        """Open the collection in `folder` for reading; `writing()` takes the lock to change it."""
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise Misuse(f"{folder} is a file; --index takes a folder.")
        if not cls.is_there(folder):
            there = "is no collection" if folder.is_dir() else "does not exist"
            raise NotACollection(f"{folder} {there}; make one with: retriever index SOURCE --index {folder}")
        generations.refuse_links(folder, OWN_NAMES)
        return cls(folder, DocumentStore(folder / DATABASE), device)

    @classmethod
    def create(cls, folder: Path | str, settings: dict[str, Any]) -> Self:
        """Make a new collection in an empty or new folder."""
        folder = Path(folder)
        cls.refuse_if_taken(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise Misuse(f"{folder} cannot be made a folder: a file is in the way.") from None
        with WriteLock(folder).held():
            collection = cls(folder, DocumentStore(folder / DATABASE, create=True))
            if collection.is_empty():  # else another process made it meanwhile, and its settings hold
                collection.store.set_settings(settings)
            generations.sync(folder.parent)
        return collection

    @staticmethod
    def refuse_if_taken(folder: Path | str) -> None:
        """Refuse a folder that a collection cannot be made in, because something else is there."""
        folder = Path(folder)
        generations.refuse_links(folder, OWN_NAMES)
        if folder.is_dir() and any(path.name not in OWN_NAMES for path in folder.iterdir()):
            raise Misuse(f"{folder} holds other files and no collection; give --index an empty or new folder.")

    @staticmethod
    def is_there(folder: Path) -> bool:
        """Whether the folder holds a collection, whole or of a run that was killed while making it."""
        return (folder / DATABASE).is_file()

    @classmethod
    def is_begun(cls, folder: Path | str) -> bool:
        """Whether the folder holds a collection with anything in it; one without may still be made anew."""
        folder = Path(folder)
        if not cls.is_there(folder):
            return False
        try:
            with cls.open(folder) as collection:
                return not collection.is_empty()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and is_transient(error):
                raise
            raise Damaged(f"{folder / DATABASE} is damaged: {error}; {salvage_advice(folder)}") from error
        except NotACollection:
            with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection:
                tables = {row[0] for row in connection.execute("SELECT tbl_name FROM sqlite_master")}
                if tables - BOOKKEEPING_TABLES:
                    raise
            return False

    @staticmethod
    def check_index(asked: IndexRequest, dimension: int, device: str) -> None:
        """Refuse an index that FAISS does not know, or that a GPU which was asked for could not search."""
        if asked.type == AUTO:
            return
        factory = factory_string(asked.type, 0, dimension)
        index = empty_index(factory, dimension)
        if device == "cuda" and (reason := gpu.why_not(index, factory)):
            raise Misuse(f"--device cuda: the index cannot be searched on a GPU. {reason}")

    @property
    def name(self) -> str:
        """What to call it in messages and commands."""
        return str(self.folder)

    def sizes(self) -> dict[str, int]:
        """The bytes of every file; one that goes away meanwhile is left out."""
        found = {}
        for parent, _, names in os.walk(self.folder):
            for path in (Path(parent, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    found[path.relative_to(self.folder).as_posix()] = path.stat().st_size
        return found

    @property
    def transfer(self) -> LocalTransfer:
        """Its rows with their numbers."""
        return LocalTransfer(self.store, self.dimension)

    def is_empty(self) -> bool:
        """Whether nothing was ever stored here."""
        return not (self.store.last_vector() or self.store.count("documents") or self.published())

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the collection's one write lock; it dies with the process. May be nested."""
        self.store.refuse_if_replaced()  # or the lock's file would make the folder again
        with self._lock.held():
            yield
            self.store.refuse_if_replaced()  # before anything is acknowledged that is nowhere

    def close(self) -> None:
        if self._loaded:
            self._let_go()
        self.store.close()

    def _let_go(self) -> None:
        """Drop the loaded index; if it was superseded and nobody else uses it, remove its files."""
        self._loaded, self._spaces = None, _Spaces()
        if self.store.replaced:  # then the generations there are another collection's
            return
        with contextlib.suppress(sqlite3.Error, RetrieverError):
            if published := self.published():
                holding.remove_superseded(self.folder / GENERATIONS, published[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def encoder(self) -> dict[str, Any]:
        """The identity of the encoder that made the vectors."""
        encoder = self.store.setting("encoder")
        if not is_encoder(encoder):
            raise Damaged(
                f"{self.store.path}: the setting 'encoder' is damaged; "
                f"run: retriever verify --repair --index {self.folder}"
            )
        return dict(encoder)

    @property
    def dimension(self) -> int:
        return int(self.encoder["dimension"])

    def refuse_another_encoder(self) -> None:
        """Refuse to write where the settings name another encoder than the one the index was built for."""
        try:
            generation = self.generation()
        except Damaged:  # a manifest that is lost tells nothing: the setting has its checksum alone
            generation = None
        if generation:
            self._refuse_another_encoder(generation)

    def _refuse_another_encoder(self, generation: Generation) -> None:
        built = generation.manifest["encoder"]
        try:
            own = self.store.setting("encoder", checked=False)
        except Damaged:
            own = None
        if own != built:
            raise Damaged(
                f"{generation.folder} was built for another encoder than the one in the settings of {self.store.path} "
                f"({difference(built, own)}); run: retriever verify --repair --index {self.folder}"
            )

    # ---- generations -------------------------------------------------------------------------------------

    def published(self) -> tuple[int, str, str] | None:
        """Number, folder and manifest hash of the published generation."""
        row = self.store.db.conn.execute(
            "SELECT number, folder, manifest_sha256 FROM generations ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return None if row is None else (int(row[0]), generations.plain_name(row[1], self.store.path), str(row[2]))

    def generation(self) -> Generation | None:
        """The published generation, or None before the first."""
        return self.with_generation(lambda generation: generation)

    def _read(self, row: tuple[int, str, str], fresh: bool) -> Generation:
        """The generation of a row; its manifest was checked once, and is read again only when asked to."""
        loaded = self._loaded
        if not fresh and loaded and loaded[0].row == row:
            return loaded[0]
        return generations.read(row[0], self.folder / GENERATIONS / row[1], row[2])

    def with_generation(self, use: Callable[[Generation | None], Result], *, fresh: bool = False) -> Result:
        """What `use` makes of the published generation and its files.

        A publication in the middle may remove the files it reads: then it is called again with the newer one.
        """
        while True:
            row = self.published()
            try:
                return use(self._read(row, fresh) if row else None)
            except Damaged:
                if self.published() == row:
                    raise

    def publish(self, publication: Publication, progress: Stage = silent) -> Generation:
        """Build a generation from the stored raw vectors and switch to it; readers see the old or the new one."""
        apply, asked, compact = publication.apply, publication.asked, publication.compact
        store = self.store
        last = store.last_vector()
        numbers = store.vector_numbers(last, used_only=compact)

        def blocks() -> Blocks:
            return publication.mapped(store.each_vector(self.dimension, last=last, used_only=compact))

        def take(some: NDArray[np.int64]) -> NDArray[np.float32]:
            return unit_rows(apply(store.vectors(some.tolist(), self.dimension, checked=True)))

        def find(
            index: VectorIndex, vectors: NDArray[np.float32]
        ) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
            space = Space(store, self.dimension, (0, 0), ((index, NOTHING),), apply)
            return [(scored.numbers, scored.scores) for scored in space.nearest_vectors(vectors, WANTED)]

        asking = publication.asking() or stored_queries(numbers, take)
        vectors = Vectors(publication.dimension_out, numbers, blocks, take)
        if asked.type == AUTO:
            before = None if publication.reconsider else self._chosen_before(asked)
            built = chosen(asked, vectors, asking, find, progress, before)
        else:
            built = made(asked, vectors, asking, find, progress)
        previous = store.db.conn.execute(
            "SELECT max(coalesce((SELECT max(number) FROM generations), 0),"
            " coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'generations'), 0))"
        ).fetchone()[0]
        name = f"{previous + 1:06d}"
        root = self.folder / GENERATIONS
        aside, final = root / f"{name}.writing", root / name
        facts = {
            "format": FORMAT,
            "factory": built.factory,
            "index_type": asked.type,
            "asked_recall": asked.recall,
            "asked_memory": asked.memory,
            "index_note": built.note,
            "measured": built.facts,
            "search_settings": built.index.settings,
            "last_sequence": last,
            **publication.facts,
        }
        try:
            sha256, extra = generations.write(aside, built.index, publication.write_transform, facts)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)  # a full disk gets its space back
            raise
        self.store.refuse_if_replaced()
        self._lock.refuse_if_lost()
        if final.exists():  # left by a process that was killed between the rename and the switch
            shutil.rmtree(final)
        aside.rename(final)
        generations.sync(root)
        generations.sync(self.folder)
        with store.changing():
            if compact:
                store.drop_unused_vectors()
            store.db.conn.execute("DELETE FROM generations")
            store.db.conn.execute("DELETE FROM generation_files")
            store.db.conn.execute(
                "INSERT INTO generations (number, folder, manifest_sha256, published_at) VALUES (?, ?, ?, ?)",
                [previous + 1, name, sha256, datetime.now(UTC).isoformat(timespec="seconds")],
            )
            store.db.conn.executemany(
                "INSERT INTO generation_files VALUES (?, ?, ?)",
                [(previous + 1, extra_name, (final / extra_name).read_bytes()) for extra_name in extra],
            )
            store.set_settings(publication.settings)
        self._remove_leavings()
        holding.remove_superseded(root, previous + 1)
        return generations.read(previous + 1, final, sha256)

    def _chosen_before(self, asked: IndexRequest) -> dict[str, Any] | None:
        """The manifest of the published index, if `auto` chose it for the same request."""
        with contextlib.suppress(Damaged):
            generation = self.generation()
            if generation and generation.asked == asked:
                return generation.manifest
        return None

    def _remove_leavings(self) -> None:
        """Remove what killed processes were writing; the lock says that nobody writes it now."""
        for path in (self.folder / GENERATIONS).glob("*.writing"):
            shutil.rmtree(path, ignore_errors=True)

    def forget_generation(self) -> None:
        """Publish nothing: for a collection that has no passage left to search."""
        with self.store.changing():
            self.store.db.conn.execute("DELETE FROM generations")
            self.store.db.conn.execute("DELETE FROM generation_files")
        self._loaded, self._spaces = None, _Spaces()

    def kept_files(self) -> dict[str, bytes]:
        """The transform's files as SQLite keeps them, for making a damaged generation again."""
        rows = self.store.db.conn.execute("SELECT name, bytes FROM generation_files ORDER BY name")
        return {generations.plain_name(name, self.store.path): bytes(data) for name, data in rows}

    def backlog(self) -> tuple[int, int]:
        """How many vectors are newer than the generation, and how many there are that nothing uses."""
        generation = self.generation()
        last = generation.last_vector if generation else 0
        return self.store.count_used_after(last), self.store.count("unused")

    # ---- searching ---------------------------------------------------------------------------------------

    def refuse_unfinished(self) -> None:
        """Refuse a collection whose first run has not come to its end."""
        if self.published() is None:
            raise self._unfinished()

    def _unfinished(self) -> NotACollection:
        return NotACollection(
            f"{self.folder} has {self.store.count('documents'):,} documents but no index yet: "
            "its first run was interrupted. Run the same command again to finish it."
        )

    def _searchable(self, generation: Generation | None) -> Generation:
        if generation is None:
            raise self._unfinished()
        return generation

    def load(self, prepare: Callable[[Generation], Result]) -> tuple[Generation, Result]:
        """The published generation, its index loaded and checked, and what `prepare` makes of its files."""
        return self.with_generation(lambda generation: self._load(self._searchable(generation), prepare))

    def _load(self, generation: Generation, prepare: Callable[[Generation], Result]) -> tuple[Generation, Result]:
        with self._loading:  # the other threads wait, and find it done
            if self._loaded is None or self._loaded[0].row != generation.row:
                self._load_index(generation)
        return generation, prepare(generation)

    def _load_index(self, generation: Generation) -> None:
        held = holding.Hold(generation.folder)
        index = generations.load_index(generation)
        index.held = held
        repair = f"run: retriever verify --repair --index {self.folder}"
        in_table = self.store.count_vectors(generation.last_vector)
        if len(index) != in_table:
            raise Damaged(f"{generation.folder}: index holds {len(index):,} vectors, table {in_table:,} rows; {repair}")
        self._refuse_another_encoder(generation)
        self.device_note = gpu.searched_on(self.device, index, generation.manifest["factory"])
        self._let_go()
        self._loaded = (generation, index)

    def in_space(self, transform_of: Callable[[Generation], Apply], look: Callable[[Space], Result]) -> Result:
        """What `look` finds in the space of the published generation, in one snapshot of the table.

        `transform_of` gives the transform that belongs to a generation.
        """
        while True:
            with self.store.db.atomic():
                published, loaded = self.published(), self._loaded
                if published and loaded and loaded[0].row == published:
                    return look(self._current_space(*loaded, transform_of(loaded[0])))
            self.load(transform_of)

    def in_raw_space(self, look: Callable[[Space], Result]) -> Result:
        """The same in the encoder's own space, by an exact scan of the stored vectors."""
        with self.store.db.atomic():
            version = self.store.data_version
            space = self._spaces.raw
            if space is None or space.version != version:
                parts = ((self._newer_than(0, unchanged), NOTHING),)
                space = self._spaces.raw = Space(self.store, self.dimension, version, parts, unchanged)
            return look(space)

    def _current_space(self, generation: Generation, index: VectorIndex, apply: Apply) -> Space:
        version = self.store.data_version
        space = self._spaces.index
        if space is None or space.version != version:
            parts = [(index, self.store.unused_vectors(generation.last_vector))]
            newer = self._newer_than(generation.last_vector, apply)
            if len(newer):
                parts.append((newer, NOTHING))
            space = self._spaces.index = Space(self.store, self.dimension, version, tuple(parts), apply)
        return space

    def _newer_than(self, last: int, apply: Apply) -> VectorIndex:
        """An exact index in memory over the used vectors that are newer than `last`."""
        blocks = [
            (numbers, unit_rows(apply(raw)))
            for numbers, raw in self.store.each_vector(self.dimension, after=last, used_only=True)
        ]
        return exact_index(blocks[0][1].shape[1] if blocks else 1, blocks)


def difference(one: Any, other: Any) -> str:
    """What differs between two identities, naming both sides."""
    if not is_encoder(one) or not is_encoder(other):
        return "one of the two is damaged"
    keys = sorted(key for key in {*one, *other} if one.get(key) != other.get(key))
    return "; ".join(f"{key} {str(one.get(key))[:64]} against {str(other.get(key))[:64]}" for key in keys)


def is_encoder(value: Any) -> bool:
    """Whether a setting can be an encoder's identity at all."""
    return isinstance(value, dict) and type(value.get("dimension")) is int
