"""Radial Gaussianisation: z <- z c |z|^(s - 1), which brings the lengths of vectors to those of a Gaussian.

Sentence vectors are means over tokens, so short texts lie far out and long ones close to the centre; in the whitened
space their lengths spread far more than a Gaussian's sqrt(d). One power and one factor, both in closed form or nearly,
mend most of that: s is near 0.15 for BERT's sentences, which also bounds what lies far outside (a vector ten times too
long comes out 1.4 times too long). Directions, and so cosines, stay as they are.

|det| is c^d s |z|^(d (s - 1)).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retriever.transforms.base import Array

__all__ = ["Radial", "fit_radial"]

SMALLEST_POWER = 0.05
# A length below this part of sqrt(d) is taken as this long, so that the mean itself stays where it is.
SHORTEST = 1e-3


@dataclass(frozen=True)
class Radial:
    """The map for vectors of `dimension` numbers; power 1 and factor 1 leave them as they are."""

    dimension: int
    power: float = 1.0
    factor: float = 1.0

    def forward(self, z: Array) -> Array:
        lengths = self._lengths(z)
        return np.asarray(z * (self.factor * lengths ** (self.power - 1)).astype(z.dtype)[:, None])

    def backward(self, z: Array) -> Array:
        own = np.linalg.norm(z.astype(np.float64), axis=1)
        lengths = np.maximum((own / self.factor) ** (1 / self.power), self._shortest)
        return np.asarray(z / (self.factor * lengths ** (self.power - 1)).astype(z.dtype)[:, None])

    def log_det(self, z: Array) -> NDArray[np.float64]:
        """log |det| at every row, in nats."""
        own = np.linalg.norm(z.astype(np.float64), axis=1)
        value = self.dimension * (math.log(self.factor) + (self.power - 1) * np.log(self._lengths(z)))
        return np.asarray(value + np.where(own < self._shortest, 0.0, math.log(self.power)))

    @property
    def _shortest(self) -> float:
        return SHORTEST * math.sqrt(self.dimension)

    def _lengths(self, z: Array) -> NDArray[np.float64]:
        return np.asarray(np.maximum(np.linalg.norm(z.astype(np.float64), axis=1), self._shortest))


def fit_radial(z: Array) -> Radial:
    """The likeliest map for whitened rows, with a power from SMALLEST_POWER to 1.

    For a given power the likeliest factor is sqrt(d / mean |z|^(2 s)); the power itself is found by bisection of
    brackets (golden section) on the likelihood, which has one peak.
    """
    from scipy.optimize import minimize_scalar

    dimension = int(z.shape[1])
    logs = np.log(np.maximum(np.linalg.norm(z.astype(np.float64), axis=1), SHORTEST * math.sqrt(dimension)))
    middle = float(logs.mean())

    def log_factor(power: float) -> float:
        spread = float(np.exp(2 * power * (logs - middle)).mean())
        return float(0.5 * math.log(dimension / spread) - power * middle)

    def loss(power: float) -> float:
        return -(dimension * (log_factor(power) + (power - 1) * middle) + math.log(power))

    power = float(minimize_scalar(loss, bounds=(SMALLEST_POWER, 1.0), method="bounded").x)
    return Radial(dimension, power, math.exp(log_factor(power)))
