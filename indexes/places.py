"""Which kind of collection a place asks for: a folder, or one in Milvus by `milvus:URI`."""

from pathlib import Path

from indexes.address import in_milvus
from indexes.folder.collection import Collection
from indexes.protocol import AnyCollection


def collection_class(place: str | Path) -> type[AnyCollection]:
    """What opens and makes the collection of this place."""
    if in_milvus(place):
        from indexes.milvus.collection import MilvusCollection

        return MilvusCollection
    return Collection
