"""Makes batches of texts of similar length, which saves padding, and encodes them in background threads."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TokenBatch = tuple[NDArray[np.int64], list[list[int]]]
"""The positions of the texts of a batch, and the token ids of each text."""

# Batches that may be in progress in addition to one per worker. The number is small, because a killed process loses the
# batches that it has encoded but not stored.
AHEAD = 1


def batches_by_length(tokens: Sequence[list[int]], budget: int) -> Iterator[TokenBatch]:
    """Yield batches of texts of similar length. A batch has at most `budget` tokens, or a single text."""
    lengths = np.array([len(ids) for ids in tokens])
    order = np.argsort(lengths, kind="stable")
    bounds = [len(order)]
    while last := bounds[-1]:
        bounds.append(max(0, last - max(1, budget // int(lengths[order[last - 1]]))))
    bounds.reverse()
    # The batches are shuffled, so that long and short texts are mixed and the rate so far predicts the time left.
    for number in np.random.default_rng(0).permutation(len(bounds) - 1):
        positions = order[bounds[number] : bounds[number + 1]]
        yield positions, [tokens[position] for position in positions]


class Batch(NamedTuple):
    """The positions of the texts of a batch, their vectors, and their total number of tokens."""

    positions: NDArray[np.int64]
    vectors: NDArray[np.float32]
    tokens: int


class Encoding:
    """Runs `encode` over batches in `workers` threads, and returns the results in the order of the batches."""

    def __init__(
        self, batches: Iterator[TokenBatch], encode: Callable[[list[list[int]]], NDArray[np.float32]], workers: int
    ) -> None:
        self._batches = enumerate(batches)
        self._encode = encode
        self._next_batch = threading.Lock()
        self._stopped = threading.Event()
        self._room = threading.Semaphore(workers + AHEAD)
        self._results: queue.SimpleQueue[tuple[int, Batch] | BaseException | None] = queue.SimpleQueue()
        self._out_of_order: dict[int, Batch] = {}
        self._returned = self._last_returned = 0
        self._started = self._running = 0
        self._ended = [threading.Event() for _ in range(workers)]

    def start(self) -> None:
        for number, ended in enumerate(self._ended):
            # Daemon threads, so that an interrupt during this loop cannot keep the process from ending.
            threading.Thread(target=self._work, args=[ended], name=f"encoding-{number}", daemon=True).start()
            self._started += 1
            self._running += 1

    def _work(self, ended: threading.Event) -> None:
        try:
            while True:
                self._room.acquire()
                with self._next_batch:
                    if self._stopped.is_set():
                        break
                    number, (positions, tokens) = next(self._batches, (-1, (np.zeros(0, np.int64), [])))
                if number < 0:
                    break
                self._results.put((number, Batch(positions, self._encode(tokens), sum(map(len, tokens)))))
        except BaseException as error:  # raised again in the caller's thread
            self._stopped.set()
            self._results.put(error)
        finally:
            self._room.release()
            self._results.put(None)
            ended.set()

    def finished(self) -> list[Batch]:
        """Wait for at least one batch, and return all finished batches in order.

        Return an empty list if all batches have been returned. Returned batches count as in progress until the next
        call.
        """
        found: list[Batch] = []
        for _ in range(self._last_returned):
            self._room.release()
        self._last_returned = 0
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
                self._out_of_order[result[0]] = result[1]
                while self._returned in self._out_of_order:
                    found.append(self._out_of_order.pop(self._returned))
                    self._returned += 1
        self._last_returned = len(found)
        return found

    def close(self) -> None:
        """Stop after the batches in progress. `finished` still returns these batches."""
        self._stopped.set()
        for _ in self._ended:
            self._room.release()
        # Events are used instead of join, because Python 3.11 treats a thread as ended after an interrupted join.
        for ended in self._ended[: self._started]:
            ended.wait()
