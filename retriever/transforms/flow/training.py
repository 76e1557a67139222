"""Trains the couplings of `flow` by maximum likelihood in torch. Held-out vectors decide when to stop."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from retriever.transforms.flow.couplings import Couplings
from retriever.transforms.moments import Array
from retriever.transforms.training import Training, one_thread, train_until_best

if TYPE_CHECKING:
    import torch

BATCH = 256
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.01
EVALUATE_EVERY = 25


def forward(couplings: Couplings, parameters: Mapping[str, "torch.Tensor"], z: "torch.Tensor") -> "torch.Tensor":
    """Compute `Couplings.forward` in torch, so that it can be differentiated."""
    import torch

    def move(name: str, given: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(given @ parameters[f"{name}.first.weight"] + parameters[f"{name}.first.bias"])
        return hidden @ parameters[f"{name}.last.weight"] + parameters[f"{name}.last.bias"]

    top, rest = z[:, : couplings.top], z[:, couplings.top :]
    for number in range(couplings.rounds):
        rest = rest + move(f"round{number}.down", top)
        top = top + move(f"round{number}.up", rest)
    return torch.cat([top, rest], dim=1)


def initial(couplings: Couplings, rng: np.random.Generator) -> dict[str, Array]:
    """Return the initial parameters: random hidden layers, and output layers of zeros."""
    out: dict[str, Array] = {}
    for name, shape in couplings.shapes().items():
        if name.endswith("first.weight"):
            value = rng.normal(0, 1 / math.sqrt(shape[0]), shape)
        elif name.endswith("first.bias"):
            value = rng.normal(0, 0.5, shape)
        else:
            value = np.zeros(shape)
        out[name] = value.astype(np.float32)
    return out


@one_thread()
def train(
    couplings: Couplings,
    seen: Array,
    held_out: Array,
    *,
    steps: int,
    rng: np.random.Generator,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Training:
    """Fit the couplings to whitened rows in at most `steps` batches. `rng` is the only source of randomness.

    The curve of the result holds only the term |z|^2 / 2, because the couplings change no other term of the likelihood.
    """
    import torch

    first = initial(couplings, rng)
    parameters = {name: torch.from_numpy(value).to(device).requires_grad_() for name, value in first.items()}
    rows, unseen = torch.from_numpy(seen).to(device), torch.from_numpy(held_out).to(device)
    optimiser = torch.optim.AdamW(parameters.values(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)

    def bits(z: torch.Tensor) -> torch.Tensor:
        moved = forward(couplings, parameters, z)
        return (moved * moved).sum(dim=1).mean() / (2 * math.log(2) * couplings.dimension)

    def measure() -> float:
        with torch.no_grad():
            return float(bits(unseen))

    def step() -> bool:
        loss = bits(rows[torch.from_numpy(rng.integers(0, len(rows), BATCH))])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return True

    return train_until_best(
        step, measure, lambda: parameters, steps=steps, evaluate_every=EVALUATE_EVERY, progress=progress
    )
