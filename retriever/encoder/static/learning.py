"""Learn from a corpus how much each word counts, and a linear map of the rows, without labels.

The text of a document is split into a crop and the rest. Among many documents, the vector of the crop should be most
similar to the vector of the rest of its own document (InfoNCE with the other documents of the batch as negatives). Two
things are learned: the logarithm of a weight for each word, and a square matrix that starts as the identity and is
pulled towards it. Both are multiplied into the rows at the end. The parts of a long document count as documents, so a
few books are enough.

Documents that are not used for learning show when to stop: the parameters with the lowest loss on their crops are kept.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from retriever.encoder.static.words import WordTable
from retriever.progress import Progress, silent
from retriever.transforms.moments import principal_axes

STAGE = "learning from the text"
# A crop has at least this many words, and the rest too.
SHORTEST_CROP, LONGEST_CROP = 4, 60
# A longer document is cut into parts of nearly equal length, at most so many words each.
LONGEST_PART = 400
FEWEST_DOCUMENTS = 100
HELD_OUT_SHARE, HELD_OUT_MOST = 0.1, 512
BATCH = 512
TEMPERATURE = 0.05
RATE_OF_WEIGHTS, RATE_OF_MAP = 5e-3, 5e-4
PULL = 1e-3
MOST_STEPS = 300
# CPU seconds. The time of the CPU depends less on other programs than the time of the clock.
MOST_SECONDS = 60.0
CHECK_EVERY = 25
# Learning stops if the loss has not become lower for this many checks.
PATIENCE = 2

Tokens = NDArray[np.int64]
Pair = tuple[Tokens, Tokens]


@dataclass(frozen=True)
class Learning:
    """What was learned, or the reason why nothing was learned. The losses are those of held-out documents."""

    read: int
    """The number of documents whose words are in the table."""
    documents: int
    """The number of different ones among them that are long enough to learn from, with each part of a long one."""
    steps: int
    loss_before: float | None
    loss_after: float | None
    seconds: float
    """CPU seconds."""
    budget: float
    """The most CPU seconds that learning may take."""
    reason: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def learn(
    table: WordTable, texts: Sequence[str], seed: int = 0, progress: Progress = silent
) -> tuple[WordTable, Learning]:
    """Learn from the texts of documents. If too few texts are long enough, return the table unchanged."""
    began = time.process_time()
    rng = np.random.default_rng(seed)
    # A copy of a document would be a negative of its own crops.
    different = {part.tobytes(): part for own in table.tokens(texts) for part in _parts(own)}.values()
    documents = [own for own in different if len(own) >= 2 * SHORTEST_CROP]
    if len(documents) < FEWEST_DOCUMENTS:
        reason = (
            f"too few different documents have at least {2 * SHORTEST_CROP} words ({len(documents):,} of the "
            f"{FEWEST_DOCUMENTS} that are needed to learn; each {LONGEST_PART} words of a longer document count as "
            "one), so all words have the same weight"
        )
        return table, Learning(len(texts), len(documents), 0, None, None, 0.0, MOST_SECONDS, reason)
    order = rng.permutation(len(documents))
    held = min(int(len(documents) * HELD_OUT_SHARE), HELD_OUT_MOST)
    held_out = [_crop(documents[place], rng) for place in order[:held]]
    model, out_of_time = _Model(table), False
    best = before = model.held_out_loss(held_out)
    kept, kept_step = model.parameters(), 0
    for step in range(1, MOST_STEPS + 1):
        batch = rng.choice(order[held:], min(BATCH, len(order) - held), replace=False)
        model.step([_crop(documents[place], rng) for place in batch])
        progress(STAGE, step, MOST_STEPS)
        out_of_time = time.process_time() - began > MOST_SECONDS
        if step % CHECK_EVERY == 0 or out_of_time:
            loss = model.held_out_loss(held_out)
            if loss < best:
                best, kept, kept_step = loss, model.parameters(), step
            if not np.isfinite(loss) or out_of_time or step - kept_step >= PATIENCE * CHECK_EVERY:
                break
    progress(STAGE, MOST_STEPS, MOST_STEPS)
    reason = (
        f"learned from {len(documents):,} documents in {kept_step} steps, which lowered the loss on other documents "
        f"from {before:.2f} to {best:.2f}"
    )
    if not kept_step:
        reason = "learning did not lower the loss on other documents, so all words keep the same weight"
    if out_of_time:
        reason += f"; the limit of {MOST_SECONDS:.0f} s of CPU ended it"
    rows = model.folded(kept) if kept_step else table.rows
    seconds = round(time.process_time() - began, 2)
    losses = round(before, 4), round(best, 4)
    found = Learning(len(texts), len(documents), kept_step, *losses, seconds, MOST_SECONDS, reason)
    return replace(table, rows=rows), found


def reduced(table: WordTable, texts: Sequence[str], dimension: int) -> WordTable:
    """Reduce the rows to the `dimension` principal directions of the vectors of the texts."""
    if table.rows.shape[1] <= dimension:
        return table
    vectors = table.encode(texts).astype(np.float64)
    _, axes = principal_axes(vectors.T @ vectors)
    return replace(table, rows=table.rows @ axes[:, :dimension].astype(np.float32))


def _parts(document: Tokens) -> list[Tokens]:
    return np.array_split(document, max(1, math.ceil(len(document) / LONGEST_PART)))


def _crop(document: Tokens, rng: np.random.Generator) -> Pair:
    """Split a document into a random crop and the rest."""
    most = max(SHORTEST_CROP, min(LONGEST_CROP, len(document) // 2))
    size = int(rng.integers(SHORTEST_CROP, most + 1))
    start = int(rng.integers(len(document) - size + 1))
    return document[start : start + size], np.concatenate([document[:start], document[start + size :]])


class _Model:
    """The weights of words and the map, and their optimiser."""

    def __init__(self, table: WordTable) -> None:
        size = table.rows.shape[1]
        self._rows = torch.from_numpy(table.rows)
        self._identity = torch.eye(size)
        # A column, because only the gradient of whole rows is summed in the same order each time.
        self._weights = torch.zeros(len(table.rows), 1, requires_grad=True)
        self._map = torch.eye(size, requires_grad=True)
        self._optimizer = torch.optim.Adam(
            [{"params": [self._weights], "lr": RATE_OF_WEIGHTS}, {"params": [self._map], "lr": RATE_OF_MAP}]
        )

    def _vectors(self, tokens: Sequence[Tokens]) -> Any:
        ids = torch.from_numpy(np.concatenate(tokens))
        starts = torch.from_numpy(np.cumsum([0, *(len(own) for own in tokens[:-1])]))
        weights = torch.exp(functional.embedding(ids, self._weights)).squeeze(1)
        sums = functional.embedding_bag(ids, self._rows, starts, mode="sum", per_sample_weights=weights)
        return functional.normalize(sums @ self._map, dim=1)

    def _loss(self, pairs: Sequence[Pair]) -> Any:
        crops, rests = (self._vectors(own) for own in zip(*pairs, strict=True))
        scores, own = crops @ rests.T / TEMPERATURE, torch.arange(len(pairs))
        return (functional.cross_entropy(scores, own) + functional.cross_entropy(scores.T, own)) / 2

    def step(self, pairs: Sequence[Pair]) -> None:
        loss = self._loss(pairs) + PULL * ((self._map - self._identity) ** 2).sum()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()

    def held_out_loss(self, pairs: Sequence[Pair]) -> float:
        with torch.inference_mode():
            return float(self._loss(pairs))

    def parameters(self) -> tuple[Any, Any]:
        """Return copies of the weights and the map."""
        return self._weights.detach().clone(), self._map.detach().clone()

    def folded(self, parameters: tuple[Any, Any]) -> NDArray[np.float32]:
        """Return the rows, each multiplied by the weight of its word and by the map."""
        weights, matrix = parameters
        rows: NDArray[np.float32] = ((self._rows * torch.exp(weights)) @ matrix).numpy()
        return rows
