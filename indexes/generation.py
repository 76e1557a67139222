"""The published generation of a collection's index, and what is needed to publish the next one.

Collections in a folder and in Milvus have the same generations: an index, the transform of its vectors, and a manifest.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexes.errors import Damaged
from indexes.faiss.recall import SHORT_TEXTS, Queries
from indexes.faiss.types import IndexRequest
from indexes.faiss.vectors import unit_rows
from indexes.rows import Apply, ApplyEach, Blocks, Matrix

FORMAT = 1
MANIFEST = "manifest.json"
INDEX_FILE = "vectors.faiss"
NUMBERS_FILE = "numbers.npy"
RAW_FILE = "raw.f16"
"""The stored raw vectors in half precision, in the order of the numbers. A generation has it if its index is lossy."""
INDEX_FILES = (INDEX_FILE, NUMBERS_FILE, RAW_FILE)
"""The files that are built from the stored vectors. The other files of a generation belong to the transform."""


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


@dataclass(frozen=True)
class Publication:
    """Everything that is needed to build and publish a new index, except the stored vectors."""

    apply: Apply
    dimension_out: int
    request: IndexRequest
    write_transform: Callable[[Path], list[str]]
    """Writes the transform's files to a folder and returns their names."""
    facts: dict[str, Any]
    """Additional entries of the manifest."""
    settings: dict[str, Any]
    """Settings that are changed in the transaction that publishes the index."""
    compact: bool = False
    """If True, the unused vectors are left out of the index and deleted."""
    queries: Matrix | None = None
    """Raw vectors that are not in the index. They are used as queries to tune and measure it."""
    reconsider: bool = True
    """If False, `auto` keeps the index type that it chose last, as long as that type still reaches the recall."""
    apply_each: ApplyEach | None = None
    """Transforms whole blocks of vectors instead of `apply`, e.g. on other machines."""

    def mapped(self, stored: Blocks) -> Blocks:
        """Transform blocks of raw vectors to the unit vectors of the index."""
        each = self.apply_each(stored) if self.apply_each else ((some, self.apply(raw)) for some, raw in stored)
        for some, rows in each:
            yield some, unit_rows(rows)

    def held_out_queries(self) -> Queries | None:
        """Transform the queries to unit vectors of the index. Return None if there are no queries."""
        if self.queries is None or not len(self.queries):
            return None
        return Queries(unit_rows(self.apply(self.queries)), SHORT_TEXTS)

    def manifest(
        self,
        *,
        factory: str,
        settings: Mapping[str, Any],
        measured: Mapping[str, Any],
        note: str,
        last_vector: int,
        count: int,
        files: Mapping[str, dict[str, Any]],
    ) -> dict[str, Any]:
        """Return the manifest of the index that was built, with the SHA-256 and the size of each of its files."""
        return {
            "format": FORMAT,
            "factory": factory,
            "index_type": self.request.type,
            "asked_recall": self.request.recall,
            "asked_memory": self.request.memory,
            "index_note": note,
            "measured": measured,
            "search_settings": settings,
            "last_sequence": last_vector,
            **self.facts,
            "count": count,
            "files": files,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def plain_name(name: object, where: Path) -> str:
    """Return the name, or raise `Damaged` if it could lead out of its folder or is not a possible file name."""
    if not isinstance(name, str) or name in ("", ".", "..") or re.search(r"[/\\:\0\ud800-\udfff]", name):
        raise Damaged(f"{where} holds the name {str(name)[:100]!r}, which is not a plain file name.")
    return name


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
