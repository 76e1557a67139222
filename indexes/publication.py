"""What a new index of a collection is built from, besides the stored vectors."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexes.faiss.recall import SHORT_TEXTS, Queries
from indexes.faiss.types import IndexRequest
from indexes.faiss.vectors import unit_rows
from indexes.rows import Apply, ApplyEach, Blocks, Matrix


@dataclass(frozen=True)
class Publication:
    """A transform and the requested index, for a collection in a folder or in Milvus."""

    apply: Apply
    dimension_out: int
    request: IndexRequest
    write_transform: Callable[[Path], list[str]]
    """Writes the transform's files to a folder and returns their names."""
    facts: dict[str, Any]
    """Further entries of the manifest."""
    settings: dict[str, Any]
    """Settings to change in the same transaction."""
    compact: bool = False
    """If True, leave the unused vectors out and delete them."""
    queries: Matrix | None = None
    """Raw vectors that the index does not hold, for tuning and measuring it."""
    reconsider: bool = True
    """If False, `auto` keeps its last choice as long as it reaches the recall."""
    apply_each: ApplyEach | None = None
    """Does the same as `apply` to blocks, e.g. on other machines."""

    def mapped(self, stored: Blocks) -> Blocks:
        """Map blocks of raw vectors to the unit vectors of the index."""
        each = self.apply_each(stored) if self.apply_each else ((some, self.apply(raw)) for some, raw in stored)
        for some, rows in each:
            yield some, unit_rows(rows)

    def held_out_queries(self) -> Queries | None:
        """Map the queries to unit vectors of the index; None if there are none."""
        if self.queries is None or not len(self.queries):
            return None
        return Queries(unit_rows(self.apply(self.queries)), SHORT_TEXTS)
