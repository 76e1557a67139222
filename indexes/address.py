"""Which places are in Milvus; imports nothing, as every command asks."""

from pathlib import Path

MILVUS = "milvus:"


def in_milvus(place: str | Path) -> bool:
    """Whether the collection lies in Milvus."""
    return str(place).startswith(MILVUS)
