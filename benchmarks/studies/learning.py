"""Compare ways of learning a map for search from a corpus alone. Results: LEARNING_STUDY.md.

    python -m benchmarks learning --data DIR --encoder DIR --pooling word

All relevant documents and random others of a BEIR folder are used. A crop, which is a run of words cut out of a
document, and the rest of the document are a pair. No variant uses queries or judgements.

- The candidates of `auto` are fitted to the vectors of documents and short texts, as for a collection.
- The closed form whitens by the covariance T of documents and crops, plus `shrinkage` times the mean eigenvalue. X is
  the cross-covariance of pairs. The directions of T^-1/2 X T^-1/2 are weighted by a power of their eigenvalues, so
  that directions which a crop shares with the rest of its document count more.
- The aligned flow starts from the best closed form. Its couplings are trained by the likelihood of documents and crops,
  plus `alignment` times the distance (one minus the cosine) of pairs. `contrast` replaces the distance by InfoNCE.
- The linear map starts from the best closed form too, and is trained by InfoNCE alone.
- A token flow maps the rows of a word table. It is fitted to rows drawn as often as the corpus uses the words, plus
  Gaussian noise. With `lengths kept`, it keeps the length of a row, which is the weight of its word in the mean.

Every variant is measured by nDCG@10 on the judged queries, and by the agreement with BM25 that `auto` chooses by.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.studies.parts import Figures, Map, Part, Rows, Vectors, encode_part, read_part, whitenings
from indexes.faiss.vectors import unit_rows
from retriever.encoder.encoder import Encoder
from retriever.encoder.static.learning import learn
from retriever.encoder.static.words import WordTable, word_table
from retriever.evaluate.data.beir import read_sets
from retriever.evaluate.models.encoders import VectorCache, open_encoders
from retriever.evaluate.report.tables import show, show_notes, text_table
from retriever.evaluate.results import summarise
from retriever.transforms import Flow, fit
from retriever.transforms.agreement import fit_candidate
from retriever.transforms.choice import STRENGTHS
from retriever.transforms.flow.couplings import Couplings
from retriever.transforms.flow.flow import TOP, WIDTH
from retriever.transforms.flow.radial import fit_radial
from retriever.transforms.flow.training import LEARNING_RATE, WEIGHT_DECAY, forward, initial
from retriever.transforms.moments import moments, principal_axes
from retriever.transforms.training import one_thread, train_until_best

SHRINKAGES = (0.1, 0.3, 1.0)
POWERS = (0.0, 0.5, 1.0)
ALIGNMENTS = (0.0, 0.1, 1.0, 10.0)
SMALLEST_WEIGHT = 1e-3
TEMPERATURE = 0.05
BATCH = 256
STEPS, EVALUATE_EVERY = 150, 25
HELD_OUT_PART = 0.1
NOISES, DRAWN = (0.0, 0.3, 1.0), 8000
TOKEN_FLOWS = ("flow:strength=0.75", "flow:strength=1")
LINEAR_STEPS, LINEAR_RATE = 100, 5e-4


@dataclass(frozen=True)
class ClosedForm:
    """z = (u - mean) @ matrix, whose directions are then weighted. The most shared directions come first."""

    mean: Rows
    matrix: Rows
    weights: Rows

    def white(self, rows: Rows) -> Rows:
        return np.asarray((rows - self.mean) @ self.matrix, np.float32)

    def __call__(self, rows: Rows) -> Rows:
        return self.white(rows) * self.weights


def fit_closed_forms(vectors: Vectors) -> dict[str, ClosedForm]:
    """Fit the closed form with every shrinkage, in mean eigenvalues of T, and every power. Power 0 is whitening."""
    found = moments(np.concatenate([vectors.documents, vectors.crops]))
    values, axes = principal_axes(found.covariance)
    crops, rests = (rows - rows.mean(axis=0, dtype=np.float64) for rows in (vectors.crops, vectors.rests))
    cross = crops.T @ rests / len(crops)
    out = {}
    for shrinkage in SHRINKAGES:
        whitening = (axes * (values + shrinkage * values.mean()) ** -0.5) @ axes.T
        shared, directions = principal_axes(whitening @ (cross + cross.T) @ whitening / 2)
        matrix = (whitening @ directions).astype(np.float32)
        for power in POWERS:
            weights = np.maximum(shared / shared[0], SMALLEST_WEIGHT) ** power
            name = f"closed form, shrinkage {shrinkage:g}, power {power:g}"
            out[name] = ClosedForm(found.mean.astype(np.float32), matrix, weights.astype(np.float32))
    return out


def _contrast(a: Tensor, b: Tensor) -> Tensor:
    """Return the InfoNCE loss of pairs of unit rows, averaged over both directions."""
    cosines, own = a @ b.T / TEMPERATURE, torch.arange(len(a))
    entropy = torch.nn.functional.cross_entropy
    return (entropy(cosines, own) + entropy(cosines.T, own)) / 2


def _distance(a: Tensor, b: Tensor) -> Tensor:
    return 1 - (a * b).sum(dim=1).mean()


@one_thread()
def fit_aligned_flow(
    vectors: Vectors, start: ClosedForm, alignment: float, seed: int, nearness: Callable[[Tensor, Tensor], Tensor]
) -> Map:
    """Train the couplings of `flow` by likelihood, in bits per dimension, plus `alignment` times `nearness`."""
    rng = np.random.default_rng(seed)
    rows = start.white(np.concatenate([vectors.documents, vectors.crops]))
    rows = rows[rng.permutation(len(rows))]
    pairs = rng.permutation(len(vectors.crops))
    held_rows, held_pairs = round(HELD_OUT_PART * len(rows)), round(HELD_OUT_PART * len(pairs))
    radial = fit_radial(rows[:held_rows], float(np.linalg.norm(rows, axis=1).max()))
    each = rows, start.white(vectors.crops[pairs]), start.white(vectors.rests[pairs])
    texts, crops, rests = (torch.from_numpy(radial.forward(own)) for own in each)
    d = rows.shape[1]
    couplings = Couplings(d, min(TOP, d // 2), WIDTH)
    parameters = {name: torch.from_numpy(own).requires_grad_() for name, own in initial(couplings, rng).items()}
    optimiser = torch.optim.AdamW(parameters.values(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    weights = torch.from_numpy(start.weights)

    def loss(text: Tensor, crop: Tensor, rest: Tensor) -> Tensor:
        z = forward(couplings, parameters, text)
        bits = (z * z).sum(dim=1).mean() / (2 * math.log(2) * d)
        mapped = (forward(couplings, parameters, each) * weights for each in (crop, rest))
        a, b = (torch.nn.functional.normalize(rows, dim=1) for rows in mapped)
        total: Tensor = bits + alignment * nearness(a, b)
        return total

    def measure() -> float:
        with torch.no_grad():
            return float(loss(texts[:held_rows], crops[:held_pairs], rests[:held_pairs]))

    def step() -> bool:
        some = torch.from_numpy(rng.integers(held_rows, len(texts), BATCH))
        pair = torch.from_numpy(rng.integers(held_pairs, len(crops), BATCH))
        now = loss(texts[some], crops[pair], rests[pair])
        optimiser.zero_grad()
        now.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return True

    lengths = {"steps": STEPS, "evaluate_every": EVALUATE_EVERY}
    training = train_until_best(step, measure, lambda: parameters, **lengths, progress=None)
    return lambda raw: couplings.forward(training.parameters, radial.forward(start.white(raw))) * start.weights


@one_thread()
def fit_linear_map(vectors: Vectors, start: ClosedForm, seed: int) -> Map:
    """Train a linear map by InfoNCE between crops and the rest of their documents."""
    rng = np.random.default_rng(seed)
    crops, rests = (torch.from_numpy(start(rows)) for rows in (vectors.crops, vectors.rests))
    matrix = torch.eye(crops.shape[1], requires_grad=True)
    optimiser = torch.optim.Adam([matrix], lr=LINEAR_RATE)
    for _ in range(LINEAR_STEPS):
        some = torch.from_numpy(rng.choice(len(crops), min(BATCH, len(crops)), replace=False))
        a, b = (torch.nn.functional.normalize(rows[some] @ matrix, dim=1) for rows in (crops, rests))
        optimiser.zero_grad()
        _contrast(a, b).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    learned: Rows = matrix.detach().numpy()
    return lambda raw: np.asarray(start(raw) @ learned)


def study(vectors: Vectors, seeds: int) -> dict[str, list[Figures]]:
    """Measure every variant. Variants that are trained have one entry per seed."""
    found: dict[str, list[Figures]] = {}
    sample = np.concatenate([vectors.documents, vectors.short])
    for spec in whitenings(sample.shape[1]):
        if transform := fit_candidate(spec, sample, 0):
            found[spec] = [vectors.measure(transform.apply)]
    flows = [flow for seed in range(seeds) if isinstance(flow := fit("flow", sample, seed=seed), Flow)]
    for spec in STRENGTHS:
        found[spec] = [vectors.measure(flow.at_strength(spec).apply) for flow in flows]
    closed = fit_closed_forms(vectors)
    found |= {name: [vectors.measure(one)] for name, one in closed.items()}
    start = closed[max(closed, key=lambda name: found[name][0].agreement)]
    losses = {f"alignment {weight:g}": (weight, _distance) for weight in ALIGNMENTS} | {"contrast 1": (1.0, _contrast)}
    for name, (weight, nearness) in losses.items():
        maps = [fit_aligned_flow(vectors, start, weight, seed, nearness) for seed in range(seeds)]
        found[f"aligned flow, {name}"] = [vectors.measure(one) for one in maps]
    found["linear map"] = [vectors.measure(fit_linear_map(vectors, start, seed)) for seed in range(seeds)]
    return found


def study_tables(part: Part, encoder: Encoder, seeds: int) -> dict[str, list[Figures]]:
    """Measure the word table of `--pooling learned`: before learning, after it, and mapped by a token flow instead."""
    table = word_table(part.documents, encoder)
    found = {"word table": [part.measure_encoder(table.encode)]}
    learned = [learn(table, part.documents, seed)[0] for seed in range(seeds)]
    found["word table, learned"] = [part.measure_encoder(one.encode) for one in learned]
    for noise in NOISES:
        flows = [_token_flow(table, noise, seed) for seed in range(seeds)]
        for spec in TOKEN_FLOWS:
            name = f"token {spec}, noise {noise:g}"
            used = table.rows.any(axis=1, keepdims=True)  # the row of unknown tokens stays zero
            rows = [flow.at_strength(spec).apply(table.rows) * used for flow in flows]
            found[name] = [part.measure_encoder(replace(table, rows=own).encode) for own in rows]
            rows = [unit_rows(own) * np.linalg.norm(table.rows, axis=1, keepdims=True) for own in rows]
            found[f"{name}, lengths kept"] = [part.measure_encoder(replace(table, rows=own).encode) for own in rows]
    return found


def _token_flow(table: WordTable, noise: float, seed: int) -> Flow:
    rng = np.random.default_rng(seed)
    drawn = table.rows[rng.choice(len(table.rows), DRAWN, p=table.counts / table.counts.sum())]
    flow = fit("flow", drawn + noise * rng.standard_normal(drawn.shape), seed=seed)
    assert isinstance(flow, Flow)
    return flow


def _show(found: dict[str, dict[str, list[Figures]]], title: str) -> None:
    table = text_table(title, ["variant", *(f"{name}: {figure}" for name in found for figure in Figures._fields)])
    for variant in next(iter(found.values())):
        own = [figures[variant] for figures in found.values() if variant in figures]
        table.add_row(variant, *(str(summarise([one[place] for one in each])) for each in own for place in range(2)))
    show(table)


def run(
    data: Path,
    encoder: str,
    poolings: Sequence[str],
    sets: Sequence[str],
    documents: int,
    pairs: int,
    seeds: int,
    cache: Path | None,
    **options: Any,
) -> None:
    """Print a table of every variant on every set for each pooling, and one for word tables."""
    reading = read_sets([data / name for name in sets] or [data])
    parts = {one.topics.dataset: read_part(one, documents, pairs) for one in reading.sets}
    store = VectorCache(cache)
    for opened in open_encoders([encoder], poolings, **options):
        encode = partial(store.vectors, opened)
        found = {name: study(encode_part(part, encode), seeds) for name, part in parts.items()}
        _show(found, f"{opened.label}, {opened.pooling}")
    _show({name: study_tables(part, opened.encoder, seeds) for name, part in parts.items()}, "word tables")
    show_notes(reading.problems)
