"""Everything that is needed to build and publish a new index, except the stored vectors."""

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
    """A transform and the requested index. It is used for collections in a folder and in Milvus."""

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
