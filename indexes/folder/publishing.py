"""The published generation of a collection: reading it, building the next one, and switching to it."""

import contextlib
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexes.errors import Damaged
from indexes.faiss.auto import choose_index
from indexes.faiss.building import Built, Stage, Vectors, build_requested, silent
from indexes.faiss.recall import WANTED, stored_queries
from indexes.faiss.types import AUTO, IndexRequest
from indexes.faiss.vectors import VectorIndex, unit_rows
from indexes.folder import generation as generations
from indexes.folder.generation import Generation
from indexes.folder.locks import WriteLock, remove_superseded
from indexes.folder.space import Blocks, Space
from indexes.publication import Publication
from indexes.sqlite.documents import DocumentStore

FORMAT = 1
GENERATIONS = "generations"

Result = TypeVar("Result")


class PublishedIndex:
    """A collection's generations."""

    def __init__(self, folder: Path, store: DocumentStore) -> None:
        self.folder = folder
        self.store = store
        self._lock = WriteLock(folder)
        self._loaded: tuple[Generation, VectorIndex] | None = None

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

    def published(self) -> tuple[int, str, str] | None:
        """Return number, folder and manifest hash of the published generation; None before the first."""
        row = self.store.db.conn.execute(
            "SELECT number, folder, manifest_sha256 FROM generations ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return None if row is None else (int(row[0]), generations.plain_name(row[1], self.store.path), str(row[2]))

    def generation(self) -> Generation | None:
        """Return the published generation; None before the first."""
        return self.with_generation(lambda generation: generation)

    def with_generation(self, use: Callable[[Generation | None], Result], *, fresh: bool = False) -> Result:
        """Call `use` with the published generation, again with the newer one if a publication removed its files.

        `fresh` reads the manifest again even if it is loaded.
        """
        while True:
            row = self.published()
            try:
                return use(self._read(row, fresh) if row else None)
            except Damaged:
                if self.published() == row:
                    raise

    def _read(self, row: tuple[int, str, str], fresh: bool) -> Generation:
        loaded = self._loaded  # not in the caller, where it would keep a superseded index
        if not fresh and loaded and loaded[0].row == row:
            return loaded[0]
        return generations.read(row[0], self.folder / GENERATIONS / row[1], row[2])

    def transform_files(self) -> dict[str, bytes]:
        """Return the copies of the transform's files in the database, for making a damaged generation again."""
        rows = self.store.db.conn.execute("SELECT name, bytes FROM generation_files ORDER BY name").fetchall()
        if any(not isinstance(data, bytes) for _, data in rows):
            raise Damaged(f"{self.store.path}: the copy of the transform is damaged.")
        return {generations.plain_name(name, self.store.path): data for name, data in rows}

    def backlog(self) -> tuple[int, int]:
        """Count the vectors that are newer than the generation, and those that are no longer used."""
        generation = self.generation()
        last = generation.last_vector if generation else 0
        return self.store.count_used_after(last), self.store.count("unused")

    # ---- the next one --------------------------------------------------------------------------------------

    def publish(self, publication: Publication, progress: Stage = silent) -> Generation:
        """Build a generation from the stored raw vectors and switch to it; readers see the old or the new one."""
        store = self.store
        last = store.last_vector()
        built = self._build(publication, last, progress)
        (previous,) = store.db.conn.execute(
            "SELECT max(coalesce((SELECT max(number) FROM generations), 0),"
            " coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'generations'), 0))"
        ).fetchone()
        number, name = previous + 1, f"{previous + 1:06d}"
        root = self.folder / GENERATIONS
        aside, final = root / f"{name}.writing", root / name
        request = publication.request
        facts = {
            "format": FORMAT,
            "factory": built.factory,
            "index_type": request.type,
            "asked_recall": request.recall,
            "asked_memory": request.memory,
            "index_note": built.note,
            "measured": built.facts,
            "search_settings": built.index.settings,
            "last_sequence": last,
            **publication.facts,
        }
        try:
            sha256, files = generations.write(aside, built.index, publication.write_transform, facts)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)  # a full disk gets its space back
            raise
        store.refuse_if_replaced()
        self._lock.refuse_if_lost()
        if final.exists():  # left by a process that was killed between the rename and the switch
            shutil.rmtree(final)
        aside.rename(final)
        generations.sync(root)
        generations.sync(self.folder)
        with store.changing() as db:
            if publication.compact:
                store.drop_unused_vectors()
            self._delete_generation()
            db.conn.execute(
                "INSERT INTO generations (number, folder, manifest_sha256, published_at) VALUES (?, ?, ?, ?)",
                [number, name, sha256, datetime.now(UTC).isoformat(timespec="seconds")],
            )
            self.keep_transform(number, {own: (final / own).read_bytes() for own in files})
            store.set_settings(publication.settings)
        for path in root.glob("*.writing"):  # of killed processes: the lock says that nobody writes them now
            shutil.rmtree(path, ignore_errors=True)
        remove_superseded(root, number)
        return generations.read(number, final, sha256)

    def _build(self, publication: Publication, last: int, progress: Stage) -> Built:
        store, apply, request, compact = self.store, publication.apply, publication.request, publication.compact
        numbers = store.vector_numbers(last, used_only=compact)

        def blocks() -> Blocks:
            return publication.mapped(store.each_vector(self.dimension, last=last, used_only=compact))

        def take(some: NDArray[np.int64]) -> NDArray[np.float32]:
            return unit_rows(apply(store.vectors(some.tolist(), self.dimension, checked=True)))

        def find(index: VectorIndex, rows: NDArray[np.float32]) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
            space = Space(store, self.dimension, (0, 0), ((index, np.zeros(0, np.int64)),), apply)
            return [(scored.numbers, scored.scores) for scored in space.nearest_vectors(rows, WANTED)]

        queries = publication.held_out_queries() or stored_queries(numbers, take)
        vectors = Vectors(publication.dimension_out, numbers, blocks, take)
        if request.type != AUTO:
            return build_requested(request, vectors, queries, find, progress)
        before = None if publication.reconsider else self._manifest_for(request)
        return choose_index(request, vectors, queries, find, progress, before)

    def _manifest_for(self, request: IndexRequest) -> dict[str, Any] | None:
        """Return the manifest of the published index if `auto` chose it for the same request."""
        with contextlib.suppress(Damaged):
            generation = self.generation()
            if generation and generation.requested == request:
                return generation.manifest
        return None

    def keep_transform(self, number: int, files: dict[str, bytes]) -> None:
        """Copy the transform's files of a generation into the database, within a transaction."""
        self.store.db.conn.execute("DELETE FROM generation_files")
        self.store.db.conn.executemany(
            "INSERT INTO generation_files VALUES (?, ?, ?)", [(number, name, data) for name, data in files.items()]
        )

    def _delete_generation(self) -> None:
        self.store.db.conn.execute("DELETE FROM generations")
        self.store.db.conn.execute("DELETE FROM generation_files")

    def forget_generation(self) -> None:
        """Publish nothing: for a collection that has no passage left to search."""
        with self.store.changing():
            self._delete_generation()
        self._loaded = None

    def refuse_another_encoder(self, generation: Generation | None = None) -> None:
        """Refuse to go on if the settings name another encoder than the one that the index was built for."""
        if generation is None:
            with contextlib.suppress(Damaged):  # without a manifest, only the setting's checksum vouches for it
                generation = self.generation()
        if generation is None:
            return
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


def difference(one: Any, other: Any) -> str:
    """Say what differs between the identities of two encoders, naming both values."""
    if not is_encoder(one) or not is_encoder(other):
        return "one of the two is damaged"
    keys = sorted(key for key in {*one, *other} if one.get(key) != other.get(key))
    return "; ".join(f"{key} {str(one.get(key))[:64]} against {str(other.get(key))[:64]}" for key in keys)


def is_encoder(value: Any) -> bool:
    """True if a value has the shape of an encoder's identity."""
    return isinstance(value, dict) and type(value.get("dimension")) is int
