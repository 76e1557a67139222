"""An encoder whose vectors are given: the ingestion pipeline runs as it is, and costs all but the encoder's time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoder.batches import Batch, Encoding
from retriever.encoder.encoder import Encoder

SEED = 0
# Of one vector's share in another: near enough to be like it, too far to be found in its place.
MIXED = 0.4
NOISE = 0.02


class Given(Encoder):
    """Texts that are known have their own vectors, all others some that are made up of those."""

    def give(self, known: Mapping[str, NDArray[np.float32]], rows: NDArray[np.float32], tokens_a_text: float) -> None:
        """`tokens_a_text` says how many texts the real encoder would finish, and have stored, at once."""
        self._known, self._rows = known, rows
        self._together = max(1, int(self.batch_tokens / max(tokens_a_text, 1)))
        self._rng = np.random.default_rng(SEED)

    def encoding(self, texts: Sequence[str]) -> Encoding:
        made_up = stand_ins(self._rows, len(texts), self._rng)
        for place, text in enumerate(texts):
            if text in self._known:
                made_up[place] = self._known[text]
        return _Done(made_up, self._together)


class _Done(Encoding):
    """Gives one batch at a time, as the encoder's threads mostly do, for a transaction each."""

    def __init__(self, vectors: NDArray[np.float32], together: int) -> None:
        self._vectors, self._together, self._next = vectors, together, 0

    def start(self) -> None: ...

    def finished(self) -> list[Batch]:
        positions = np.arange(self._next, min(self._next + self._together, len(self._vectors)))
        self._next += len(positions)
        return [Batch(positions, self._vectors[positions], 0)] if len(positions) else []

    def close(self) -> None:
        self._next = len(self._vectors)


def stand_ins(rows: NDArray[np.float32], count: int, rng: Any) -> NDArray[np.float32]:
    """Vectors for texts that nobody embedded: one of these, turned some way towards another, and noise.

    They cost what real ones cost to store, fit and index. What an index finds among them says nothing of real ones.
    """
    one, other = rng.integers(len(rows), size=(2, count))
    scale = NOISE * float(np.abs(rows).mean())
    made: NDArray[np.float32] = (1 - MIXED) * rows[one] + MIXED * rows[other]
    made += scale * rng.standard_normal(made.shape, np.float32)
    return made.astype(np.float32, copy=False)
