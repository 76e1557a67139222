"""A generation: a folder with a FAISS index, the transform of its vectors, and a manifest.

A generation is written under a temporary name, synced and renamed. After that it never changes. The manifest lists
every file with its SHA-256, and the database holds the SHA-256 of the manifest. A changed file is therefore always
noticed. Hashing is skipped if `checked.json` shows that the same files (size, times, inode) were hashed before. This is
safe because every write changes the ctime, and no program can set it back.

A reader holds a shared lock on the manifest of its generation. When a newer generation has been published, the last
process that releases the old generation removes its folder.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from indexes.checksums import file_sha256
from indexes.errors import Damaged
from indexes.faiss.types import IndexRequest
from indexes.faiss.vectors import VectorIndex
from indexes.sqlite.connections import WriteLock, fcntl
from indexes.sqlite.documents import DocumentStore

GENERATIONS = "generations"
MANIFEST = "manifest.json"
INDEX_FILE = "vectors.faiss"
NUMBERS_FILE = "numbers.npy"
CHECKED = "checked.json"
# File systems measure time in steps of some milliseconds. A file that is younger than this might be changed again
# without a change of its ctime.
TOO_YOUNG_NS = 100_000_000
MANIFEST_TYPES = {"files": dict, "count": int, "last_sequence": int, "factory": str, "index_type": str}

Result = TypeVar("Result")


@dataclass(frozen=True)
class Generation:
    """A published generation: its folder and its manifest."""

    number: int
    folder: Path
    manifest: dict[str, Any]
    manifest_sha256: str
    """The SHA-256 of the manifest.

    It identifies the generation together with the number, because another collection may have a generation with this
    number.
    """

    @property
    def row(self) -> tuple[int, str, str]:
        """The generation's row in the database."""
        return self.number, self.folder.name, self.manifest_sha256

    @property
    def last_vector(self) -> int:
        return int(self.manifest["last_sequence"])

    @property
    def count(self) -> int:
        return int(self.manifest["count"])

    @property
    def requested(self) -> IndexRequest:
        """The requested index type, recall and memory for which this index was built."""
        settings = settings_of(self.manifest)
        return IndexRequest(settings["index_type"], settings["recall"], settings["memory"])

    @property
    def measured(self) -> dict[str, Any]:
        """The measurements that were made when the index was built, with its size and its search settings."""
        known = {**self.manifest.get("measured", {}), "settings": self.manifest.get("search_settings", {})}
        if INDEX_FILE in self.manifest["files"]:  # Milvus has no such file
            size = self.manifest["files"][INDEX_FILE]["bytes"] / max(self.count, 1)
            known["bytes_per_vector"] = round(size, 1)
        return known

    def transform_hashes(self) -> dict[str, str]:
        """Return the SHA-256 of each of the transform's files."""
        files = self.manifest["files"].items()
        return {name: facts["sha256"] for name, facts in files if name not in (INDEX_FILE, NUMBERS_FILE)}


def read_generation(number: int, folder: Path, manifest_sha256: str) -> Generation:
    """Read the generation in `folder`. Raise `Damaged` if its manifest does not have the given hash."""
    path = folder / MANIFEST
    repair = f"run: retriever verify --repair --index {_collection(folder)}"
    try:
        data = path.read_bytes()
    except OSError:
        raise Damaged(f"{path} is missing; {repair}") from None
    if (sha256 := hashlib.sha256(data).hexdigest()) != manifest_sha256:
        raise Damaged(
            f"{path} was changed: its SHA-256 is {sha256[:12]}, the database says {manifest_sha256[:12]}; {repair}"
        )
    try:
        manifest = json.loads(data)
        valid = all(isinstance(manifest[key], kind) for key, kind in MANIFEST_TYPES.items())
        for name, facts in manifest["files"].items():
            plain_name(name, path)
            valid = valid and isinstance(facts["sha256"], str) and isinstance(facts["bytes"], int)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        valid = False
    if not valid:
        raise Damaged(f"{path} is not a valid manifest; {repair}")
    return Generation(number, folder, manifest, manifest_sha256)


def problems(generation: Generation) -> list[str]:
    """List the problems of the files of a generation: missing files, and wrong sizes or hashes."""
    found = []
    for name, expected in generation.manifest["files"].items():
        path = generation.folder / name
        try:
            size = path.stat().st_size
            if size != expected["bytes"]:
                found.append(f"{path} has {size:,} bytes, its manifest says {expected['bytes']:,}")
            elif (sha256 := file_sha256(path)) != expected["sha256"]:
                found.append(
                    f"{path} is damaged or was replaced: its SHA-256 is {sha256[:12]}, its manifest says "
                    f"{expected['sha256'][:12]}"
                )
        except OSError:
            found.append(f"{path} is missing")
    return found


def load_index(generation: Generation) -> VectorIndex:
    """Load the FAISS index of a generation. First check every file that has changed since the last check."""
    collection = _collection(generation.folder)
    state = _state_of(generation)
    if not _was_checked(collection, state):
        if found := problems(generation):
            raise Damaged(f"{found[0]}; run: retriever verify --repair --index {collection}")
        if state is not None:
            _note_checked(collection, state)
    settings = generation.manifest.get("search_settings")
    index = VectorIndex.load(generation.folder / INDEX_FILE, generation.folder / NUMBERS_FILE, settings)
    if len(index) != generation.count:
        raise Damaged(f"{generation.folder} holds {len(index):,} vectors, its manifest says {generation.count:,}.")
    return index


