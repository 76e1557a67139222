"""The architecture of BERT-flow in numpy: a small Glow on a vector, as in the published code (the paper differs).

The flow has three levels of three steps. A step on C channels consists of

- actnorm: x <- (x + b) exp(3 s). The log-scales are stored divided by 3, so that they learn three times as fast.
- a fixed reversal of the channels,
- additive coupling: the halves x1, x2 become x1, x2 + g(x1), where g is linear C/2 -> 32, actnorm, ReLU,
  linear 32 -> 32, actnorm, ReLU, and a linear 32 -> C/2 that starts at zero, with its own bias and exp(3 s) scale.

After each level but the last, the second half of the channels is copied to z = [half of level 1 | half of level
2 | rest]. Couplings preserve volume, so the log-determinant is the sum of the actnorms' log-scales. It is the same for
all vectors.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from retriever.transforms.moments import Array

LOG_SCALE_FACTOR = 3.0

# OpenBLAS uses several threads for a matrix product with more multiplications than this. For such narrow matrices,
# threads are not faster. On a busy machine they wait for each other: 8,192 rows took 0.3 to 3 s instead of 0.06 s.
ONE_THREAD = 2**18


@dataclass(frozen=True)
class Glow:
    """The sizes of a flow. `dimension` must be divisible by 2^levels."""

    dimension: int
    levels: int = 3
    depth: int = 3
    width: int = 32

    def channels(self) -> list[int]:
        """Return the number of channels at each level."""
        return [self.dimension >> level for level in range(self.levels)]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every parameter, in order of use."""
        out: dict[str, tuple[int, ...]] = {}
        for level, channels in enumerate(self.channels()):
            for step in range(self.depth):
                half, name = channels // 2, f"level{level}.step{step}"
                out |= {
                    f"{name}.actnorm.bias": (channels,),
                    f"{name}.actnorm.log_scale": (channels,),
                    f"{name}.first.weight": (half, self.width),
                    f"{name}.first.bias": (self.width,),
                    f"{name}.first.log_scale": (self.width,),
                    f"{name}.second.weight": (self.width, self.width),
                    f"{name}.second.bias": (self.width,),
                    f"{name}.second.log_scale": (self.width,),
                    f"{name}.last.weight": (self.width, half),
                    f"{name}.last.bias": (half,),
                    f"{name}.last.log_scale": (half,),
                }
        return out


class Step(NamedTuple):
    """The parameters of one step. The actnorms inside g are multiplied into the linear maps."""

    bias: Array
    scale: Array
    first: Array
    first_bias: Array
    second: Array
    second_bias: Array
    last: Array
    last_bias: Array

    def shift(self, half: Array) -> Array:
        """Return g(x1), the shift of the other half."""
        hidden = half @ self.first
        hidden += self.first_bias
        np.maximum(hidden, 0, out=hidden)
        hidden = hidden @ self.second
        hidden += self.second_bias
        np.maximum(hidden, 0, out=hidden)
        hidden = hidden @ self.last
        hidden += self.last_bias
        return np.asarray(hidden)


class GlowWeights:
    """The parameters of a flow in one precision, prepared for computing."""

    def __init__(self, glow: Glow, tensors: Mapping[str, Array], precision: np.dtype[np.floating]) -> None:
        self.glow = glow
        self.levels = [
            [_fold(tensors, f"level{level}.step{step}", precision) for step in range(glow.depth)]
            for level in range(glow.levels)
        ]
        self.block = max(16, ONE_THREAD // (glow.dimension // 2 * glow.width))

    def forward(self, rows: Array) -> Array:
        """Map raw vectors to Gaussian vectors."""
        return self._by_blocks(self._forward, rows)

    def backward(self, rows: Array) -> Array:
        """Map Gaussian vectors to raw vectors."""
        return self._by_blocks(self._backward, rows)

    def _by_blocks(self, step: Callable[[Array], Array], rows: Array) -> Array:
        if len(rows) <= self.block:
            return step(rows)
        out = np.empty_like(rows)
        for start in range(0, len(rows), self.block):
            out[start : start + self.block] = step(rows[start : start + self.block])
        return out

    def _forward(self, x: Array) -> Array:
        left: list[Array] = []
        for level in self.levels:
            half = x.shape[1] // 2
            for step in level:
                # Reverse and copy in one operation. With a reversed view, numpy would not use BLAS for the products.
                x = x[:, ::-1] + step.bias[::-1]
                x *= step.scale[::-1]
                x[:, half:] += step.shift(x[:, :half])
            left.append(x[:, half:])
            x = x[:, :half]
        # The last level does not split. Both its halves go to the end of z, in order.
        return np.concatenate([*left[:-1], x, left[-1]], axis=1)

    def _backward(self, z: Array) -> Array:
        sizes = [channels // 2 for channels in self.glow.channels()[:-1]]
        *left, x = np.split(z, np.cumsum(sizes), axis=1)
        for number, level in reversed(list(enumerate(self.levels))):
            x = np.concatenate([x, left[number]], axis=1) if number < len(left) else x.copy()
            half = x.shape[1] // 2
            for step in reversed(level):
                x[:, half:] -= step.shift(x[:, :half])
                x = x[:, ::-1] / step.scale
                x -= step.bias
        return x


def _fold(tensors: Mapping[str, Array], name: str, precision: np.dtype[np.floating]) -> Step:
    def wide(key: str) -> Array:
        return tensors[f"{name}.{key}"].astype(np.float64)

    folded = [wide("actnorm.bias"), np.exp(LOG_SCALE_FACTOR * wide("actnorm.log_scale"))]
    for layer in ("first", "second", "last"):
        scale = np.exp(LOG_SCALE_FACTOR * wide(f"{layer}.log_scale"))
        folded += [wide(f"{layer}.weight") * scale, wide(f"{layer}.bias") * scale]
    return Step(*(np.ascontiguousarray(part, dtype=precision) for part in folded))
