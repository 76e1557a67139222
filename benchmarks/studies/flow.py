"""Compare maps after whitening by likelihood and by similarity. This is the study behind `flow`.

    python -m benchmarks flow --data DIR --encoder DIR --pooling first-last

The sentences of each set are divided into three parts. On 80 % of them, the shrunk whitening is fitted and every
variant is trained by maximum likelihood. On 10 %, the radial map is fitted and the end of the training is determined.
On the last 10 %, the bits per dimension are measured (lower is better). Spearman's correlation is over the scored pairs
of the set. Their sentences are in all three parts, as in `retriever bench sts --fit target`. Nothing is ever fitted on
a score.

Every variant starts as the identity in the principal axes, so all can be tempered in the same way: the movement of a
vector is multiplied by SHARE, then every direction is scaled as by `flow:strength=0.75`. FLOW_STUDY.md has the results,
including those of rejected maps: affine and spline couplings, ranks and rotated axes.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from retriever.evaluate.data.sts_sets import DATASETS, read_sets
from retriever.evaluate.measures.similarity import pair_cosines, spearman
from retriever.evaluate.models.encoders import VectorCache, open_encoders
from retriever.evaluate.report.tables import show, show_notes, text_table
from retriever.evaluate.sts import PairScorer
from retriever.transforms import fit
from retriever.transforms.flow.couplings import Couplings
from retriever.transforms.flow.flow import TOP, WIDTH
from retriever.transforms.flow.radial import Radial, fit_radial
from retriever.transforms.flow.training import train
from retriever.transforms.isotropy import bits_per_dimension
from retriever.transforms.moments import distinct

STEPS = 300
STRENGTH = 0.75
SHARE = STRENGTH**4
HELD_OUT_PART = 0.1

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Variant:
    """A number of rounds of the couplings of `flow`, with or without the radial map before them."""

    name: str
    rounds: int = 0
    radial: bool = True

    def couplings(self, dimension: int) -> Couplings:
        return Couplings(dimension, min(TOP, dimension // 2), WIDTH, self.rounds)


VARIANTS = (
    Variant("whitening alone", radial=False),
    Variant("whitening, radial"),
    Variant("additive, top/rest, rounds 1 (flow)", 1),
    Variant("additive, top/rest, rounds 2", 2),
    Variant("additive, top/rest, rounds 4", 4),
)


class Outcome(NamedTuple):
    parameters: int
    bits: float
    full: float
    tempered: float
    seconds: float


def study(vectors: Rows, scorer: PairScorer, scored: Rows, seed: int) -> dict[str, Outcome]:
    """Fit every variant to the vectors of a set's sentences, and score it on the vectors of its pairs."""
    rows = distinct(vectors)
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    held = round(HELD_OUT_PART * len(rows))
    whitening = fit("whiten", rows[2 * held :])
    tuning, unseen, seen, pairs = map(whitening.apply, (rows[:held], rows[held : 2 * held], rows[2 * held :], scored))
    d = rows.shape[1]
    widths = np.linalg.norm(whitening.state.tensors["matrix"].astype(np.float64), axis=0) ** -2
    spectrum = widths / widths.mean()
    temper = np.sqrt(spectrum / (STRENGTH * spectrum + 1 - STRENGTH))
    bent = fit_radial(tuning, math.inf)

    def agreement(moved: Rows) -> float:
        return spearman(pair_cosines(moved, scorer.first, scorer.second), scorer.gold)

    out = {}
    for variant in VARIANTS:
        started = time.perf_counter()
        radial = bent if variant.radial else Radial(d)
        couplings = variant.couplings(d)
        learned: dict[str, Rows] = {}
        if variant.rounds:
            given, rng = (radial.forward(seen), radial.forward(tuning)), np.random.default_rng(seed)
            learned = train(couplings, *given, steps=STEPS, rng=rng).parameters
        z = couplings.forward(learned, radial.forward(unseen)).astype(np.float64)
        before = radial.forward(pairs)
        after = couplings.forward(learned, before)
        constant = whitening.log_det(unseen[:1])[0] - d / 2 * math.log(2 * math.pi)
        nats = constant + radial.log_det(unseen) - (z * z).sum(axis=1) / 2
        out[variant.name] = Outcome(
            parameters=sum(own.size for own in learned.values()) + 2 * variant.radial,
            bits=bits_per_dimension(nats, d),
            full=agreement(after),
            tempered=agreement((before + SHARE * (after - before)) * temper),
            seconds=time.perf_counter() - started,
        )
    return out


def table_of(found: dict[str, dict[str, Outcome]], title: str) -> Table:
    """Return a table with one line for each variant, averaged over the sets."""
    heads = ["variant", "parameters", "bits/dim", "full strength", "tempered", "seconds per fit"]
    table = text_table(title, heads)
    for name in next(iter(found.values())):
        outcomes = [of_set[name] for of_set in found.values()]
        parameters, bits, full, tempered, seconds = np.mean(outcomes, axis=0)
        table.add_row(name, f"{parameters:,.0f}", f"{bits:.3f}", f"{full:.1f}", f"{tempered:.1f}", f"{seconds:.1f}")
    return table


def run(data: Path, encoder: str, pooling: str, sets: Sequence[str], seed: int, cache: Path | None) -> None:
    """Fit every variant to the sentences of each set and print its figures."""
    (opened,) = open_encoders([encoder], [pooling])
    reading = read_sets(data, sets or list(DATASETS))
    vectors = VectorCache(cache)
    found = {}
    for one in reading.sets:
        scorer = PairScorer(one.evaluated, by_subset=False)
        raw, scored = (vectors.vectors(opened, texts) for texts in (one.sentences(), scorer.texts))
        found[one.name] = study(raw, scorer, scored, seed)
        show(table_of({one.name: found[one.name]}, f"{one.name}: {len(raw):,} sentences"))
    if len(found) > 1:
        show(table_of(found, f"{opened.label}, {opened.pooling}, seed {seed}: average of {', '.join(found)}"))
    show_notes(reading.problems)
