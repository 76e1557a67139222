"""Vectors on their way into SQLite: a thread of its own stores every batch as soon as the encoder has finished it.

What a killed process has embedded and not stored is no more than the encoder's threads have in their hands.
"""

import threading
from collections.abc import Sequence

import numpy as np

from indexes.protocol import AnyStore
from indexes.sqlite.vectors import VECTOR_TYPE
from retriever.encoder.batches import Batch
from retriever.errors import RetrieverError
from retriever.ingest.engines import Encodes


class Storing:
    """Stores the vectors of texts that are being encoded under these hashes, while the caller does something else."""

    def __init__(self, store: AnyStore, encoding: Encodes, hashes: Sequence[bytes], encoder: str) -> None:
        """`encoder` is its name, for a message."""
        self.texts = 0
        """How many texts have a stored vector by now; `tokens`, how many tokens those have."""
        self.tokens = 0
        self._store = store
        self._encoder = encoder
        self._hashes = hashes
        self._error: BaseException | None = None
        self._encoding = encoding
        self._begun = False
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin."""
        self._encoding.start()
        threading.Thread(target=self._work, name="storing", daemon=True).start()
        self._begun = True

    def _work(self) -> None:
        try:
            while batches := self._encoding.finished():
                self._put(batches)
        except BaseException as error:  # handed to the caller's thread, which raises it
            self._error = error
            self._encoding.close()
        finally:
            self._ended.set()

    def _put(self, batches: list[Batch]) -> None:
        positions = np.concatenate([batch.positions for batch in batches])
        with np.errstate(over="ignore"):
            halves = np.concatenate([batch.vectors for batch in batches]).astype(VECTOR_TYPE)
        if not np.isfinite(halves).all():
            raise RetrieverError(f"the encoder {self._encoder} gives vectors too large to be stored as float16.")
        self._store.add_vectors([self._hashes[p] for p in positions], halves)
        self.texts += len(positions)
        self.tokens += sum(batch.tokens for batch in batches)

    def done(self, seconds: float = 0.0) -> bool:
        """Whether all is stored, after waiting so long for it; raises what has gone wrong."""
        ended = self._ended.wait(seconds)
        if self._error:
            raise self._error
        return ended

    def close(self) -> None:
        """Stop after the batches that are being encoded, and store those; what went wrong stays untold."""
        self._encoding.close()
        if self._begun:
            self._ended.wait()
