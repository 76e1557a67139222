"""Store vectors in a thread of its own, each batch as soon as the encoder has finished it.

A process that is killed therefore loses only the batches that are inside the encoder.
"""

import threading
from collections.abc import Sequence

import numpy as np

from indexes.protocol import AnyStore
from indexes.rows import VECTOR_TYPE
from retriever.encoder.batches import Batch
from retriever.errors import RetrieverError
from retriever.ingest.engines import Encodes


class VectorWriter:
    """Stores the vectors of texts under the hashes of the texts while they are being encoded."""

    def __init__(self, store: AnyStore, encoding: Encodes, hashes: Sequence[bytes], encoder: str) -> None:
        """Prepare to store; `hashes` are in the order of the texts, `encoder` is a name for messages."""
        self.texts = 0
        """How many texts have a stored vector."""
        self.tokens = 0
        """How many tokens those texts have."""
        self._store = store
        self._encoding = encoding
        self._hashes = hashes
        self._encoder = encoder
        self._error: BaseException | None = None
        self._started = False
        self._ended = threading.Event()

    def start(self) -> None:
        self._encoding.start()
        threading.Thread(target=self._work, name="storing", daemon=True).start()
        self._started = True

    def _work(self) -> None:
        try:
            while batches := self._encoding.finished():
                self._put(batches)
        except BaseException as error:  # `done` raises it in the caller's thread
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
        """Wait up to `seconds` and return whether everything is stored; raise the error of the thread, if any."""
        ended = self._ended.wait(seconds)
        if self._error:
            raise self._error
        return ended

    def close(self) -> None:
        """Start no further batch, and wait until those being encoded are stored; raise nothing."""
        self._encoding.close()
        if self._started:
            self._ended.wait()
