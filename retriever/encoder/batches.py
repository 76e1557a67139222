"""Tokenises texts, makes batches of texts of similar length, which saves padding, and encodes batches in threads."""

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from retriever.encoder.model_files import TOKENIZER_FILES, ModelFiles
from retriever.errors import EncoderUnavailable
from retriever.signals import Flag

Text = TypeVar("Text", bound=Sized)

TokenBatch = tuple[NDArray[np.int64], list[list[int]]]
"""The positions of the texts of a batch, and the token ids of each text."""

# Batches that may be in progress in addition to one per worker. The number is small, because a killed process loses the
# batches that it has encoded but not stored.
AHEAD = 1
LARGEST_TOKENIZER = 256 << 20
# The tokenizer needs up to a hundred times the memory of the texts that it is given at once.
CHARACTERS_TOKENISED_AT_ONCE = 2_000_000


def _disable_tokenizer_threads() -> None:
    """Make tokenizers run without threads in a forked child.

    A fork does not copy the threads of the parent, so the child would wait for them forever.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disable_tokenizer_threads)


def load_tokenizer(files: ModelFiles, copy: Path | None = None) -> Any:
    """Return the model's fast tokenizer, without truncation and padding.

    If the model has no tokenizer.json, read `copy`, the file of an earlier conversion. If that does not exist either,
    transformers converts the tokenizer. The import of transformers takes seconds.
    """
    from tokenizers import Tokenizer

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    path = files.folder / "tokenizer.json"
    if copy is not None and copy.is_file() and not path.is_file():
        path = copy
    for given in (path, *(files.folder / name for name in TOKENIZER_FILES if "*" not in name)):
        if given.is_file() and given.stat().st_size > LARGEST_TOKENIZER:
            raise EncoderUnavailable(f"{given} is larger than {LARGEST_TOKENIZER:,} bytes, the limit for it.")
    try:
        if path.is_file():
            tokenizer = Tokenizer.from_file(str(path))
        else:
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(files.folder, trust_remote_code=False).backend_tokenizer
    except Exception as error:  # both libraries raise a bare Exception for an invalid file
        raise EncoderUnavailable(f"the tokenizer in {files.folder} cannot be loaded: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def tokenise(tokenizer: Any, texts: Sequence[str], special: bool = True) -> list[list[int]]:
    """Return the token ids of each text, with the special tokens of a BERT if `special` is True."""
    tokens: list[list[int]] = []
    some: list[str] = []
    characters = 0
    for number, text in enumerate(texts, 1):
        some.append(text)
        characters += len(text)
        if characters >= CHARACTERS_TOKENISED_AT_ONCE or number == len(texts):
            tokens += [encoding.ids for encoding in tokenizer.encode_batch_fast(some, add_special_tokens=special)]
            some, characters = [], 0
    return tokens


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


def padded(tokens: Sequence[Sequence[int]], pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a padded matrix of the token ids of several texts, and its attention mask."""
    lengths = np.array([len(own) for own in tokens])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, pad_id, np.int64)
    ids[mask] = np.concatenate([np.asarray(own, np.int64) for own in tokens])
    return ids, mask.astype(np.int64)


class Batch(NamedTuple):
    """The positions of the texts of a batch, their vectors, and their total number of tokens."""

    positions: NDArray[np.int64]
    vectors: NDArray[np.float32]
    tokens: int


class Encoding(Generic[Text]):
    """Runs `encode` over batches in `workers` threads, and returns the results in the order of the batches.

    The texts of a batch are tokens, or whatever else `encode` takes. `count` returns their number of tokens.
    """

    def __init__(
        self,
        batches: Iterator[tuple[NDArray[np.int64], list[Text]]],
        encode: Callable[[list[Text]], NDArray[np.float32]],
        workers: int,
        count: Callable[[list[Text]], int] = lambda texts: sum(map(len, texts)),
    ) -> None:
        self._count = count
        self._batches = enumerate(batches)
        self._encode = encode
        self._next_batch = threading.Lock()
        self._stopped = False
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Holds an item for each batch that may begin. A semaphore would not survive a signal: see `Flag`."""
        self._results: queue.SimpleQueue[tuple[int, Batch] | BaseException | None] = queue.SimpleQueue()
        self._out_of_order: dict[int, Batch] = {}
        self._returned = self._last_returned = 0
        self._started = self._running = 0
        self._ended = [Flag() for _ in range(workers)]
        for _ in range(workers + AHEAD):
            self._room.put(None)

    def start(self) -> None:
        for number, ended in enumerate(self._ended):
            # Daemon threads, so that an interrupt during this loop cannot keep the process from ending.
            threading.Thread(target=self._work, args=[ended], name=f"encoding-{number}", daemon=True).start()
            self._started += 1
            self._running += 1

    def _work(self, ended: Flag) -> None:
        try:
            while True:
                self._room.get()
                with self._next_batch:
                    if self._stopped:
                        break
                    number, (positions, texts) = next(self._batches, (-1, (np.zeros(0, np.int64), [])))
                if number < 0:
                    break
                self._results.put((number, Batch(positions, self._encode(texts), self._count(texts))))
        except BaseException as error:  # raised again in the caller's thread
            self._stopped = True
            self._results.put(error)
        finally:
            self._room.put(None)
            self._results.put(None)
            ended.set()

    def finished(self) -> list[Batch]:
        """Wait for at least one batch, and return all finished batches in order.

        Return an empty list if all batches have been returned. Returned batches count as in progress until the next
        call.
        """
        found: list[Batch] = []
        for _ in range(self._last_returned):
            self._room.put(None)
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
        self._stopped = True
        for _ in self._ended:
            self._room.put(None)
        # Flags are used instead of join, because Python 3.11 treats a thread as ended after an interrupted join.
        for ended in self._ended[: self._started]:
            ended.wait()
