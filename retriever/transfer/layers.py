"""Express a transform as plain layers that other software can apply: affine maps with torch's standard activations.

The output of the layers has the same direction as the output of `apply`. The caller normalises it to length one. Three
operations need a technique, because no standard activation provides them:

- Some numbers must pass through an activation unchanged. ReLU passes them as two halves: x = relu(x) - relu(-x). For
  tanh, they are multiplied by SMALL, because tanh is linear near zero.
- The radial map (`radial`) multiplies a vector by a factor that depends on its length. The factor is computed as a
  piecewise linear function of c / sqrt(|z|^2 + c^2), which is built from ramps (Hardtanh). `Unit` provides this number:
  it is the last number of [z, c] scaled to length one.
- A product is computed by GLU, which is a * sigmoid(b).

A separate layer subtracts the mean. If the next layer subtracted it, the last digits would be lost for vectors that lie
far from the origin, such as those of BERT.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from retriever.transforms.affine import Affine
from retriever.transforms.base import Transform
from retriever.transforms.bert_flow.bert_flow import BertFlow
from retriever.transforms.bert_flow.glow import GlowWeights
from retriever.transforms.flow.couplings import Couplings
from retriever.transforms.flow.flow import Flow
from retriever.transforms.flow.radial import Radial
from retriever.transforms.moments import Array

Activation = Literal["Identity", "ReLU", "Tanh", "Hardtanh", "GLU"]

# SMALL is a power of two, so that multiplying and dividing by it is exact. Below 3e-4, tanh(x) equals x in float32.
SMALL = 2.0**-17
# For lengths up to FARTHEST times the longest vector of the fit, the error of the radial map is a few millionths.
KNOTS = 1500
FARTHEST = 1e4


@dataclass(frozen=True)
class Dense:
    """The layer y = activation(x @ weight + bias)."""

    weight: Array
    bias: Array
    activation: Activation


@dataclass(frozen=True)
class Unit:
    """The layer y = x / |x|."""


Layer = Dense | Unit


@dataclass(frozen=True)
class _Wires:
    """An affine map of the output of the last layer.

    Affine maps are combined into one map. A new layer is needed only when an activation follows.
    """

    matrix: Array
    bias: Array

    @classmethod
    def straight(cls, width: int) -> "_Wires":
        return cls(np.eye(width), np.zeros(width))

    def __len__(self) -> int:
        return len(self.bias)

    def __getitem__(self, which: slice) -> "_Wires":
        return _Wires(self.matrix[:, which], self.bias[which])

    def __add__(self, other: "_Wires") -> "_Wires":
        return _Wires(self.matrix + other.matrix, self.bias + other.bias)

    def plus(self, numbers: Array) -> "_Wires":
        return _Wires(self.matrix, self.bias + numbers)

    def times(self, scale: Array | float) -> "_Wires":
        return _Wires(self.matrix * scale, self.bias * scale)

    def through(self, matrix: Array) -> "_Wires":
        return _Wires(self.matrix @ matrix, self.bias @ matrix)


def _join(*parts: _Wires) -> _Wires:
    return _Wires(np.hstack([part.matrix for part in parts]), np.hstack([part.bias for part in parts]))


@dataclass
class _Net:
    """The layers built so far."""

    layers: list[Layer] = field(default_factory=list)

    def add(self, wires: _Wires, activation: Activation = "Identity") -> _Wires:
        self.layers.append(Dense(wires.matrix, wires.bias, activation))
        return _Wires.straight(len(wires) // 2 if activation == "GLU" else len(wires))

    def relu(self, kept: _Wires, activated: _Wires) -> tuple[_Wires, _Wires]:
        """Add a layer that applies ReLU to `activated` and passes `kept` through unchanged."""
        n = len(kept)
        given = self.add(_join(kept, kept.times(-1), activated), "ReLU")
        return given[:n] + given[n : 2 * n].times(-1), given[2 * n :]

    def tanh(self, kept: _Wires, activated: _Wires) -> tuple[_Wires, _Wires]:
        given = self.add(_join(kept.times(SMALL), activated), "Tanh")
        return given[: len(kept)].times(1 / SMALL), given[len(kept) :]


def layers_of(transform: Transform) -> list[Layer]:
    """Return the layers whose output has the direction of `transform.apply`. For `none`, the list is empty."""
    if isinstance(transform, Affine):
        return _affine(transform)
    if isinstance(transform, Flow):
        return _flow(transform)
    if isinstance(transform, BertFlow):
        return _bert_flow(transform)
    raise TypeError(f"the transform {transform.family!r} cannot be expressed as layers")


def _affine(transform: Affine) -> list[Layer]:
    tensors = _float64_tensors(transform)
    net = _Net()
    if "mean" not in tensors:
        return []
    centred = net.add(_Wires.straight(transform.dimension_in).plus(-tensors["mean"]))
    if "scale" in tensors:
        net.add(centred.times(tensors["scale"]))
    if "matrix" in tensors:
        net.add(centred.through(tensors["matrix"]))
    return net.layers


def _flow(flow: Flow) -> list[Layer]:
    tensors = _float64_tensors(flow)
    net = _Net()
    z = net.add(_Wires.straight(flow.dimension_in).plus(-tensors["mean"])).through(tensors["matrix"])
    if flow.couplings.rounds:  # without couplings, the radial map changes only lengths, so it can be left out
        z = _radial(net, flow.radial, z)
        z = _coupled(net, flow.couplings, tensors, flow.share, z)
    net.add(z.times(flow.temper))
    return net.layers


def _radial(net: _Net, radial: Radial, z: _Wires) -> _Wires:
    """Add the layers of the radial map.

    They compute z / r and c / r, with r^2 = |z|^2 + c^2, and multiply z / r by a factor that is a function of c / r.
    """
    c = radial.shortest
    d = len(z)
    net.add(_join(z, _Wires(np.zeros((len(z.matrix), 1)), np.array([c]))))
    net.layers.append(Unit())
    unit = _Wires.straight(d + 1)
    direction, nearness = unit[:d], unit[d:]

    farthest = FARTHEST * radial.longest
    knots = np.union1d(np.geomspace(c / np.hypot(farthest, c), 1, KNOTS), c / np.hypot([radial.longest, c], c))
    lengths = c * np.sqrt(1 / knots**2 - 1)
    factors = c / knots * np.exp(radial.log_stretch(lengths))
    top = 2 * factors.max()
    logits = np.log(factors / (top - factors))

    # Ramp i rises from -1 to 1 between knots i and i + 1.
    steepness = 2 / np.diff(knots)
    ramps = nearness.through(steepness[None, :]).plus(-steepness * knots[:-1] - 1)
    given = net.add(_join(direction, ramps), "Hardtanh")
    rises = np.diff(logits) / 2
    logit = given[d:].through(np.tile(rises[:, None], d)).plus(logits[0] + rises.sum())
    return net.add(_join(given[:d].times(top), logit), "GLU")


def _coupled(net: _Net, couplings: Couplings, tensors: dict[str, Array], share: float, z: _Wires) -> _Wires:
    for number in range(couplings.rounds):
        for side in ("down", "up"):
            weight, bias, last, last_bias = (
                tensors[f"round{number}.{side}.{part}"]
                for part in ("first.weight", "first.bias", "last.weight", "last.bias")
            )
            given = z[: couplings.top] if side == "down" else z[couplings.top :]
            z, hidden = net.tanh(z, given.through(weight).plus(bias))
            move = hidden.through(last).plus(last_bias).times(share)
            top, rest = z[: couplings.top], z[couplings.top :]
            z = _join(top, rest + move) if side == "down" else _join(top + move, rest)
    return z


def _bert_flow(flow: BertFlow) -> list[Layer]:
    levels = GlowWeights(flow.glow, flow.state.tensors, np.dtype(np.float64)).levels
    net = _Net()
    centre = levels[0][0].bias
    z = net.add(_Wires.straight(flow.dimension_in).plus(centre)).plus(-centre)
    done = 0  # the number of values at the start of z that are final
    for level in levels:
        half = (len(z) - done) // 2
        for step in level:
            z = _join(z[:done], z[done:].plus(step.bias).times(step.scale)[::-1])
            z, hidden = net.relu(z, z[done : done + half].through(step.first).plus(step.first_bias))
            z, hidden = net.relu(z, hidden.through(step.second).plus(step.second_bias))
            shift = hidden.through(step.last).plus(step.last_bias)
            z = _join(z[: done + half], z[done + half :] + shift)
        if level is not levels[-1]:
            z = _join(z[:done], z[done + half :], z[done : done + half])
            done += half
    net.add(z)
    return net.layers


def _float64_tensors(transform: Transform) -> dict[str, Array]:
    return {name: tensor.astype(np.float64) for name, tensor in transform.state.tensors.items()}
