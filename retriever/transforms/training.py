"""What the training of both flows shares: one thread, early stopping on held-out vectors, progress."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retriever.transforms.base import Array, Json

if TYPE_CHECKING:
    import torch

PATIENCE = 8
"""Training stops after this many evaluations without improvement."""


@dataclass
class Training:
    """The result: the parameters at the best step. `best_step` is 0 if training improved nothing."""

    parameters: dict[str, Array]
    curve: list[tuple[int, float]]
    """Held-out bits per dimension, by step."""
    steps: int = 0
    best_step: int = 0
    failure: str | None = None
    """Why the parameters must not be used."""
    facts: dict[str, int] = field(default_factory=dict)
    """Counts that only one of the flows has."""

    def to_json(self) -> dict[str, Json]:
        """The course of the training, as a transform stores it."""
        return {"steps": self.steps, "best_step": self.best_step, "curve": [list(point) for point in self.curve]}


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread.

    The matrices are so small that two threads on two busy cores took three times as long as one. One thread also makes
    the result independent of the thread setting.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def train_until_best(
    step: Callable[[], bool],
    measure: Callable[[], float],
    parameters: Callable[[], Mapping[str, "torch.Tensor"]],
    *,
    steps: int,
    evaluate_every: int,
    progress: Callable[[int, int], None] | None,
) -> Training:
    """Take at most `steps` steps, measure held-out bits every few, and keep the parameters of the lowest.

    `step` returns False if its gradient is not finite, which ends the training as a failure.
    """

    def copied() -> dict[str, Array]:
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in parameters().items()}

    best = measure()
    result = Training(copied(), [(0, best)])
    while result.steps < steps and result.steps - result.best_step < PATIENCE * evaluate_every:
        for _ in range(min(evaluate_every, steps - result.steps)):
            if not (math.isfinite(best) and step()):
                result.failure = f"the flow's likelihood stopped being a finite number at step {result.steps}"
                return result
            result.steps += 1
        now = measure()
        result.curve.append((result.steps, now))
        if now < best:
            best, result.best_step, result.parameters = now, result.steps, copied()
        if progress:
            progress(result.steps, steps)
    if progress:
        progress(steps, steps)
    return result
