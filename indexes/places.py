"""The kinds of collections by their address: a folder, or `milvus:URI`. Importing this module imports little."""

from pathlib import Path
from typing import TYPE_CHECKING

from indexes.milvus.address import MILVUS

if TYPE_CHECKING:
    from indexes.protocol import AnyCollection


def in_milvus(place: str | Path) -> bool:
    return str(place).startswith(MILVUS)


def collection_class(place: str | Path) -> "type[AnyCollection]":
    """Return the class that opens and makes collections at this address."""
    if in_milvus(place):
        from indexes.milvus.collection import MilvusCollection

        return MilvusCollection
    from indexes.folder.collection import Collection

    return Collection
