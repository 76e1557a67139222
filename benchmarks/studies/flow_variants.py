"""The maps that `benchmarks.studies.flow` tries after whitening: couplings, splines, ranks, and rotated axes.

Each map returns the moved rows and the log-determinant of every row. It starts as the identity in the principal axes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from retriever.transforms.flow.flow import TOP, WIDTH

LARGEST_LOG_SCALE = 1.0
BINS, FEW_BINS, BOUND = 8, 4, 4.0
REFLECTIONS = 16

Moved = tuple[Tensor, Tensor]


def spline(z: Tensor, raw: Tensor) -> Moved:
    """Apply a monotone rational-quadratic spline (Durkan et al. 2019) within ±BOUND.

    The spline is the identity outside ±BOUND, and everywhere if `raw` is 0. The last axis of `raw` has 3 K - 1 numbers
    for each number of `z`: K widths, K heights, and K - 1 slopes at the inner knots.
    """
    k = (raw.shape[-1] + 1) // 3

    def knots(shares: Tensor) -> Tensor:
        inner = 2 * BOUND * torch.softmax(shares, -1).cumsum(-1)[..., :-1] - BOUND
        return functional.pad(functional.pad(inner, (1, 0), value=-BOUND), (0, 1), value=BOUND)

    x, y = knots(raw[..., :k]), knots(raw[..., k : 2 * k])
    slopes = functional.pad(functional.softplus(raw[..., 2 * k :] + math.log(math.e - 1)), (1, 1), value=1.0)
    x, y, slopes = (t.expand(*z.shape, k + 1) for t in (x, y, slopes))
    inside = z.abs() < BOUND
    safe = torch.where(inside, z, torch.zeros_like(z))[..., None]
    place = (safe >= x[..., 1:-1]).sum(-1, keepdim=True)
    x0, x1, y0, y1, d0, d1 = (t.gather(-1, place + n)[..., 0] for t in (x, y, slopes) for n in (0, 1))
    slope, t = (y1 - y0) / (x1 - x0), (safe[..., 0] - x0) / (x1 - x0)
    below = slope + (d1 + d0 - 2 * slope) * t * (1 - t)
    moved = y0 + (y1 - y0) * (slope * t * t + d0 * t * (1 - t)) / below
    gradient = slope**2 * (d1 * t * t + 2 * slope * t * (1 - t) + d0 * (1 - t) ** 2) / below**2
    log_det = torch.where(inside, torch.log(gradient), torch.zeros_like(z)).sum(-1)
    return torch.where(inside, moved, z), log_det


class Coupling(nn.Module):
    """One round of a coupling flow.

    A net of the first `top` directions moves the rest. Then a net of the rest moves the first `top` directions. `kind`
    is additive, affine (with the log of the scale within ±LARGEST_LOG_SCALE) or spline.
    """

    def __init__(self, dimension: int, top: int, kind: str = "additive") -> None:
        super().__init__()
        self.top, self.kind = top, kind
        self.each = {"additive": 1, "affine": 2, "spline": 3 * FEW_BINS - 1}[kind]
        self.down, self.up = self._net(top, dimension - top), self._net(dimension - top, top)

    def _net(self, given: int, moved: int) -> nn.Sequential:
        first, last = nn.Linear(given, WIDTH), nn.Linear(WIDTH, moved * self.each)
        nn.init.normal_(first.weight, std=1 / math.sqrt(given))
        nn.init.normal_(first.bias, std=0.5)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        return nn.Sequential(first, nn.Tanh(), last)

    def _move(self, z: Tensor, numbers: Tensor) -> Moved:
        if self.kind == "additive":
            return z + numbers, z.new_zeros(len(z))
        if self.kind == "spline":
            return spline(z, numbers.reshape(len(z), z.shape[1], self.each))
        shift, raw = numbers.chunk(2, dim=1)
        log_scale = LARGEST_LOG_SCALE * torch.tanh(raw / LARGEST_LOG_SCALE)
        return z * torch.exp(log_scale) + shift, log_scale.sum(dim=1)

    def forward(self, z: Tensor) -> Moved:
        top, rest = z[:, : self.top], z[:, self.top :]
        rest, one = self._move(rest, self.down(top))
        top, other = self._move(top, self.up(rest))
        return torch.cat([top, rest], dim=1), one + other


class Marginal(nn.Module):
    """A learned spline for each direction separately."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.zeros(dimension, 3 * BINS - 1))

    def forward(self, z: Tensor) -> Moved:
        return spline(z, self.raw)


