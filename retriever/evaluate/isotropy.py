"""Measure how evenly vectors fill their space, before and after a transform.

    retriever bench isotropy --data DIR --encoder DIR

The sentences are those of STS-B, or the lines of a text file. Each transform is fitted on nine tenths of them. The
other tenth gives the held-out bits per dimension, which reveal overfitting. Alignment is measured on the pairs of STS-B
with a human score of 4 or more. All other measures use all sentences.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retriever.errors import Misuse
from retriever.evaluate.data.sts_sets import Pair, read_sets
from retriever.evaluate.runs import Experiment, Findings, Measured, Subject, Vectors, digest, measure_all
from retriever.transforms import Transform
from retriever.transforms import isotropy as measures
from retriever.transforms.isotropy import Floats, unit_rows

BENCH = "isotropy"
DATASET = "stsb"
ALIKE = 4.0
"""Pairs with at least this gold score count as having the same meaning."""
HELD_OUT = 0.1
MOST_TEXTS = 20_000
FEWEST_TEXTS = 20
HISTOGRAM_PAIRS = 200_000
HISTOGRAM_BINS = 160
QUANTILES = 99
DIMENSIONS_SHOWN = 3


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
    cosines = np.concatenate(
        [
            np.einsum("ij,ij->i", unit[a], unit[b])
            for a, b in zip(np.array_split(first[different], 50), np.array_split(second[different], 50), strict=True)
        ]
    )
    counts, _ = np.histogram(np.clip(cosines, -1, 1), bins=HISTOGRAM_BINS, range=(-1, 1))
    return {
        "cosine_density": [round(float(c), 6) for c in counts / counts.sum() * HISTOGRAM_BINS / 2],
        "spectrum": [float(f"{s:.5g}") for s in spectrum / max(spectrum[0], 1e-300)],
        "quantiles": _least_gaussian(some),
    }


def _least_gaussian(rows: Vectors) -> list[list[float]]:
    """Return evenly spaced quantiles of the dimensions with the highest absolute kurtosis.

    Each dimension is scaled to mean 0 and deviation 1.
    """
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
        lines = path.read_bytes().decode("utf-8").split("\n")
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise Misuse(f"{path} is not UTF-8 (byte {error.start}); convert it first.") from error
    return list(dict.fromkeys(line.strip() for line in lines if line.strip()))


def run(experiment: Experiment, data: Path | None, *, texts: Path | None = None, sample: int = MOST_TEXTS) -> Findings:
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
