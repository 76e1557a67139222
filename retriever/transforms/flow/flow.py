"""`flow`: this project's flow from sentence vectors to a Gaussian, made for search, with an adjustable strength.

    raw ──whiten──▶ radial ──▶ couplings ──▶ temper ──▶ z

- Whitening by principal axes with a shrunk covariance (`moments`). It also works with fewer vectors than dimensions.
- Radial Gaussianisation of the lengths (`radial`). It also bounds outliers.
- Learned couplings (`couplings`). They start as the identity and are kept only if they improve the likelihood of
  held-out vectors.
- Tempering: direction i, whose variance was l_i times the average, is multiplied by sqrt(l_i / (s l_i + 1 - s)), and
  the couplings' shifts by s^4. `strength=s` is 1 for the full Gaussian and 0 for the centred raw vectors.

`log_likelihood` is that of the full flow at any strength. A likelier map does not search better: the couplings gain up
to 0.06 bits per dimension and lose similarity on most benchmarks at full strength, and directions of little variance
hold mostly noise. A lower strength therefore first fades the couplings, then keeps the noise small. STRENGTH is the
default; `auto` chooses the strength from the text.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from retriever.errors import FitWarning
from retriever.transforms.affine import fit_none
from retriever.transforms.base import CHUNK, Array, Json, State, Transform, checked_rows
from retriever.transforms.flow.couplings import Couplings
from retriever.transforms.flow.radial import Radial, fit_radial
from retriever.transforms.moments import NEGLIGIBLE, distinct, moments, principal_axes
from retriever.transforms.spec import Spec, parse

STRENGTH = 0.5
TOP, WIDTH = 64, 128
MOST_STEPS = 600
# Fewer vectors say nothing about the space of queries: whitened by them, every query is far from everything.
FEWEST_VECTORS = 50
# With fewer distinct vectors nothing can be held out, and the flow is only whitening and the radial map.
FEWEST_TO_LEARN = 200
HELD_OUT_PART = 0.1
HELD_OUT_MOST = 2000
# More rows change neither a covariance of a thousand dimensions nor a net this small.
FITTED_MOST = 200_000
TRAINED_MOST = 50_000


class Flow(Transform):
    """z = temper(couplings(radial(whiten(u))))."""

    family = "flow"

    def __init__(self, state: State) -> None:
        super().__init__(state)
        d = state.dimension_in
        names = ("strength", "power", "factor", "longest", "log_det_of_whitening")
        numbers = {name: state.config[name] for name in names}
        if not all(isinstance(value, float) for value in numbers.values()) or state.dimension_out != d:
            raise ValueError(f"{numbers} are not the parameters of a flow")
        self.strength: float = numbers["strength"]  # type: ignore[assignment]
        self.radial = Radial(d, numbers["power"], numbers["factor"], numbers["longest"])  # type: ignore[arg-type]
        sizes = {name: state.config[name] for name in ("top", "width", "rounds")}
        self.couplings = Couplings(d, **sizes)  # type: ignore[arg-type]
        expected = {"mean": (d,), "matrix": (d, d), "spectrum": (d,)} | self.couplings.shapes()
        if {name: tensor.shape for name, tensor in state.tensors.items()} != expected:
            raise ValueError("the tensors do not have the shapes of a flow of these sizes")
        spectrum = state.tensors["spectrum"].astype(np.float64)
        self.temper = np.sqrt(spectrum / (self.strength * spectrum + 1 - self.strength))
        self.share = self.strength**4
        self._single = dict(state.tensors)

    @cached_property
    def _double(self) -> dict[str, Array]:
        return {name: tensor.astype(np.float64) for name, tensor in self.state.tensors.items()}

    def _numbers(self, rows: Array) -> dict[str, Array]:
        return self._single if rows.dtype == np.float32 else self._double

    def _white(self, rows: Array) -> Array:
        numbers = self._numbers(rows)
        return np.asarray((rows - numbers["mean"]) @ numbers["matrix"])

    def _forward(self, vectors: Array) -> Array:
        z = self.radial.forward(self._white(vectors))
        z = self.couplings.forward(self._numbers(vectors), z, self.share)
        return np.asarray(z * self.temper.astype(vectors.dtype))

    def _backward(self, z: Array) -> Array:
        z = self.couplings.backward(self._double, z / self.temper, self.share)
        return np.asarray(self.radial.backward(z) @ self._inverse_matrix + self._double["mean"])

    @cached_property
    def _inverse_matrix(self) -> Array:
        return np.asarray(np.linalg.inv(self._double["matrix"]))

    def _constant_log_det(self) -> float:
        value = self.state.config["log_det_of_whitening"]
        assert isinstance(value, float)
        return value

    def log_det(self, vectors: Array) -> NDArray[np.float64]:
        """log |det dz/du| of every row, in nats."""
        constant = self._constant_log_det() + float(np.log(self.temper).sum())
        return constant + self._by_rows(vectors, lambda white: self.radial.log_det(white))

    def log_likelihood(self, vectors: Array) -> NDArray[np.float64]:
        """The density of the full flow, in nats: log N(z; 0, I) + log |det dz/du| at strength 1."""
        constant = self._constant_log_det() - 0.5 * self.dimension_out * math.log(2 * math.pi)

        def score(white: Array) -> Array:
            z = self.couplings.forward(self._double, self.radial.forward(white))
            return np.asarray(self.radial.log_det(white) - 0.5 * np.einsum("ij,ij->i", z, z))

        return constant + self._by_rows(vectors, score)

    def _by_rows(self, vectors: Array, score: Callable[[Array], Array]) -> NDArray[np.float64]:
        rows = checked_rows(vectors, self.dimension_in)
        out = np.empty(len(rows), dtype=np.float64)
        for start in range(0, len(rows), CHUNK):
            out[start : start + CHUNK] = score(self._white(rows[start : start + CHUNK].astype(np.float64)))
        return out

    def describe(self) -> dict[str, Json]:
        return super().describe() | {"parameters": sum(t.size for t in self.state.tensors.values())}

    def at_strength(self, spec: str) -> "Flow":
        """Return this flow with the strength of `spec`. Nothing is trained again."""
        strength = _strength(parse(spec))
        config = dict(self.state.config) | {"strength": strength}
        return Flow(replace(self.state, spec=str(parse(spec)), config=config))


@dataclass(frozen=True)
class _Whitening:
    mean: Array
    matrix: Array
    spectrum: Array
    log_det: float
    empty: int

    def apply(self, rows: Array) -> Array:
        return np.asarray((rows - self.mean) @ self.matrix, dtype=np.float32)


@dataclass(frozen=True)
class _Parts:
    """The fitted parts of a flow, and the facts of the fit."""

    whitening: _Whitening
    radial: Radial
    couplings: Couplings
    tensors: Mapping[str, Array]
    config: dict[str, Json]
    notes: tuple[str, ...] = ()


def fit_flow(
    vectors: Array,
    spec: Spec,
    requested: str,
    seed: int,
    device: str,
    progress: Callable[[int, int], None] | None,
) -> Transform:
    """Fit a flow. With fewer than FEWEST_VECTORS distinct vectors, return the identity with a note."""
    n, d = vectors.shape
    rng = np.random.default_rng(seed)
    rows = vectors if n <= FITTED_MOST else vectors[np.sort(rng.choice(n, FITTED_MOST, replace=False))]
    rows = distinct(rows)
    if len(rows) < FEWEST_VECTORS:
        note = (
            f"a flow needs at least {FEWEST_VECTORS} distinct vectors, and there are {len(rows)}; the vectors stay raw"
        )
        warnings.warn(note, FitWarning, stacklevel=3)
        return fit_none(vectors, requested, seed, notes=(note,))
    rows = rows[rng.permutation(len(rows))]
    if len(rows) < FEWEST_TO_LEARN or d < 2:
        parts = _without_learning(rows)
    else:
        parts = _learn(rows, int(spec.options.get("steps", MOST_STEPS)), rng, device, progress)
    whitening, radial, couplings = parts.whitening, parts.radial, parts.couplings
    notes = parts.notes
    if whitening.empty:
        notes += (f"{whitening.empty} of {d} directions hold no variance and were not scaled up",)
    config = parts.config | {
        "strength": _strength(spec),
        "power": radial.power,
        "factor": radial.factor,
        "longest": radial.longest,
        "log_det_of_whitening": whitening.log_det,
        "top": couplings.top,
        "width": couplings.width,
        "rounds": couplings.rounds,
    }
    whitened = {"mean": whitening.mean, "matrix": whitening.matrix, "spectrum": whitening.spectrum}
    return Flow(
        State(
            spec=requested,
            dimension_in=d,
            dimension_out=d,
            fitted_on=n,
            seed=seed,
            notes=notes,
            config=config,
            tensors=whitened | dict(parts.tensors),
        )
    )


def _untrained(dimension: int) -> Couplings:
    return Couplings(dimension, min(TOP, dimension // 2), WIDTH, rounds=0)


def _without_learning(rows: Array) -> _Parts:
    d = rows.shape[1]
    whitening = _whiten(rows)
    white = whitening.apply(rows)
    reason = "the vectors have one dimension" if d < 2 else f"there are only {len(rows)} distinct vectors"
    note = f"{reason}: the flow is whitening and a radial map, nothing was learned"
    config: dict[str, Json] = {"steps": 0, "best_step": 0, "curve": []}
    return _Parts(whitening, fit_radial(white, _longest(white)), _untrained(d), {}, config, (note,))


def _learn(
    rows: Array, steps: int, rng: np.random.Generator, device: str, progress: Callable[[int, int], None] | None
) -> _Parts:
    """Fit whitening, radial map and couplings. Held-out rows decide which of the latter two are kept."""
    d = rows.shape[1]
    held = min(HELD_OUT_MOST, round(HELD_OUT_PART * len(rows)))
    whitening = _whiten(rows[held:])
    # The radial map is fitted to vectors that the whitening has not seen, because later vectors will be unseen too: the
    # covariance of few vectors makes its own vectors too short. The other half of the held-out rows measures the fit.
    tuning, unseen = np.array_split(whitening.apply(rows[:held]), 2)
    start = _bits(unseen, Radial(d), whitening.log_det)
    white = whitening.apply(rows[held : held + TRAINED_MOST])
    longest = max(_longest(white), _longest(tuning))
    radial = fit_radial(tuning, longest)
    if _bits(unseen, radial, whitening.log_det) > start:
        radial = Radial(d, longest=longest)
    after_radial = best = _bits(unseen, radial, whitening.log_det)
    couplings, tensors = _untrained(d), dict[str, Array]()
    config: dict[str, Json] = {"steps": 0, "best_step": 0, "curve": []}
    if steps:
        from retriever.transforms.flow.training import train

        trained = replace(couplings, rounds=1)
        training = train(
            trained,
            radial.forward(white),
            radial.forward(unseen),
            steps=steps,
            rng=rng,
            device=device,
            progress=progress,
        )
        first = training.curve[0][1]
        # The curve starts at exactly `after_radial`.
        curve = [(step, after_radial + (bits - first)) for step, bits in training.curve]
        config = {
            "steps": training.steps,
            "best_step": training.best_step,
            "curve": [[step, bits] for step, bits in curve],
        }
        if training.best_step:
            couplings, tensors = trained, training.parameters
            best = min(bits for _, bits in curve)
    config |= {
        "trained_on": len(rows) - held,
        "held_out": len(unseen),
        "held_out_bits_at_start": start,
        "held_out_bits_after_radial": after_radial,
        "held_out_bits_at_best": best,
    }
    return _Parts(whitening, radial, couplings, tensors, config)


def _strength(spec: Spec) -> float:
    return float(spec.options.get("strength", STRENGTH))


def _whiten(rows: Array) -> _Whitening:
    found = moments(rows)
    values, axes = principal_axes(found.covariance)
    average = float(values.mean())
    shrunk = (1 - found.shrinkage) * values / average + found.shrinkage
    empty = shrunk < NEGLIGIBLE**2
    # A direction without variance gets the mean variance, so that a query that differs there counts as elsewhere.
    spectrum = np.where(empty, 1.0, shrunk)
    matrix = (axes * (spectrum * average) ** -0.5).astype(np.float32)
    log_det = float(np.linalg.slogdet(matrix.astype(np.float64))[1])
    return _Whitening(found.mean.astype(np.float32), matrix, spectrum.astype(np.float32), log_det, int(empty.sum()))


def _longest(z: Array) -> float:
    return float(np.linalg.norm(z, axis=1).max())


def _bits(z: Array, radial: Radial, log_det: float) -> float:
    """Negative log-likelihood of whitened rows through a radial map, in bits per dimension."""
    d = z.shape[1]
    wide = z.astype(np.float64)
    bent = radial.forward(wide)
    nats = float((radial.log_det(wide) - 0.5 * (bent**2).sum(axis=1)).mean()) + log_det
    return float((0.5 * d * math.log(2 * math.pi) - nats) / (d * math.log(2)))
