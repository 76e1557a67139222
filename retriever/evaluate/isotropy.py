"""Measure how evenly vectors fill their space, before and after a transform.

    retriever bench isotropy --data DIR --encoder DIR

The sentences are those of STS-B, or the lines of a text file. Each transform is fitted on nine tenths of them. The
other tenth gives the held-out bits per dimension, which reveal overfitting. Alignment is measured on the pairs of STS-B
with a human score of 4 or more. All other measures use all sentences.

Li et al. (2020) explain BERT's misleading cosine by its words: frequent ones are dense near the origin, rare ones
sparse and far from it. For the word embeddings of any BERT we measure the mean l2 norm and the mean l2 distance to the
3 nearest neighbours, by frequency rank. The ranks come from a table `bert_vocab/vocab_wordfreq.tsv` (id, token,
is_word, wordfreq_rank, zipf). A vocabulary can be measured if it has most of the same words.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import file_sha256
from retriever.errors import BadSource, Misuse
from retriever.evaluate.data.sts_sets import Pair, read_sets
from retriever.evaluate.data.tsv import read_lines
from retriever.evaluate.models.encoders import TextEncoder
from retriever.evaluate.results import Row, Run
from retriever.evaluate.runs import Experiment, Findings, Measured, Subject, Vectors, digest, measure_all
from retriever.transforms import Transform
from retriever.transforms import isotropy as measures
from retriever.transforms.isotropy import Floats, unit_rows

BENCH = "isotropy"
DATASET = "stsb"
ALIKE = 4.0
"""Pairs with at least this gold score count as having the same meaning."""
HELD_OUT = 0.1
FEWEST_TEXTS = 20
HISTOGRAM_PAIRS = 200_000
HISTOGRAM_BINS = 160
QUANTILES = 99
DIMENSIONS_SHOWN = 3
WORDS = "vocabulary"
TABLE = "bert_vocab/vocab_wordfreq.tsv"
TABLE_COLUMNS = 5
RANK_BINS = ((0, 100), (100, 500), (500, 5_000), (5_000, 10_000))
NEIGHBOURS = 3
CHUNK = 512
FEWEST_KNOWN = 0.8
"""The share of the table's 10,000 most frequent words that a vocabulary must have."""


class SpaceMeasurer:
    def __init__(self, texts: Sequence[str], alike: Sequence[Pair], seed: int = 0) -> None:
        self.texts = list(texts)
        place = {text: number for number, text in enumerate(self.texts)}
        known = [pair for pair in alike if pair.first in place and pair.second in place and pair.first != pair.second]
        self.first = [place[pair.first] for pair in known]
        self.second = [place[pair.second] for pair in known]
        order = np.random.default_rng(seed).permutation(len(self.texts))
        self.held_out = np.sort(order[: max(1, round(HELD_OUT * len(order)))])
        self.fitted = np.sort(order[len(self.held_out) :])

    @property
    def fit_texts(self) -> list[str]:
        return [self.texts[n] for n in self.fitted]

    def __call__(self, transform: Transform, vectors: Vectors) -> Measured:
        rows = transform.apply(vectors)
        some = measures.sample_rows(rows)
        shape = measures.gaussianity(some)
        spectrum = measures.singular_values(rows)
        values = {
            "mean_cosine": measures.mean_cosine(rows),
            "uniformity": measures.uniformity(some),
            "partition_isotropy": measures.partition_isotropy(rows),
            "first_direction_share": float(spectrum[0] ** 2 / max(float((spectrum**2).sum()), 1e-300)),
            "participation_ratio": measures.participation_ratio(rows),
            "isoscore": measures.isoscore(rows),
            "mean_abs_skewness": shape.skewness,
            "mean_abs_excess_kurtosis": shape.kurtosis,
            "share_of_dimensions_not_gaussian": shape.rejected,
        }
        if self.first:
            values["alignment"] = measures.alignment(rows[self.first], rows[self.second])
        if transform.dimension_out == transform.dimension_in:  # the density of a projection cannot be compared
            held_out = transform.log_likelihood(vectors[self.held_out])
            values["held_out_bits_per_dimension"] = measures.bits_per_dimension(held_out, transform.dimension_in)
        return Measured(values, _details(rows, some, spectrum))


