"""Trains BERT-flow by maximum likelihood in torch, with early stopping on held-out vectors.

The optimiser is that of the published code: Adam without bias correction, decoupled weight decay 0.01 on every
parameter, constant learning rate 1e-3, gradients clipped to norm 1, batches of 64 sentences, shuffled each epoch. The
early stopping is an addition: held-out vectors decide when to stop and which parameters are kept.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from retriever.transforms.bert_flow.glow import LOG_SCALE_FACTOR, Glow
from retriever.transforms.moments import NEGLIGIBLE, Array
from retriever.transforms.training import Training, one_thread, train_until_best

if TYPE_CHECKING:
    import torch

BATCH = 64
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.01
BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-6
CLIP = 1.0
WEIGHT_DEVIATION = 0.05
ACTNORM_EPSILON = 1e-6
BERT_DEVIATION = 0.3

HELD_OUT_PART = 0.1
HELD_OUT_MOST = 2000
EVALUATE_EVERY = 20


def forward(
    glow: Glow, parameters: Mapping[str, "torch.Tensor"], x: "torch.Tensor"
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Compute `GlowWeights.forward` in torch, so that it can be differentiated.

    Return z and log |det dz/du|, which is the same number for all rows.
    """
    import torch

    def scaled(layer: str, given: torch.Tensor) -> torch.Tensor:
        """Return (x W + b) exp(3 s): a linear map with its actnorm, or the last linear map with its bias and scale."""
        linear = torch.addmm(parameters[f"{layer}.bias"], given, parameters[f"{layer}.weight"])
        return linear * torch.exp(LOG_SCALE_FACTOR * parameters[f"{layer}.log_scale"])

    left: list[torch.Tensor] = []
    log_det = x.new_zeros(())
    for level in range(glow.levels):
        for step in range(glow.depth):
            name = f"level{level}.step{step}"
            log_scale = LOG_SCALE_FACTOR * parameters[f"{name}.actnorm.log_scale"]
            log_det = log_det + log_scale.sum()
            x = ((x + parameters[f"{name}.actnorm.bias"]) * log_scale.exp()).flip(1)
            x1, x2 = x.chunk(2, dim=1)
            hidden = torch.relu(scaled(f"{name}.first", x1))
            hidden = torch.relu(scaled(f"{name}.second", hidden))
            x = torch.cat([x1, x2 + scaled(f"{name}.last", hidden)], dim=1)
        if level < glow.levels - 1:
            x, gone = x.chunk(2, dim=1)
            left.append(gone)
    return torch.cat([*left, x], dim=1), log_det


