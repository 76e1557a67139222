"""One generation: a folder with a FAISS index, the transform that made its vectors, and a manifest over both.

A generation is written aside, synced, renamed into place, and never changed afterwards. The manifest names
every file with its SHA-256, and SQLite keeps the SHA-256 of the manifest: no file can change unnoticed.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexes.checksums import file_sha256
from indexes.errors import Damaged
from indexes.faiss.types import IndexRequest
from indexes.faiss.vectors import VectorIndex
from indexes.folder import checked_files as checked

MANIFEST = "manifest.json"
INDEX_FILE = "vectors.faiss"
NUMBERS_FILE = "numbers.npy"


@dataclass(frozen=True)
class Generation:
    """A published generation: where it lies and what its manifest says."""

    number: int
    folder: Path
    manifest: dict[str, Any]
    manifest_sha256: str
    """With the number it says which generation this is: another collection's may have the same number."""

    @property
    def row(self) -> tuple[int, str, str]:
        """As the table of generations has it."""
        return self.number, self.folder.name, self.manifest_sha256

    @property
    def last_vector(self) -> int:
        return int(self.manifest["last_sequence"])

    @property
    def count(self) -> int:
        return int(self.manifest["count"])

    @property
    def asked(self) -> IndexRequest:
        """What the index was asked to be."""
        manifest = self.manifest
        return IndexRequest(manifest["index_type"], manifest.get("asked_recall"), manifest.get("asked_memory"))

    @property
    def measured(self) -> dict[str, Any]:
        """What was measured of the index when it was built, with its size and how it is searched."""
        known = {**self.manifest.get("measured", {}), "settings": self.manifest.get("search_settings", {})}
        if INDEX_FILE in self.manifest["files"]:  # Milvus does not tell
            size = self.manifest["files"][INDEX_FILE]["bytes"] / max(self.count, 1)
            known["bytes_per_vector"] = round(size, 1)
        return known


def write(
    aside: Path, index: VectorIndex, write_extra: Callable[[Path], list[str]], facts: dict[str, Any]
) -> tuple[str, list[str]]:
    """Write a generation into the new folder `aside` and sync it.

    `write_extra` adds the transform's files and returns their names. Returns the manifest's SHA-256 and the
    names of the extra files.
    """
    if aside.exists():
        shutil.rmtree(aside)
    aside.mkdir(parents=True)
    index.save(aside / INDEX_FILE, aside / NUMBERS_FILE)
    extra = write_extra(aside)
    files = {
        name: {"sha256": file_sha256(aside / name), "bytes": (aside / name).stat().st_size}
        for name in sorted([INDEX_FILE, NUMBERS_FILE, *extra])
    }
    manifest = {
        **facts,
        "count": len(index),
        "files": files,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    (aside / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for path in aside.iterdir():
        sync(path)
    sync(aside)
    return file_sha256(aside / MANIFEST), extra


def read(number: int, folder: Path, manifest_sha256: str) -> Generation:
    """The generation in `folder`, its manifest checked against the hash that SQLite keeps."""
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except OSError:
        raise Damaged(f"{path} is missing; run: retriever verify --repair --index {_collection(folder)}") from None
    if (sha256 := hashlib.sha256(data).hexdigest()) != manifest_sha256:
        raise Damaged(
            f"{path} was changed: its SHA-256 is {sha256[:12]}, the database says {manifest_sha256[:12]}; "
            f"run: retriever verify --repair --index {_collection(folder)}"
        )
    try:
        manifest = json.loads(data)
        for name in manifest["files"]:
            plain_name(name, path)
        return Generation(number, folder, manifest, manifest_sha256)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"{path} is no manifest; run: retriever verify --repair --index {_collection(folder)}") from error


def problems(generation: Generation) -> list[str]:
    """What is wrong with the files of a generation, by size and SHA-256; empty when all is well."""
    found = []
    for name, expected in generation.manifest["files"].items():
        path = generation.folder / name
        try:
            size = path.stat().st_size
            if size != expected["bytes"]:
                found.append(f"{path} has {size:,} bytes, its manifest says {expected['bytes']:,}")
            elif (sha256 := file_sha256(path)) != expected["sha256"]:
                found.append(
                    f"{path} is damaged or another's: its SHA-256 is {sha256[:12]}, its manifest says "
                    f"{expected['sha256'][:12]}"
                )
        except OSError:
            found.append(f"{path} is missing")
    return found


def load_index(generation: Generation) -> VectorIndex:
    """The FAISS index of a generation, after every file of it has been checked.

    They are hashed when they are first loaded here, and again when they have changed since.
    """
    collection = _collection(generation.folder)
    state = checked.state_of(generation.folder, generation.manifest["files"])
    if not checked.is_remembered(collection, state):
        if found := problems(generation):
            raise Damaged(f"{found[0]}; run: retriever verify --repair --index {collection}")
        if state is not None:
            checked.remember(collection, state)
    settings = generation.manifest.get("search_settings")  # of an older generation, they are in FAISS's own file
    index = VectorIndex.load(generation.folder / INDEX_FILE, generation.folder / NUMBERS_FILE, settings)
    if len(index) != generation.count:
        raise Damaged(f"{generation.folder} holds {len(index):,} vectors, its manifest says {generation.count:,}.")
    return index


def plain_name(name: object, where: Path) -> str:
    """A name from the database or a manifest, refused if it could lead out of its folder: either may be made so."""
    if not isinstance(name, str) or name in ("", ".", "..") or any(c in name for c in "/\\:\0"):
        raise Damaged(f"{where} holds the name {str(name)[:100]!r}, which is no plain file name.")
    return name


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Refuse a collection whose own files are links: what is written to them, or deleted, would lie elsewhere."""
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