def _details(rows: Vectors, some: Vectors, spectrum: Floats) -> dict[str, Any]:
    """Return the data of the plots: cosines of random pairs, the spectrum, and the least Gaussian dimensions."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(len(rows), size=(2, HISTOGRAM_PAIRS))
    different = first != second
    unit = unit_rows(rows)
    parts = zip(np.array_split(first[different], 50), np.array_split(second[different], 50), strict=True)
    cosines = np.concatenate([np.einsum("ij,ij->i", unit[a], unit[b]) for a, b in parts])
    counts, _ = np.histogram(np.clip(cosines, -1, 1), bins=HISTOGRAM_BINS, range=(-1, 1))
    return {
        "cosine_density": [round(float(c), 6) for c in counts / counts.sum() * HISTOGRAM_BINS / 2],
        "spectrum": [float(f"{s:.5g}") for s in spectrum / max(spectrum[0], 1e-300)],
        "quantiles": _least_gaussian(some),
    }


def _least_gaussian(rows: Vectors) -> list[list[float]]:
    """Return quantiles of the dimensions with the highest absolute kurtosis, scaled to mean 0 and deviation 1."""
    from scipy.stats import kurtosis

    wide = rows.astype(np.float64)
    deviation = wide.std(axis=0)
    weights = np.where(deviation > 0, np.abs(kurtosis(wide)), -1.0)
    worst = np.argsort(-np.nan_to_num(weights, nan=-1.0), kind="stable")[:DIMENSIONS_SHOWN]
    scaled = (wide[:, worst] - wide[:, worst].mean(axis=0)) / np.maximum(deviation[worst], 1e-300)
    places = (np.arange(QUANTILES) + 1) / (QUANTILES + 1)
    return [[round(float(q), 4) for q in column] for column in np.quantile(scaled, places, axis=0).T]


def read_texts(path: Path) -> list[str]:
    """Return the different non-empty lines of a text file."""
    try:
        return list(dict.fromkeys(read_lines(path)))
    except BadSource as error:
        raise Misuse(str(error)) from error


def run(experiment: Experiment, data: Path | None, texts: Path | None, sample: int) -> Findings:
    """Measure at most `sample` sentences of STS-B or of a text file."""
    problems: Sequence[str] = ()
    alike: list[Pair] = []
    if texts is not None:
        name, lines = texts.stem, read_texts(texts)
    elif data is not None:
        reading = read_sets(data, [DATASET], scored=False)
        found, problems = reading.sets[0], reading.problems
        name, lines = DATASET, found.sentences()
        alike = [pair for pair in found.pairs if pair.score >= ALIKE]
    else:
        raise Misuse("give a data folder with STS-B or a file of texts.")
    if len(lines) > sample:
        chosen = np.sort(np.random.default_rng(0).choice(len(lines), sample, replace=False))
        lines = [lines[n] for n in chosen]
    if len(lines) < FEWEST_TEXTS:
        raise Misuse(f"{texts or name} has {len(lines)} different sentences; at least {FEWEST_TEXTS} are needed.")
    measurer = SpaceMeasurer(lines, alike)
    paired = digest([text for pair in alike for text in (pair.first, pair.second)])
    subject = Subject(name, "all", lines, {"target": measurer.fit_texts}, paired, measurer)
    findings = measure_all(experiment, [subject])
    findings.problems += problems
    return findings


def measure_words(experiment: Experiment, data: Path) -> tuple[list[Row], list[str]]:
    """Return rows for each encoder of the experiment, and notes about encoders that cannot be measured."""
    path = next((base / TABLE for base in (data, data.parent) if (base / TABLE).is_file()), None)
    if path is None:
        return [], [f"{data / TABLE} does not exist: word embeddings are not measured by frequency"]
    ranks, problems = read_ranks(path)
    runs: list[Run] = []
    by_label = {encoder.label: encoder for encoder in experiment.encoders}
    for number, encoder in enumerate(by_label.values()):
        experiment.progress("word embeddings", number, len(by_label))
        inputs = {"encoder": encoder.encoder.identity.weights, "data": file_sha256(path)}
        line = encoder.label, "word", "none", "", 0
        own = {Run(BENCH, WORDS, f"rank {low}-{high}", *line): (low, high) for low, high in RANK_BINS}
        if not all(experiment.results.known(run, inputs) for run in own):
            found = ranked_embeddings(encoder, ranks)
            if isinstance(found, str):
                problems.append(f"{encoder.label}: {found}; its word embeddings are not measured by frequency")
                continue
            for run, bin_ in own.items():
                experiment.results.add(run, bin_figures(*found, bin_), {"inputs": inputs})
        runs += own
    return experiment.results.rows(runs), problems


def read_ranks(path: Path) -> tuple[dict[str, int], list[str]]:
    """Return the frequency rank of every token that has one, counted from 1, and problems."""
    ranks, problems = {}, []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n")[1:], start=2):
        cells = line.split("\t")
        if len(cells) == TABLE_COLUMNS and (not cells[3] or cells[3].isdigit()):
            if cells[3]:
                ranks[cells[1]] = int(cells[3])
        elif line:
            why = f"it does not have {TABLE_COLUMNS} columns or its rank is not a whole number"
            problems.append(f"{path}:{number}: the row is skipped, because {why}")
    return ranks, problems


def ranked_embeddings(
    encoder: TextEncoder, ranks: dict[str, int]
) -> tuple[NDArray[np.float32], NDArray[np.int64]] | str:
    """Return the embeddings of the ranked words and their ranks, or a note why there are none."""
    vocabulary = encoder.encoder.tokenizer.get_vocab()
    frequent = {token for token, rank in ranks.items() if rank <= RANK_BINS[-1][1]}
    known = len(frequent & vocabulary.keys())
    if not frequent or known < FEWEST_KNOWN * len(frequent):
        return f"its vocabulary is not BERT's (it holds {known:,} of the {len(frequent):,} most frequent words)"
    matrix = read_embeddings(encoder.encoder.files.folder, len(vocabulary))
    if matrix is None:
        return "its weights have no word_embeddings table that numpy can read"
    tokens = [(ids, ranks[token]) for token, ids in vocabulary.items() if token in ranks and ids < len(matrix)]
    return matrix[[ids for ids, _ in tokens]].astype(np.float32), np.array([rank for _, rank in tokens], np.int64)


def read_embeddings(folder: Path, least_rows: int) -> NDArray[np.float32] | None:
    """Return the table of word embeddings from the model's weights, or None if it is unreadable or too small."""
    from safetensors import safe_open

    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - safe_open does not return a mapping
                if name.endswith("word_embeddings.weight"):
                    try:
                        table: NDArray[np.float32] = tensors.get_tensor(name)
                    except TypeError:  # bfloat16
                        return None
                    return table if len(table) >= least_rows else None
    return None


