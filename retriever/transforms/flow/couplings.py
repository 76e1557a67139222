"""The learned part of `flow`: additive couplings between the strongest directions and all others, in numpy.

The whitened vector is split into its first `top` directions and the rest. A round shifts the rest by a function of the
top, then the top by a function of the rest:

    rest <- rest + tanh(top A + a) B + b
    top  <- top  + tanh(rest C + c) D + e

B, D and their biases start at zero, so the map starts as the identity. tanh bounds each shift, so a
query that is unlike the training texts is not shifted much further than they are. Couplings preserve volume, so log
|det| is 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from retriever.transforms.moments import Array


@dataclass(frozen=True)
class Couplings:
    """The sizes of the couplings: `dimension` directions, hidden layers of `width` units, and `rounds` rounds.

    The first `top` directions form one side of each coupling, and all others form the other side.
    """

    dimension: int
    top: int
    width: int
    rounds: int = 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every parameter, in order of use."""
        out: dict[str, tuple[int, ...]] = {}
        rest = self.dimension - self.top
        for number in range(self.rounds):
            for side, given, moved in (("down", self.top, rest), ("up", rest, self.top)):
                name = f"round{number}.{side}"
                out |= {
                    f"{name}.first.weight": (given, self.width),
                    f"{name}.first.bias": (self.width,),
                    f"{name}.last.weight": (self.width, moved),
                    f"{name}.last.bias": (moved,),
                }
        return out

    def forward(self, parameters: Mapping[str, Array], z: Array, share: float = 1.0) -> Array:
        """Shift the rows. Each shift is multiplied by `share`."""
        top, rest = z[:, : self.top], z[:, self.top :]
        for number in range(self.rounds):
            rest = rest + share * _move(parameters, f"round{number}.down", top)
            top = top + share * _move(parameters, f"round{number}.up", rest)
        return np.concatenate([top, rest], axis=1)

    def backward(self, parameters: Mapping[str, Array], z: Array, share: float = 1.0) -> Array:
        """Invert `forward`."""
        top, rest = z[:, : self.top], z[:, self.top :]
        for number in reversed(range(self.rounds)):
            top = top - share * _move(parameters, f"round{number}.up", rest)
            rest = rest - share * _move(parameters, f"round{number}.down", top)
        return np.concatenate([top, rest], axis=1)


def _move(parameters: Mapping[str, Array], name: str, given: Array) -> Array:
    hidden = np.tanh(given @ parameters[f"{name}.first.weight"] + parameters[f"{name}.first.bias"])
    return np.asarray(hidden @ parameters[f"{name}.last.weight"] + parameters[f"{name}.last.bias"])
