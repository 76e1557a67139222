"""Builds the next generation of a collection and switches to it."""

import contextlib
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import file_sha256
from indexes.errors import Damaged
from indexes.faiss.auto import choose_index
from indexes.faiss.building import Built, Stage, Vectors, build_requested, silent
from indexes.faiss.recall import WANTED, stored_queries
from indexes.faiss.types import AUTO, IndexRequest
from indexes.faiss.vectors import VectorIndex, unit_rows
from indexes.folder.generation import GENERATIONS, WriteLock, file_mode, read_generation, remove_superseded, sync
from indexes.folder.space import Space
from indexes.generation import INDEX_FILE, MANIFEST, NUMBERS_FILE, RAW_FILE, Generation, Publication, plain_name
from indexes.protocol import AnyCollection
from indexes.rows import VECTOR_TYPE, Blocks, Matrix, Numbers
from indexes.sqlite.documents import DocumentStore


class IndexPublisher(AnyCollection):
    """Publishes the generations of a collection in a folder."""

    store: DocumentStore
    folder: Path
    _lock: WriteLock
    _loaded: tuple[Generation, VectorIndex] | None

    def transform_files(self) -> dict[str, bytes]:
        rows = self.store.db.conn.execute("SELECT name, bytes FROM generation_files ORDER BY name").fetchall()
        if any(not isinstance(data, bytes) for _, data in rows):
            raise Damaged(f"{self.store.path}: the copy of the transform is damaged.")
        return {plain_name(name, self.store.path): data for name, data in rows}

    def publish(self, publication: Publication, progress: Stage = silent) -> Generation:
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
        try:
            raw = store.each_vector(self.dimension, last=last, used_only=publication.compact)
            sha256, files = _write(aside, built, publication, last, raw)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)  # frees the space if the disk is full
            raise
        store.refuse_if_replaced()
        self._lock.refuse_if_lost()
        if final.exists():  # left by a process that was killed between the rename and the switch
            shutil.rmtree(final)
        aside.rename(final)
        sync(root)
        sync(self.folder)
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
        if not store.db.conn.in_transaction:  # else the caller may still undo it, and the old index counts again
            self.remove_older(number)
        return read_generation(number, final, sha256)

    def remove_older(self, number: int) -> None:
        """Remove generations older than this number, and what killed processes left. Hold the write lock."""
        root = self.folder / GENERATIONS
        for path in root.glob("*.writing"):
            shutil.rmtree(path, ignore_errors=True)
        remove_superseded(root, number)

    def _build(self, publication: Publication, last: int, progress: Stage) -> Built:
        store, apply, request, compact = self.store, publication.apply, publication.request, publication.compact
        numbers = store.vector_numbers(last, used_only=compact)

        def blocks() -> Blocks:
            return publication.mapped(store.each_vector(self.dimension, last=last, used_only=compact))

        def take(some: Numbers) -> Matrix:
            return unit_rows(apply(store.vectors(some.tolist(), self.dimension, checked=True)))

        def find(index: VectorIndex, rows: Matrix) -> list[tuple[Numbers, NDArray[np.float64]]]:
            space = Space(store, self.dimension, (0, 0), ((index, np.zeros(0, np.int64)),), apply)
            return [(scored.numbers, scored.scores) for scored in space.nearest_vectors(rows, WANTED)]

        queries = publication.held_out_queries() or stored_queries(numbers, take)
        vectors = Vectors(publication.dimension_out, numbers, blocks, take)
        if request.type != AUTO:
            return build_requested(request, vectors, queries, find, progress)
        before = None if publication.reconsider else self._manifest_for(request)
        return choose_index(request, vectors, queries, find, progress, before)

    def _manifest_for(self, request: IndexRequest) -> dict[str, Any] | None:
        """Return the manifest of the published index if it was built for the same request, else None."""
        with contextlib.suppress(Damaged):
            generation = self.generation()
            if generation and generation.requested == request:
                return generation.manifest
        return None

    def keep_transform(self, number: int, files: dict[str, bytes]) -> None:
        """Copy the transform's files of a generation into the database. The caller must be in a transaction."""
        self.store.db.conn.execute("DELETE FROM generation_files")
        self.store.db.conn.executemany(
            "INSERT INTO generation_files VALUES (?, ?, ?)", [(number, name, data) for name, data in files.items()]
        )

    def _delete_generation(self) -> None:
        self.store.db.conn.execute("DELETE FROM generations")
        self.store.db.conn.execute("DELETE FROM generation_files")

    def forget_generation(self) -> None:
        """Remove the published generation from the database. Used if no passage is left to search."""
        with self.store.changing():
            self._delete_generation()
        self._loaded = None


def _write(aside: Path, built: Built, publication: Publication, last: int, raw: Blocks) -> tuple[str, list[str]]:
    """Write a generation into the new folder `aside` and sync it.

    `last` is the number of the last vector that was stored. `raw` yields the stored vectors. Return the SHA-256 of
    the manifest, and the names of the transform's files.
    """
    if aside.exists():
        shutil.rmtree(aside)
    aside.mkdir(parents=True)
    mode = file_mode(aside.parent.parent)
    built.index.save(aside / INDEX_FILE, aside / NUMBERS_FILE)
    names = publication.write_transform(aside)
    own = [INDEX_FILE, NUMBERS_FILE]
    if not built.index.exact:
        own.append(RAW_FILE)
        with (aside / RAW_FILE).open("wb") as file:
            for _, rows in raw:
                file.write(rows.astype(VECTOR_TYPE).tobytes())
    manifest = publication.manifest(
        factory=built.factory,
        settings=built.index.settings,
        measured=built.facts,
        note=built.note,
        last_vector=last,
        count=len(built.index),
        files={
            name: {"sha256": file_sha256(aside / name), "bytes": (aside / name).stat().st_size}
            for name in sorted([*own, *names])
        },
    )
    (aside / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for path in aside.iterdir():
        path.chmod(mode)
        sync(path)
    sync(aside)
    return file_sha256(aside / MANIFEST), names
