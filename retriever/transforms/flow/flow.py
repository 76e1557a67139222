"""`flow`: an invertible map from sentence vectors to a Gaussian, designed for search, with an adjustable strength.

    raw ──whiten──▶ radial ──▶ couplings ──▶ temper ──▶ z

- Whitening by principal axes with a shrunk covariance (`moments`). It also works with fewer vectors than dimensions.
- Radial Gaussianisation of the lengths (`radial`). It also bounds outliers.
- Learned couplings (`couplings`). They start as the identity and are kept only if they improve the likelihood of
  held-out vectors.
- Tempering: direction i, whose variance was l_i times the average, is multiplied by sqrt(l_i / (s l_i + 1 - s)), and
  the couplings' shifts by s^4. `strength=s` is 1 for the full Gaussian and 0 for the centred raw vectors.

`log_likelihood` is computed at strength 1, whatever the strength of the flow is. A map with a higher likelihood does
not search better. At full strength, the couplings gain up to 0.06 bits per dimension, but the results of most
similarity benchmarks get worse. Directions of small variance hold mostly noise. A lower strength therefore weakens the
couplings first, and keeps the directions of small variance small. STRENGTH is the default; `auto` chooses the strength
from the text.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from retriever.errors import FitWarning
from retriever.transforms.affine import fit_none
from retriever.transforms.base import Json, State, StepProgress, Transform, by_chunks
from retriever.transforms.flow.couplings import Couplings
from retriever.transforms.flow.radial import Radial, fit_radial
from retriever.transforms.moments import NEGLIGIBLE, Array, distinct, moments, principal_axes
from retriever.transforms.spec import Spec, parse
from retriever.transforms.training import Training

STRENGTH = 0.5
TOP, WIDTH = 64, 128
MOST_STEPS = 600
# Fewer vectors do not describe the space of queries: if they define the whitening, every query is far from every text.
FEWEST_VECTORS = 50
# With fewer distinct vectors none can be held out, so the flow consists only of the whitening and the radial map.
FEWEST_TO_LEARN = 200
HELD_OUT_PART = 0.1
HELD_OUT_MOST = 2000
# More rows would not improve the covariance or the small network of the couplings.
FITTED_MOST = 200_000
TRAINED_MOST = 50_000


class Flow(Transform, families=("flow",)):
    """z = temper(couplings(radial(whiten(u))))."""

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
        self.constant_log_det: float = numbers["log_det_of_whitening"]  # type: ignore[assignment]

    @classmethod
    def fit(cls, vectors: Array, spec: Spec, seed: int, device: str, progress: StepProgress) -> Transform:
        """Fit a flow. With fewer than FEWEST_VECTORS distinct vectors, return the identity with a note."""
        n, d = vectors.shape
        rng = np.random.default_rng(seed)
        rows = vectors if n <= FITTED_MOST else vectors[np.sort(rng.choice(n, FITTED_MOST, replace=False))]
        rows = distinct(rows)
        if len(rows) < FEWEST_VECTORS:
            reason = f"a flow needs at least {FEWEST_VECTORS} distinct vectors, and there are {len(rows)}"
            note = f"{reason}; the vectors stay raw"
            warnings.warn(note, FitWarning, stacklevel=3)
            return fit_none(vectors, spec, seed, notes=(note,))
        rows = rows[rng.permutation(len(rows))]
        notes: tuple[str, ...] = ()
        training = Training({}, [])
        couplings = Couplings(d, min(TOP, d // 2), WIDTH, rounds=0)
        measured: dict[str, Json] = {}
        if len(rows) < FEWEST_TO_LEARN or d < 2:
            whitening = _whiten(rows)
            white = whitening.apply(rows)
            radial = fit_radial(white, _longest(white))
            reason = "the vectors have one dimension" if d < 2 else f"there are only {len(rows)} distinct vectors"
            notes += (f"{reason}: the flow is only whitening and a radial map, without learned couplings",)
        else:
            held = min(HELD_OUT_MOST, round(HELD_OUT_PART * len(rows)))
            whitening = _whiten(rows[held:])
            white = whitening.apply(rows[held : held + TRAINED_MOST])
            # The radial map is fitted to half of the held-out vectors, which the whitening has not seen. Vectors of
            # queries will be unseen too, and whitening makes the vectors that it was fitted to too short. The other
            # half of the held-out vectors measures the fit.
            tuning, unseen = np.array_split(whitening.apply(rows[:held]), 2)
            radial = fit_radial(tuning, max(_longest(white), _longest(tuning)))
            start, bent = (_bits(unseen, one, whitening.log_det) for one in (Radial(d), radial))
            if bent > start:
                radial = Radial(d, longest=radial.longest)
                bent = _bits(unseen, radial, whitening.log_det)
            if steps := int(spec.options.get("steps", MOST_STEPS)):
                from retriever.transforms.flow.training import train

                learned = replace(couplings, rounds=1)
                given = radial.forward(white), radial.forward(unseen)
                training = train(learned, *given, steps=steps, rng=rng, device=device, progress=progress)
                # The curve holds only the part of the likelihood that the couplings change. At step 0 the full value is
                # `bent`.
                first = training.curve[0][1]
                training.curve = [(step, bent + (bits - first)) for step, bits in training.curve]
                if training.best_step:
                    couplings = learned
            measured = {
                "trained_on": len(rows) - held,
                "held_out": len(unseen),
                "held_out_bits_at_start": start,
                "held_out_bits_after_radial": bent,
                "held_out_bits_at_best": min((bits for _, bits in training.curve), default=bent),
            }
        if whitening.empty:
            notes += (f"{whitening.empty} of {d} directions hold no variance and were not scaled up",)
        config: dict[str, Json] = {
            "strength": _strength(spec),
            "power": radial.power,
            "factor": radial.factor,
            "longest": radial.longest,
            "log_det_of_whitening": whitening.log_det,
            "top": couplings.top,
            "width": couplings.width,
            "rounds": couplings.rounds,
            **training.to_json(),
            **measured,
        }
        tensors = {"mean": whitening.mean, "matrix": whitening.matrix, "spectrum": whitening.spectrum}
        if couplings.rounds:
            tensors |= training.parameters
        return cls(State("flow", str(spec), d, d, n, seed, notes, config, tensors))

    @cached_property
    def _double(self) -> dict[str, Array]:
        return {name: tensor.astype(np.float64) for name, tensor in self.state.tensors.items()}

    def _numbers(self, rows: Array) -> Mapping[str, Array]:
        return self.state.tensors if rows.dtype == np.float32 else self._double

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

    def log_det(self, vectors: Array) -> NDArray[np.float64]:
        """Return log |det dz/du| of every row, in nats."""
        constant = self.constant_log_det + float(np.log(self.temper).sum())

        def score(rows: Array) -> Array:
            return self.radial.log_det(self._white(rows))

        return constant + by_chunks(score, vectors, self.dimension_in, np.float64, np.float64)

    def log_likelihood(self, vectors: Array) -> NDArray[np.float64]:
        """Return the log-density of every row at strength 1, in nats: log N(z; 0, I) + log |det dz/du|."""
        constant = self.constant_log_det - 0.5 * self.dimension_out * math.log(2 * math.pi)

        def score(rows: Array) -> Array:
            white = self._white(rows)
            z = self.couplings.forward(self._double, self.radial.forward(white))
            return np.asarray(self.radial.log_det(white) - 0.5 * np.einsum("ij,ij->i", z, z))

        return constant + by_chunks(score, vectors, self.dimension_in, np.float64, np.float64)

    def describe(self) -> dict[str, Json]:
        return super().describe() | {"parameters": sum(t.size for t in self.state.tensors.values())}

    def at_strength(self, spec: str) -> "Flow":
        """Return this flow with the strength of `spec`. The flow is not trained again."""
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


def _strength(spec: Spec) -> float:
    return float(spec.options.get("strength", STRENGTH))


def _whiten(rows: Array) -> _Whitening:
    found = moments(rows)
    values, axes = principal_axes(found.covariance)
    average = float(values.mean())
    shrunk = (1 - found.shrinkage) * values / average + found.shrinkage
    empty = shrunk < NEGLIGIBLE**2
    # A direction without variance gets the mean variance, so that it counts as much for a query as other directions.
    spectrum = np.where(empty, 1.0, shrunk)
    matrix = (axes * (spectrum * average) ** -0.5).astype(np.float32)
    log_det = float(np.linalg.slogdet(matrix.astype(np.float64))[1])
    return _Whitening(found.mean.astype(np.float32), matrix, spectrum.astype(np.float32), log_det, int(empty.sum()))


def _longest(z: Array) -> float:
    return float(np.linalg.norm(z, axis=1).max())


def _bits(z: Array, radial: Radial, log_det: float) -> float:
    """Return the negative log-likelihood of whitened rows under a radial map, in bits per dimension."""
    d = z.shape[1]
    wide = z.astype(np.float64)
    bent = radial.forward(wide)
    nats = float((radial.log_det(wide) - 0.5 * (bent**2).sum(axis=1)).mean()) + log_det
    return float((0.5 * d * math.log(2 * math.pi) - nats) / (d * math.log(2)))
