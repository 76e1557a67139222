"""Chooses the kind of a collection by its address: a folder, or `milvus:URI`. Finds the collections in a folder.

The libraries that a kind needs are imported only when it is chosen.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from indexes.milvus.address import MILVUS

if TYPE_CHECKING:
    from indexes.protocol import AnyCollection


def in_milvus(place: str | Path) -> bool:
    return str(place).startswith(MILVUS)


def collection_class(place: str | Path) -> "type[AnyCollection]":
    """Return the class that opens and creates collections at this address."""
    if in_milvus(place):
        from indexes.milvus.collection import MilvusCollection

        return MilvusCollection
    from indexes.folder.collection import Collection

    return Collection


def collections_in(parent: Path) -> list[Path]:
    """Return the folders in `parent` that hold a collection. The one that was changed last comes first."""
    from indexes.folder.collection import Collection

    try:
        folders = [folder for folder in parent.iterdir() if Collection.exists(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(folders, key=lambda folder: (Collection.changed(folder), folder), reverse=True)
