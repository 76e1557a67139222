"""Compare maps after whitening by likelihood and by similarity. This is the study behind `flow`.

    python -m benchmarks flow --data DIR --encoder DIR --pooling first-last

The sentences of each set are divided into three parts. On 80 % of them, the shrunk whitening is fitted and every
variant is trained by maximum likelihood. On 10 %, the radial map is fitted and the end of the training is determined.
On the last 10 %, the bits per dimension are measured (lower is better). Spearman's correlation is over the scored pairs
of the set. Their sentences are in all three parts, as in `retriever bench sts --fit target`. Nothing is ever fitted on
a score.

Every variant starts as the identity in the principal axes, so all can be tempered in the same way: the movement of a
vector is multiplied by SHARE, then every direction is scaled as by `flow:strength=0.75`. FLOW_STUDY.md has the results,
also those of maps that lost and are no longer in the code: affine and spline couplings, ranks and rotated axes.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table
from torch import Tensor, nn

from retriever.evaluate.data.sts_sets import DATASETS, read_sets
from retriever.evaluate.measures.correlation import pair_cosines, spearman
from retriever.evaluate.models.encoders import open_encoders
from retriever.evaluate.report.tables import show, show_notes, text_table
from retriever.evaluate.sts import PairScorer
from retriever.evaluate.vectors import VectorCache
from retriever.transforms import fit
from retriever.transforms.flow.flow import TOP, WIDTH
from retriever.transforms.flow.radial import Radial, fit_radial
from retriever.transforms.flow.training import BATCH, EVALUATE_EVERY, LEARNING_RATE, WEIGHT_DECAY
from retriever.transforms.isotropy import bits_per_dimension
from retriever.transforms.moments import distinct

STEPS = 300
PATIENCE = 4
STRENGTH = 0.75
SHARE = STRENGTH**4
HELD_OUT_PART = 0.1

Rows = NDArray[np.float32]


class Coupling(nn.Module):
    """One round of an additive coupling flow, which keeps volume and starts as the identity.

    A net of the first `top` directions moves the rest. Then a net of the rest moves the first `top` directions.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.top = min(TOP, dimension // 2)
        self.down, self.up = _net(self.top, dimension - self.top), _net(dimension - self.top, self.top)

    def forward(self, z: Tensor) -> Tensor:
        top, rest = z[:, : self.top], z[:, self.top :]
        rest = rest + self.down(top)
        return torch.cat([top + self.up(rest), rest], dim=1)


def _net(given: int, moved: int) -> nn.Sequential:
    first, last = nn.Linear(given, WIDTH), nn.Linear(WIDTH, moved)
    nn.init.normal_(first.weight, std=1 / math.sqrt(given))
    nn.init.normal_(first.bias, std=0.5)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(first, nn.Tanh(), last)


@dataclass(frozen=True)
class Variant:
    """A number of coupling rounds, with or without the radial map before them."""

    name: str
    rounds: int = 0
    radial: bool = True

    def chain(self, dimension: int) -> nn.Sequential:
        return nn.Sequential(*(Coupling(dimension) for _ in range(self.rounds)))


VARIANTS = (
    Variant("whitening alone", radial=False),
    Variant("whitening, radial"),
    Variant("additive, top/rest, rounds 1 (flow)", 1),
    Variant("additive, top/rest, rounds 2", 2),
    Variant("additive, top/rest, rounds 4", 4),
)


def loss(chain: nn.Sequential, z: Tensor) -> Tensor:
    """Return the part of the negative log-likelihood that the chain can change, in nats per row."""
    moved = chain(z)
    nats: Tensor = (moved * moved).sum(dim=1).mean() / 2
    return nats


def learn(chain: nn.Sequential, seen: Tensor, tuning: Tensor) -> None:
    """Fit a chain by maximum likelihood and keep the step with the lowest loss on `tuning`."""
    if not len(chain):
        return
    optimiser = torch.optim.AdamW(chain.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    best, best_step, kept = math.inf, 0, chain.state_dict()
    for step in range(STEPS + 1):
        if step % EVALUATE_EVERY == 0:
            with torch.no_grad():
                now = float(loss(chain, tuning))
            if now < best:
                best, best_step, kept = now, step, {name: t.clone() for name, t in chain.state_dict().items()}
            if step - best_step >= PATIENCE * EVALUATE_EVERY:
                break
        optimiser.zero_grad()
        loss(chain, seen[torch.randint(len(seen), (BATCH,))]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    chain.load_state_dict(kept)


def apply(chain: nn.Sequential, rows: Rows) -> Rows:
    with torch.no_grad():
        moved: Rows = chain(torch.from_numpy(rows)).numpy()
    return moved


@dataclass(frozen=True)
class Outcome:
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
        torch.manual_seed(seed)
        radial = bent if variant.radial else Radial(d)
        chain = variant.chain(d)
        learn(chain, torch.from_numpy(radial.forward(seen)), torch.from_numpy(radial.forward(tuning)))
        z = apply(chain, radial.forward(unseen)).astype(np.float64)
        before = radial.forward(pairs)
        after = apply(chain, before)
        constant = whitening.log_det(unseen[:1])[0] - d / 2 * math.log(2 * math.pi)
        nats = constant + radial.log_det(unseen) - (z * z).sum(axis=1) / 2
        out[variant.name] = Outcome(
            parameters=sum(p.numel() for p in chain.parameters()) + 2 * variant.radial,
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
        bits, full, tempered, seconds = (
            float(np.mean([getattr(outcome, value) for outcome in outcomes]))
            for value in ("bits", "full", "tempered", "seconds")
        )
        parameters = f"{outcomes[0].parameters:,}"
        table.add_row(name, parameters, f"{bits:.3f}", f"{full:.1f}", f"{tempered:.1f}", f"{seconds:.1f}")
    return table


def run(data: Path, encoder: str, pooling: str, sets: Sequence[str], seed: int, cache: Path | None) -> None:
    """Fit every variant to the sentences of each set and print its figures."""
    torch.set_num_threads(1)
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
