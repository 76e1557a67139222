"""Radial Gaussianisation z <- z c |z|^(s - 1): gives vectors the lengths that vectors of a Gaussian have.

Sentence vectors are means over tokens, so short texts lie far out and long texts close to the centre. In the whitened
space their lengths vary far more than those of a Gaussian, which are near sqrt(d). One power s and one factor c
correct most of this difference. s is near 0.15 for sentence vectors of BERT. Beyond the longest vector of the fit, the
power is at most OUTSIDE: a vector that is ten times too long becomes at most 1.4 times too long. Directions do not
change, so cosines do not change either.

If rho is the new length of z, log |det| is d log(rho / |z|) + log s.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retriever.transforms.moments import Array

SMALLEST_POWER = 0.05
OUTSIDE = 0.15
# Smallest length, as a fraction of sqrt(d). A shorter vector is stretched like this one, so that 0 is mapped to 0.
SHORTEST = 1e-3


@dataclass(frozen=True)
class Radial:
    """The map for vectors of `dimension` numbers, fitted up to the length `longest`. The default is the identity."""

    dimension: int
    power: float = 1.0
    factor: float = 1.0
    longest: float = math.inf

    def forward(self, z: Array) -> Array:
        return np.asarray(z * np.exp(self.log_stretch(_lengths(z))).astype(z.dtype)[:, None])

    def backward(self, z: Array) -> Array:
        own = np.maximum(_lengths(z), 1e-300)
        inside = np.maximum((own / self.factor) ** (1 / self.power), self.shortest)
        if math.isfinite(self.longest):
            edge = self.factor * self.longest**self.power
            beyond = self.longest * np.maximum(own / edge, 1.0) ** (1 / self._power_outside)
            inside = np.where(own > edge, beyond, inside)
        return np.asarray(z * np.exp(-self.log_stretch(inside)).astype(z.dtype)[:, None])

    def log_det(self, z: Array) -> NDArray[np.float64]:
        """Return log |det| of every row, in nats."""
        lengths = _lengths(z)
        power = np.where(lengths > self.longest, self._power_outside, self.power)
        power = np.where(lengths < self.shortest, 1.0, power)
        return np.asarray(self.dimension * self.log_stretch(lengths) + np.log(power))

    def log_stretch(self, lengths: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return log(rho / |z|) for vectors of these lengths."""
        lengths = np.maximum(lengths, self.shortest)
        inside = np.minimum(lengths, self.longest)
        stretch = math.log(self.factor) + (self.power - 1) * np.log(inside)
        return np.asarray(stretch + (self._power_outside - 1) * np.log(lengths / inside))

    @property
    def _power_outside(self) -> float:
        return min(self.power, OUTSIDE)

    @property
    def shortest(self) -> float:
        return SHORTEST * math.sqrt(self.dimension)


def _lengths(z: Array) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(z.astype(np.float64), axis=1))


def fit_radial(z: Array, longest: float) -> Radial:
    """Return the maximum-likelihood map for whitened rows, with a power from SMALLEST_POWER to 1.

    For a given power s, the best factor is sqrt(d / mean |z|^(2 s)). The likelihood has one peak, so a bounded
    one-dimensional search finds the power.
    """
    from scipy.optimize import minimize_scalar

    dimension = int(z.shape[1])
    logs = np.log(np.maximum(_lengths(z), SHORTEST * math.sqrt(dimension)))
    middle = float(logs.mean())

    def log_factor(power: float) -> float:
        spread = float(np.exp(2 * power * (logs - middle)).mean())
        return float(0.5 * math.log(dimension / spread) - power * middle)

    def loss(power: float) -> float:
        return -(dimension * (log_factor(power) + (power - 1) * middle) + math.log(power))

    power = float(minimize_scalar(loss, bounds=(SMALLEST_POWER, 1.0), method="bounded").x)
    return Radial(dimension, power, math.exp(log_factor(power)), longest)
