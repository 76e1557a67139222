"""What is to be published: all that a new index of a collection is made from besides the stored vectors."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.recall import SHORT_TEXTS, Queries
from indexes.faiss.types import IndexRequest
from indexes.faiss.vectors import unit_rows
from indexes.folder.space import Apply, ApplyEach, Blocks


@dataclass(frozen=True)
class Publication:
    """A transform and the index that is asked for, as a collection of either kind takes it."""

    apply: Apply
    dimension_out: int
    request: IndexRequest
    write_transform: Callable[[Path], list[str]]
    """Writes the transform's files to a folder and gives their names."""
    facts: dict[str, Any]
    """For the manifest."""
    settings: dict[str, Any]
    """Changed together with the switch."""
    compact: bool = False
    """Leave the unused vectors out, and forget them with the switch."""
    queries: NDArray[np.float32] | None = None
    """Raw vectors that the index does not hold, to tune and measure it with."""
    reconsider: bool = True
    """Without it, what `auto` chose before is taken again if it does."""
    apply_each: ApplyEach | None = None
    """Does what `apply` does to block after block, where that is done elsewhere."""

    def mapped(self, stored: Blocks) -> Blocks:
        """Blocks of raw vectors as the index has them."""
        each = self.apply_each(stored) if self.apply_each else ((some, self.apply(raw)) for some, raw in stored)
        for some, rows in each:
            yield some, unit_rows(rows)

    def held_out_queries(self) -> Queries | None:
        """The queries as the index is asked them, if there are any."""
        if self.queries is None or not len(self.queries):
            return None
        return Queries(unit_rows(self.apply(self.queries)), SHORT_TEXTS)