class Ranks(nn.Module):
    """Map each direction to a Gaussian by its quantiles.

    The map is linear between `knots` quantiles and has slope 1 beyond the outermost quantiles.
    """

    x: Tensor
    y: Tensor

    def __init__(self, dimension: int, knots: int) -> None:
        super().__init__()
        places = (torch.arange(knots) + 0.5) / knots
        self.places = places
        self.register_buffer("y", torch.special.ndtri(places))
        self.register_buffer("x", self.y.repeat(dimension, 1))

    def fit(self, z: Tensor) -> None:
        """Use the quantiles of these rows as knots. Knots of equal value are separated by a small step."""
        found = torch.quantile(z, self.places, dim=0).T.contiguous()
        self.x = found + 1e-4 * torch.arange(found.shape[1])

    def forward(self, z: Tensor) -> Moved:
        columns = z.T.contiguous()
        after = torch.searchsorted(self.x, columns)
        place = after.clamp(1, len(self.y) - 1)
        x0, x1 = self.x.gather(1, place - 1), self.x.gather(1, place)
        y0, y1 = self.y[place - 1], self.y[place]
        slope = torch.where((after > 0) & (after < len(self.y)), (y1 - y0) / (x1 - x0), torch.ones_like(columns))
        moved = torch.where(after > 0, y1 + slope * (columns - x1), y0 + columns - x0)
        return moved.T, torch.log(slope).sum(dim=0)


class Turned(nn.Module):
    """Apply a map in rotated axes and rotate back. The rotation may include learned Householder reflections."""

    def __init__(self, inner: nn.Module, axes: Tensor, reflections: int = 0) -> None:
        super().__init__()
        self.inner, self.axes = inner, axes
        self.mirrors = nn.Parameter(torch.randn(reflections, len(axes))) if reflections else None

    def turn(self, z: Tensor) -> Tensor:
        z = z @ self.axes
        for mirror in () if self.mirrors is None else self.mirrors:
            z = z - torch.outer(z @ mirror, 2 * mirror / (mirror @ mirror))
        return z

    def turn_back(self, z: Tensor) -> Tensor:
        for mirror in () if self.mirrors is None else self.mirrors.flip(0):
            z = z - torch.outer(z @ mirror, 2 * mirror / (mirror @ mirror))
        return z @ self.axes.T

    def forward(self, z: Tensor) -> Moved:
        moved, log_det = self.inner(self.turn(z))
        return self.turn_back(moved), log_det


class Chain(nn.ModuleList):
    def forward(self, z: Tensor) -> Moved:
        log_det = z.new_zeros(len(z))
        for part in self:
            z, more = part(z)
            log_det = log_det + more
        return z, log_det


def permutation(d: int) -> Tensor:
    return torch.eye(d)[torch.randperm(d)]


def rotation(d: int) -> Tensor:
    axes: Tensor = torch.linalg.qr(torch.randn(d, d))[0]
    return axes


@dataclass(frozen=True)
class Variant:
    """A chain for vectors of d dimensions, with or without the radial map before it."""

    name: str
    build: Callable[[int], list[nn.Module]] = lambda d: []
    radial: bool = True


def variants() -> list[Variant]:
    def top(kind: str, rounds: int = 1) -> Callable[[int], list[nn.Module]]:
        return lambda d: [Coupling(d, min(TOP, d // 2), kind) for _ in range(rounds)]

    def half(axes: Callable[[int], Tensor], mirrors: int = 0, rounds: int = 2) -> Callable[[int], list[nn.Module]]:
        return lambda d: [Turned(Coupling(d, d // 2), axes(d), mirrors) for _ in range(rounds)]

    return [
        Variant("whitening alone", radial=False),
        Variant("whitening, radial"),
        *(Variant(f"additive, top/rest, rounds {n}" + " (flow)" * (n == 1), top("additive", n)) for n in (1, 2, 4)),
        Variant("additive, halves, principal axes ×2", half(torch.eye)),
        Variant("additive, halves, random permutations ×2", half(permutation)),
        Variant("additive, halves, random rotations ×2", half(rotation)),
        Variant("additive, halves, learned rotations ×2", half(rotation, REFLECTIONS)),
        Variant("additive, halves, random rotations ×4", half(rotation, rounds=4)),
        Variant("affine, clamped, top/rest", top("affine")),
        Variant("spline coupling, top/rest", top("spline")),
        Variant("spline of each direction", lambda d: [Marginal(d)]),
        Variant("ranks, 20 quantiles", lambda d: [Ranks(d, 20)]),
        Variant("ranks, 200 quantiles", lambda d: [Ranks(d, 200)]),
        Variant("ranks, 20 quantiles, no radial", lambda d: [Ranks(d, 20)], radial=False),
        Variant(
            "ranks, 20 quantiles, random rotations ×4", lambda d: [Turned(Ranks(d, 20), rotation(d)) for _ in range(4)]
        ),
    ]