def initialise(glow: Glow, batch: Array, rng: np.random.Generator) -> dict[str, Array]:
    """Return the initial parameters.

    Hidden weights are drawn from a Gaussian with standard deviation 0.05. The last linear map is zero. An actnorm
    starts with the bias and scale that give the first batch mean 0 and variance 1 in every channel. A channel that
    happens to be constant in this batch starts with the typical scale of its layer.
    """
    out = {name: np.zeros(shape) for name, shape in glow.shapes().items()}

    def normalise(x: Array, name: str) -> Array:
        mean = x.mean(axis=0)
        deviation = np.sqrt(((x - mean) ** 2).mean(axis=0)) + ACTNORM_EPSILON
        typical = np.sqrt((deviation**2).mean())
        deviation = np.where(deviation < NEGLIGIBLE * typical, typical, deviation)
        out[f"{name}.bias"] = -mean
        out[f"{name}.log_scale"] = -np.log(deviation) / LOG_SCALE_FACTOR
        return np.asarray((x - mean) / deviation)

    x = batch.astype(np.float64)
    for level in range(glow.levels):
        for step in range(glow.depth):
            name = f"level{level}.step{step}"
            x = normalise(x, f"{name}.actnorm")[:, ::-1]
            hidden = x[:, : x.shape[1] // 2]
            for layer in ("first", "second"):
                weight = rng.normal(0, WEIGHT_DEVIATION, out[f"{name}.{layer}.weight"].shape)
                out[f"{name}.{layer}.weight"] = weight
                hidden = np.maximum(normalise(hidden @ weight, f"{name}.{layer}"), 0)
        x = x[:, : x.shape[1] // 2]
    return {name: value.astype(np.float32) for name, value in out.items()}


def fill_constant_dimensions(vectors: Array, rng: np.random.Generator) -> tuple[Array, int]:
    """Add noise of the typical size to constant dimensions. Return the vectors and the number of constant dimensions.

    With constant dimensions the published flow returns NaN on all-MiniLM-L6-v2. Three of its 384 dimensions have
    standard deviations of 2e-33, 3e-33 and 5e-9, while the others have 0.05. Each actnorm scales such a channel by up
    to 1e6, and all of them together by 1e32. The gradient overflows in the first step, and clipping turns inf into NaN.
    A smaller initial scale would not help: a constant has no density, so its scale keeps growing during training. With
    noise, the flow learns that the dimension carries no information.
    """
    deviation = vectors.std(axis=0, dtype=np.float64)
    typical = float(np.sqrt((deviation**2).mean()))
    constant = np.flatnonzero(deviation < NEGLIGIBLE * typical)
    if not len(constant):
        return vectors, 0
    filled = vectors.copy()
    filled[:, constant] += rng.normal(0, typical, (len(vectors), len(constant))).astype(np.float32)
    return filled, len(constant)


@one_thread()
def train(
    glow: Glow,
    vectors: Array,
    *,
    steps: int,
    seed: int,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Training:
    """Fit the flow to distinct vectors in at most `steps` batches. `seed` is the only source of randomness."""
    import torch

    rng = np.random.default_rng(seed)
    rows, constant = fill_constant_dimensions(vectors[rng.permutation(len(vectors))], rng)
    unit = _unit(rows)
    rows = rows * np.float32(unit)
    held = min(HELD_OUT_MOST, max(1, round(HELD_OUT_PART * len(rows))))
    held_out, seen = torch.from_numpy(rows[:held]).to(device), torch.from_numpy(rows[held:]).to(device)
    first = initialise(glow, rows[held : held + BATCH], rng)
    sizes = [value.size for value in first.values()]
    theta = torch.from_numpy(np.concatenate([value.ravel() for value in first.values()])).to(device).requires_grad_()

    def named(flat: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = zip(first.items(), torch.split(flat, sizes), strict=True)
        return {name: part.view(like.shape) for (name, like), part in parts}

    def bits(x: torch.Tensor) -> torch.Tensor:
        """Return the negative log-likelihood in bits per dimension, which is the published loss."""
        z, log_det = forward(glow, named(theta), x)
        nats = log_det - 0.5 * (z * z).sum(dim=1).mean() - 0.5 * glow.dimension * math.log(2 * math.pi)
        return -nats / (math.log(2) * glow.dimension)

    def measure() -> float:
        with torch.no_grad():
            return float(bits(held_out)) - math.log2(unit)

    mean, square = torch.zeros_like(theta), torch.zeros_like(theta)
    batches = _batches(len(seen), rng)

    def step() -> bool:
        (gradient,) = torch.autograd.grad(bits(seen[next(batches)]), theta)
        norm = float(gradient.norm())
        with torch.no_grad():
            gradient *= min(1.0, CLIP / max(norm, 1e-12))
            mean.mul_(BETAS[0]).add_(gradient, alpha=1 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            theta.sub_(LEARNING_RATE * (mean / (square.sqrt() + ADAM_EPSILON) + WEIGHT_DECAY * theta))
        return math.isfinite(norm)

    result = train_until_best(
        step, measure, lambda: named(theta), steps=steps, evaluate_every=EVALUATE_EVERY, progress=progress
    )
    result.facts = {"trained_on": len(seen), "held_out": held, "constant_dimensions": constant}
    if not (result.best_step or result.failure):
        result.failure = f"the likelihood of held-out vectors never improved in {result.steps} steps"
    result.parameters["level0.step0.actnorm.bias"] /= np.float32(unit)
    result.parameters["level0.step0.actnorm.log_scale"] += np.float32(math.log(unit) / LOG_SCALE_FACTOR)
    return result


def _unit(rows: Array) -> float:
    """Return the power of two that scales the vectors to the size of BERT's vectors.

    The learning rate was chosen for BERT's vectors. The bias of the first actnorm has the unit of the vectors and
    changes by 1e-3 per step. That is 1/200 of the standard deviation of BERT's vectors. It is twice the standard
    deviation of vectors of norm 0.01, so training on them would not converge. BERT's own vectors get the factor 1. For
    other vectors the factor is multiplied into the first actnorm after the training.
    """
    typical = float(np.sqrt(rows.var(axis=0, dtype=np.float64).mean()))
    return 2.0 ** round(math.log2(BERT_DEVIATION / typical))


def _batches(n: int, rng: np.random.Generator) -> Iterator[Array]:
    """Yield batches of row numbers without end. Rows are shuffled in every epoch except the first.

    The first epoch starts with the batch that initialised the actnorms.
    """
    order = np.arange(n)
    while True:
        for start in range(0, max(1, n - BATCH + 1), BATCH):
            yield order[start : start + BATCH]
        order = rng.permutation(n)