def bin_figures(vectors: NDArray[np.float32], ranks: NDArray[np.int64], bin_: Sequence[int]) -> dict[str, float]:
    """Return the mean norm of the words with ranks in `bin_`, and their mean distance to the nearest other words."""
    low, high = bin_
    inside = np.flatnonzero((ranks > low) & (ranks <= high))
    if not len(inside):
        return {}
    return {
        "mean_norm": float(np.linalg.norm(vectors[inside], axis=1).mean()),
        f"mean_{NEIGHBOURS}nn_distance": float(neighbour_distances(vectors, inside).mean()),
    }


def neighbour_distances(vectors: NDArray[np.float32], which: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each of these rows, return the mean l2 distance to its nearest other rows."""
    squares = np.einsum("ij,ij->i", vectors, vectors)
    out = np.empty(len(which))
    for start in range(0, len(which), CHUNK):
        rows = which[start : start + CHUNK]
        distances = squares[rows, None] + squares[None, :] - 2 * vectors[rows] @ vectors.T
        distances[np.arange(len(rows)), rows] = np.inf
        nearest = np.partition(distances, NEIGHBOURS - 1, axis=1)[:, :NEIGHBOURS]
        out[start : start + CHUNK] = np.sqrt(np.maximum(nearest, 0)).mean(axis=1)
    return out
