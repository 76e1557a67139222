"""Batches of texts on their way through an encoder, in threads of their own, while the caller does something else."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TokenBatch = tuple[NDArray[np.int64], list[list[int]]]
"""The places of some texts, and the tokens of each."""

# So many batches more than there are workers may be on their way: what a killed process has encoded and not stored.
AHEAD = 1


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
        self._room = threading.Semaphore(workers + AHEAD)
        self._handed_out = 0
        self._results: queue.SimpleQueue[tuple[int, Batch] | BaseException | None] = queue.SimpleQueue()
        self._waiting: dict[int, Batch] = {}
        self._given = 0
        self._begun = self._running = 0
        self._ended = [threading.Event() for _ in range(workers)]

    def start(self) -> None:
        """Begin."""
        for number, ended in enumerate(self._ended):
            # Daemons, so that an interrupt in the middle of starting them cannot keep the process from ending.
            threading.Thread(target=self._work, args=[ended], name=f"encoding-{number}", daemon=True).start()
            self._begun += 1
            self._running += 1

    def _work(self, ended: threading.Event) -> None:
        try:
            while True:
                self._room.acquire()
                with self._taking:
                    if self._stopped.is_set():
                        break
                    number, (positions, tokens) = next(self._batches, (-1, (np.zeros(0, np.int64), [])))
                if number < 0:
                    break
                batch = Batch(positions, self._encode(tokens), sum(map(len, tokens)))
                self._results.put((number, batch))
        except BaseException as error:  # handed to the caller's thread, which raises it
            self._stopped.set()
            self._results.put(error)
        finally:
            self._room.release()
            self._results.put(None)
            ended.set()

    def finished(self) -> list[Batch]:
        """The batches done by now, in order, at least one, unless all have been given.

        Until it is called again, those it gave count as on their way.
        """
        found: list[Batch] = []
        for _ in range(self._handed_out):
            self._room.release()
        self._handed_out = 0
        while self._running:
            try:
                result = self._results.get(block=not found)
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
        self._handed_out = len(found)
        return found

    def close(self) -> None:
        """Stop after the batches that are being encoded; `finished` still gives them, the rest is left undone."""
        self._stopped.set()
        for _ in self._ended:
            self._room.release()
        # Not by joining them: Python 3.11 takes a thread for ended whose join was interrupted once.
        for ended in self._ended[: self._begun]:
            ended.wait()
