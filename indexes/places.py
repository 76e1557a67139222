"""Which kind of collection a place asks for: a folder, or one in Milvus by `milvus:URI`."""

from pathlib import Path

from indexes.collection import Collection
from indexes.protocol import AnyCollection

MILVUS = "milvus:"


def in_milvus(place: str | Path) -> bool:
    """Whether the collection lies in Milvus."""
    return str(place).startswith(MILVUS)


def kind_of(place: str | Path) -> type[AnyCollection]:
    """What opens and makes the collection of this place."""
    if in_milvus(place):
        from indexes.milvus.collection import MilvusCollection

        return MilvusCollection
    return Collection