def _state_of(generation: Generation) -> dict[str, Any] | None:
    """Return a description of the files that changes if a file changes. Return None if a file is missing."""
    files, states = generation.manifest["files"], {}
    try:
        for name in files:
            s = (generation.folder / name).stat()
            states[name] = [files[name]["sha256"], s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev]
    except OSError:
        return None
    return {"folder": str(generation.folder.resolve()), "files": states}


def _was_checked(collection: Path, state: dict[str, Any] | None) -> bool:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return state is not None and bool(json.loads((collection / CHECKED).read_bytes()) == state)
    return False


def _note_checked(collection: Path, state: dict[str, Any]) -> None:
    """Record the state of the files before they were hashed. Do nothing if the record cannot be written."""
    if time.time_ns() - max(own[3] for own in state["files"].values()) < TOO_YOUNG_NS:
        return
    aside = collection / f"{CHECKED}.{os.getpid()}"
    with contextlib.suppress(OSError):
        aside.unlink(missing_ok=True)  # it may be a link to another place if somebody else made the collection
        aside.write_text(json.dumps(state), encoding="utf-8")
        aside.replace(collection / CHECKED)


def plain_name(name: object, where: Path) -> str:
    """Return the name, or raise `Damaged` if it could lead out of its folder."""
    if not isinstance(name, str) or name in ("", ".", "..") or any(c in name for c in "/\\:\0"):
        raise Damaged(f"{where} holds the name {str(name)[:100]!r}, which is not a plain file name.")
    return name


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Refuse a collection whose own files are links, because a change could affect files elsewhere."""
    for name in sorted(names):
        if (folder / name).is_symlink():
            raise Damaged(f"{folder / name} is a symbolic link; the files of a collection must be in its folder.")


def sync(path: Path) -> None:
    """Write a file or folder from the cache of the system to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _collection(folder: Path) -> Path:
    return folder.parent.parent


class ReadLock:
    """A lock that prevents all processes from removing the files of a generation.

    It is released when the object is garbage-collected.
    """

    def __init__(self, folder: Path) -> None:
        if fcntl is None:
            return
        # If the manifest was removed or is being removed, the lock fails. Loading then fails with a message.
        with contextlib.suppress(OSError):
            descriptor = os.open(folder / MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def remove_superseded(generations: Path, published: int) -> None:
    """Remove the generations before the published one that no reader holds. Ignore errors."""
    try:
        older = [path for path in generations.iterdir() if path.name.isdecimal() and int(path.name) < published]
    except OSError:
        return
    for folder in older:
        if not _is_held(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_held(folder: Path) -> bool:
    if fcntl is None:
        return False
    try:
        descriptor = os.open(folder / MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


class PublishedIndex:
    """Reads the published generation of a collection."""

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
            raise self.store.damaged("the setting 'encoder' is damaged")
        return dict(encoder)

    @property
    def dimension(self) -> int:
        return int(self.encoder["dimension"])

    def published(self) -> tuple[int, str, str] | None:
        """Return the number, folder and manifest hash of the published generation, or None if there is none."""
        row = self.store.db.conn.execute(
            "SELECT number, folder, manifest_sha256 FROM generations ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return None if row is None else (int(row[0]), plain_name(row[1], self.store.path), str(row[2]))

    def generation(self) -> Generation | None:
        """Return the published generation, or None if there is none."""
        return self.with_generation(lambda generation: generation)

    def with_generation(self, use: Callable[[Generation | None], Result], *, fresh: bool = False) -> Result:
        """Call `use` with the published generation.

        If a newer one is published meanwhile and the files of the first are removed, call it again with the newer one.
        If `fresh`, read the manifest again even if it is loaded.
        """
        while True:
            row = self.published()
            try:
                return use(self._read(row, fresh) if row else None)
            except Damaged:
                if self.published() == row:
                    raise

    def _read(self, row: tuple[int, str, str], fresh: bool) -> Generation:
        loaded = self._loaded  # a variable of the caller would keep an old index in memory
        if not fresh and loaded and loaded[0].row == row:
            return loaded[0]
        return read_generation(row[0], self.folder / GENERATIONS / row[1], row[2])

    def transform_files(self) -> dict[str, bytes]:
        """Return the copies of the transform's files in the database. They serve to rebuild a damaged generation."""
        rows = self.store.db.conn.execute("SELECT name, bytes FROM generation_files ORDER BY name").fetchall()
        if any(not isinstance(data, bytes) for _, data in rows):
            raise Damaged(f"{self.store.path}: the copy of the transform is damaged.")
        return {plain_name(name, self.store.path): data for name, data in rows}

    def refuse_another_encoder(self, generation: Generation | None = None) -> None:
        """Refuse to continue if the encoder in the settings differs from the encoder that the index was built for."""
        if generation is None:
            with contextlib.suppress(Damaged):  # then only the checksum protects the setting
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
    """Describe how the identities of two encoders differ, with both values."""
    if not is_encoder(one) or not is_encoder(other):
        return "one of the two is damaged"
    keys = sorted(key for key in {*one, *other} if one.get(key) != other.get(key))
    return "; ".join(f"{key} {str(one.get(key))[:64]} against {str(other.get(key))[:64]}" for key in keys)


def settings_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that an index was built with."""
    asked = {"transform": "asked", "index_type": "index_type", "recall": "asked_recall", "memory": "asked_memory"}
    return {"encoder": manifest.get("encoder"), **{key: manifest.get(name) for key, name in asked.items()}}


def is_encoder(value: Any) -> bool:
    """Return whether a value has the form of an encoder identity."""
    return isinstance(value, dict) and type(value.get("dimension")) is int
