"""One generation: a folder with a FAISS index, the transform that made its vectors, and a manifest over both.

A generation is written aside, synced, renamed into place, and never changed afterwards. The manifest names every file
with its SHA-256, and SQLite keeps the SHA-256 of the manifest: no file can change unnoticed. Hashing is skipped if
`checked.json` says that these very files (size, times, inode) were hashed before. Any write changes the ctime, which no
program can set back.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexes.checksums import file_sha256
from indexes.errors import Damaged
from indexes.faiss.types import IndexRequest
from indexes.faiss.vectors import VectorIndex

MANIFEST = "manifest.json"
INDEX_FILE = "vectors.faiss"
NUMBERS_FILE = "numbers.npy"
CHECKED = "checked.json"
# File systems count time in ticks of some milliseconds; a file this young might be changed again within its tick.
TOO_YOUNG_NS = 100_000_000
MANIFEST_TYPES = {"files": dict, "count": int, "last_sequence": int, "factory": str, "index_type": str}


@dataclass(frozen=True)
class Generation:
    """A published generation: its folder and its manifest."""

    number: int
    folder: Path
    manifest: dict[str, Any]
    manifest_sha256: str
    """Identifies the generation together with its number, which another collection's may share."""

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
        """The index that was requested when this one was built."""
        manifest = self.manifest
        return IndexRequest(manifest["index_type"], manifest["asked_recall"], manifest["asked_memory"])

    @property
    def measured(self) -> dict[str, Any]:
        """What was measured of the index when it was built, with its size and search settings."""
        known = {**self.manifest.get("measured", {}), "settings": self.manifest.get("search_settings", {})}
        if INDEX_FILE in self.manifest["files"]:  # Milvus has no such file
            size = self.manifest["files"][INDEX_FILE]["bytes"] / max(self.count, 1)
            known["bytes_per_vector"] = round(size, 1)
        return known

    def transform_hashes(self) -> dict[str, str]:
        """Return the SHA-256 of each of the transform's files."""
        files = self.manifest["files"].items()
        return {name: facts["sha256"] for name, facts in files if name not in (INDEX_FILE, NUMBERS_FILE)}


def write(
    aside: Path, index: VectorIndex, write_transform: Callable[[Path], list[str]], facts: dict[str, Any]
) -> tuple[str, list[str]]:
    """Write a generation into the new folder `aside` and sync it.

    `write_transform` adds the transform's files and returns their names. Returns the manifest's SHA-256 and the names.
    """
    if aside.exists():
        shutil.rmtree(aside)
    aside.mkdir(parents=True)
    index.save(aside / INDEX_FILE, aside / NUMBERS_FILE)
    names = write_transform(aside)
    files = {
        name: {"sha256": file_sha256(aside / name), "bytes": (aside / name).stat().st_size}
        for name in sorted([INDEX_FILE, NUMBERS_FILE, *names])
    }
    created = datetime.now(UTC).isoformat(timespec="seconds")
    manifest = {**facts, "count": len(index), "files": files, "created": created}
    (aside / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for path in aside.iterdir():
        sync(path)
    sync(aside)
    return file_sha256(aside / MANIFEST), names


def read(number: int, folder: Path, manifest_sha256: str) -> Generation:
    """Read the generation in `folder`; its manifest must have the hash that SQLite keeps."""
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
        raise Damaged(f"{path} is no manifest; {repair}")
    return Generation(number, folder, manifest, manifest_sha256)


def problems(generation: Generation) -> list[str]:
    """List what is wrong with the files of a generation, by size and SHA-256."""
    found = []
    for name, expected in generation.manifest["files"].items():
        path = generation.folder / name
        try:
            size = path.stat().st_size
            if size != expected["bytes"]:
                found.append(f"{path} has {size:,} bytes, its manifest says {expected['bytes']:,}")
            elif (sha256 := file_sha256(path)) != expected["sha256"]:
                found.append(
                    f"{path} is damaged or was exchanged: its SHA-256 is {sha256[:12]}, its manifest says "
                    f"{expected['sha256'][:12]}"
                )
        except OSError:
            found.append(f"{path} is missing")
    return found


def load_index(generation: Generation) -> VectorIndex:
    """Load the FAISS index of a generation after checking every file that has changed since the last check."""
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
    """Return what distinguishes these files from changed ones; None if one is missing."""
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
    """Note the state that files had before they were hashed; do nothing if it cannot be written."""
    if time.time_ns() - max(own[3] for own in state["files"].values()) < TOO_YOUNG_NS:
        return
    aside = collection / f"{CHECKED}.{os.getpid()}"
    with contextlib.suppress(OSError):
        aside.unlink(missing_ok=True)  # in a collection from somebody else, it may be a link to anywhere
        aside.write_text(json.dumps(state), encoding="utf-8")
        aside.replace(collection / CHECKED)


def plain_name(name: object, where: Path) -> str:
    """Refuse a name from the database or a manifest that could lead out of its folder."""
    if not isinstance(name, str) or name in ("", ".", "..") or any(c in name for c in "/\\:\0"):
        raise Damaged(f"{where} holds the name {str(name)[:100]!r}, which is no plain file name.")
    return name


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Refuse a collection whose own files are links: writing or deleting would change files elsewhere."""
    for name in sorted(names):
        if (folder / name).is_symlink():
            raise Damaged(f"{folder / name} is a symbolic link; a collection's own files must lie in its folder.")


def sync(path: Path) -> None:
    """Force a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _collection(folder: Path) -> Path:
    return folder.parent.parent
