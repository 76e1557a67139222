"""Shared parts of the training of both flows: one thread, early stopping on held-out vectors, and progress."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retriever.files import keep_torch_files
from retriever.transforms.base import Json
from retriever.transforms.moments import Array

if TYPE_CHECKING:
    import torch

PATIENCE = 8
"""Number of evaluations without improvement after which training stops."""


@dataclass
class Training:
    """The result of a training: the parameters of the best step. `best_step` is 0 if no step improved on the start."""

    parameters: dict[str, Array]
    curve: list[tuple[int, float]]
    """Pairs of a step and the negative log-likelihood of held-out vectors after it, in bits per dimension."""
    steps: int = 0
    best_step: int = 0
    failure: str | None = None
    """The reason why the parameters must not be used, or None."""
    facts: dict[str, int] = field(default_factory=dict)
    """Further counts, which only `bert-flow` has."""

    def to_json(self) -> dict[str, Json]:
        """Return the course of the training in the form that a transform stores."""
        return {"steps": self.steps, "best_step": self.best_step, "curve": [list(point) for point in self.curve]}


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use only one thread.

    The matrices are so small that two threads on two busy cores took three times as long as one thread. One thread also
    makes the result independent of the number of threads that torch is set to.
    """
    keep_torch_files()
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
    """Train for at most `steps` steps, and keep the parameters with the best likelihood of held-out vectors.

    The likelihood is measured after every `evaluate_every` steps. `step` returns False if its gradient is not finite.
    The training then ends and `failure` is set.
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
