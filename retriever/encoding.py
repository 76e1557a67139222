"""Batches of texts on their way through an encoder, in threads of their own, while the caller does something else."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TokenBatch = tuple[NDArray[np.int64], list[list[int]]]
"""The places of some texts, and the tokens of each."""

# Each worker may be so many batches ahead of the caller: what a killed process has encoded and not stored.
AHEAD = 2


class Batch(NamedTuple):
    """Some of the texts, by their places, with their vectors."""

    positions: NDArray[np.int64]
    vectors: NDArray[np.float32]
    tokens: int


class Encoding:
    """Runs `encode` over batches in `workers` threads, and gives the results in the order of the batches."""

    def __init__(
        self, batches: Iterator[TokenBatch], encode: Callable[[list[list[int]]], NDArray[np.float32]], workers: int
    ) -> None:
        self._batches = enumerate(batches)
        self._encode = encode
        self._taking = threading.Lock()
        self._stopped = threading.Event()
        self._room = threading.Semaphore(workers * (1 + AHEAD))
        self._results: queue.SimpleQueue[tuple[int, Batch] | BaseException | None] = queue.SimpleQueue()
        self._waiting: dict[int, Batch] = {}
        self._given = 0
        self._running = workers
        # Daemons, so that an interrupt in the middle of starting them cannot keep the process from ending.
        self._threads = [threading.Thread(target=self._work, name=f"encoding-{n}", daemon=True) for n in range(workers)]
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            self.close()
            raise

    def _work(self) -> None:
        try:
            while not self._stopped.is_set():
                self._room.acquire()
                with self._taking:
                    number, (positions, tokens) = next(self._batches, (-1, (np.zeros(0, np.int64), [])))
                if number < 0 or self._stopped.is_set():
                    break
                batch = Batch(positions, self._encode(tokens), sum(map(len, tokens)))
                self._results.put((number, batch))
        except BaseException as error:  # handed to the caller's thread, which raises it
            self._stopped.set()
            self._results.put(error)
        finally:
            self._room.release()
            self._results.put(None)

    def finished(self, *, wait: bool = True) -> list[Batch]:
        """The batches done by now, in order; with `wait` at least one, unless all have been given."""
        found: list[Batch] = []
        while self._running:
            try:
                result = self._results.get(block=wait and not found)
            except queue.Empty:
                break
            if result is None:
                self._running -= 1
            elif isinstance(result, BaseException):
                self.close()
                raise result
            else:
                self._waiting[result[0]] = result[1]
                while self._given in self._waiting:
                    found.append(self._waiting.pop(self._given))
                    self._given += 1
                    self._room.release()
        return found

    def close(self) -> None:
        """Stop after the batches that are being encoded; the rest is left undone."""
        self._stopped.set()
        for _ in self._threads:
            self._room.release()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
