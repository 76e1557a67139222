"""`bert-flow`: BERT-flow (Li et al. 2020), an invertible map from sentence vectors to a standard Gaussian.

`glow` holds the architecture and `training` the training. This module holds the fitted transform, and
checks whether a fit is usable. If it is not, the vectors are whitened instead, and the notes give the reason.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from retriever.errors import FitWarning
from retriever.transforms.affine import fit_none, fit_whiten
from retriever.transforms.base import Json, State, StepProgress, Transform
from retriever.transforms.bert_flow.glow import LOG_SCALE_FACTOR, Glow, GlowWeights
from retriever.transforms.moments import Array, distinct
from retriever.transforms.spec import Option, Spec

# Training makes one pass over the vectors, as published (269 steps on STS-B), and at most this many steps. That takes
# about 4 seconds at 384 dimensions on one core. With longer training the held-out likelihood still rises, but retrieval
# gets worse: Cranfield with MiniLM has nDCG@10 33.0 after one pass over 1,787 passages, and 25.5 after 300 steps.
MOST_STEPS = 600
# With 100 and 200 MiniLM vectors, the held-out likelihood fell from the first step on. With 400 and more, it rose.
FEWEST_VECTORS = 200
# Fewer vectors do not describe the space of queries: if they define the whitening, every query is far from every text.
FEWEST_TO_WHITEN = 50
# A row of a Gaussian has |z| near sqrt(d). If a row is this many times longer, cosines are meaningless.
EXPLODED = 100.0


class BertFlow(Transform, families=("bert-flow",)):
    """z = f^-1(u) for the trained flow f."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        sizes = {name: state.config[name] for name in ("levels", "depth", "width")}
        if state.config["architecture"] != "bert-flow":
            raise ValueError(f"unknown architecture {state.config['architecture']!r}")
        self.glow = Glow(state.dimension_in, **sizes)  # type: ignore[arg-type]
        shapes = {name: tensor.shape for name, tensor in state.tensors.items()}
        if shapes != self.glow.shapes() or state.dimension_out != state.dimension_in:
            raise ValueError(f"the tensors are not those of a flow with {self.glow}")
        scales = [tensor for name, tensor in state.tensors.items() if name.endswith("actnorm.log_scale")]
        self.constant_log_det = LOG_SCALE_FACTOR * sum(float(tensor.sum(dtype=np.float64)) for tensor in scales)

    @classmethod
    def fit(cls, vectors: Array, spec: Spec, seed: int, device: str, progress: StepProgress) -> Transform:
        """Train a flow. If no usable flow can be trained, whiten the vectors or leave them raw, and add a note."""
        n, d = vectors.shape
        glow, notes = _sizes(d, spec.options)
        if not glow.levels:
            return _whitened(vectors, spec, seed, f"a flow needs an even dimension, and the vectors have {d}")
        from retriever.transforms.bert_flow.training import BATCH, HELD_OUT_MOST, train

        steps = int(spec.options.get("steps", min(MOST_STEPS, -(-n // BATCH))))
        # Training uses at most steps * BATCH rows, so further rows are left out.
        chosen = vectors
        if n > steps * BATCH + HELD_OUT_MOST:
            rows = np.random.default_rng(seed).choice(n, steps * BATCH + HELD_OUT_MOST, replace=False)
            chosen = vectors[np.sort(rows)]
        chosen = distinct(chosen)
        if len(chosen) < FEWEST_VECTORS:
            reason = f"a flow needs at least {FEWEST_VECTORS} distinct vectors, and there are {len(chosen)}"
            return _whitened(vectors, spec, seed, reason)
        training = train(glow, chosen, steps=steps, seed=seed, device=device, progress=progress)
        if training.failure:
            return _whitened(vectors, spec, seed, training.failure)
        if constant := training.facts["constant_dimensions"]:
            notes += (f"{constant} of {d} dimensions are constant; the flow was trained with noise in their place",)
        config: dict[str, Json] = {
            "architecture": "bert-flow",
            "levels": glow.levels,
            "depth": glow.depth,
            "width": glow.width,
            "trained_on": training.facts["trained_on"],
            "held_out": training.facts["held_out"],
            "held_out_bits_at_start": training.curve[0][1],
            "held_out_bits_at_best": min(bits for _, bits in training.curve),
            **training.to_json(),
        }
        flow = cls(State("bert-flow", str(spec), d, d, n, seed, notes, config, training.parameters))
        longest = float(np.linalg.norm(flow.apply(chosen[: 4 * HELD_OUT_MOST]), axis=1).max())
        if not longest < EXPLODED * np.sqrt(d):
            return _whitened(vectors, spec, seed, f"the flow maps some of its own vectors to a length of {longest:g}")
        return flow

    @cached_property
    def _single(self) -> GlowWeights:
        return GlowWeights(self.glow, self.state.tensors, np.dtype(np.float32))

    @cached_property
    def _double(self) -> GlowWeights:
        return GlowWeights(self.glow, self.state.tensors, np.dtype(np.float64))

    def _forward(self, vectors: Array) -> Array:
        return (self._single if vectors.dtype == np.float32 else self._double).forward(vectors)

    def _backward(self, z: Array) -> Array:
        return self._double.backward(z)

    def describe(self) -> dict[str, Json]:
        return super().describe() | {"parameters": sum(t.size for t in self.state.tensors.values())}


def _sizes(dimension: int, options: Mapping[str, Option]) -> tuple[Glow, tuple[str, ...]]:
    """Return the sizes of the flow, and notes about them.

    The flow has at most as many levels as the dimension can be halved. An odd dimension gives 0 levels.
    """
    given = {name: int(options[name]) for name in ("levels", "depth", "width") if name in options}
    wanted = Glow(dimension, **given)
    halvings = (dimension & -dimension).bit_length() - 1
    if wanted.levels <= halvings:
        return wanted, ()
    can = f"{dimension} dimensions can be halved {halvings} times"
    note = f"{can}, so the flow has {halvings} levels, not {wanted.levels}"
    return replace(wanted, levels=halvings), (note,)


def _whitened(vectors: Array, spec: Spec, seed: int, reason: str) -> Transform:
    enough = len(vectors) >= FEWEST_TO_WHITEN
    note = f"{reason}; {'whitening is used instead' if enough else 'the vectors stay raw'}"
    warnings.warn(note, FitWarning, stacklevel=4)
    return (fit_whiten if enough else fit_none)(vectors, spec, seed, notes=(note,))
