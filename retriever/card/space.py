"""Isotropy of a collection's vectors, before and after the transform."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexes.folder.collection import Collection
from retriever.transforms import Transform, isotropy

FEWEST = 10
"""Minimum number of vectors to measure isotropy."""
BINS = 200
SIGNIFICANT = 6


@dataclass(frozen=True)
class Isotropy:
    """Measures of isotropy. A measure is None if it is undefined. `retriever.transforms.isotropy` has the formulas."""

    dimension: int
    mean_cosine: float | None
    isoscore: float | None
    participation_ratio: float | None
    uniformity: float | None
    partition_isotropy: float | None
    cosines: tuple[float, ...]
    """A histogram: the share of all pairs whose cosine is in each of BINS equal intervals from -1 to 1."""
    spectrum: tuple[float, ...]
    """The singular values divided by the largest one, in descending order."""


@dataclass(frozen=True)
class IsotropyReport:
    """The isotropy of a sample of vectors before and after the transform."""

    sample: int
    before: Isotropy
    after: Isotropy


def isotropy_report(collection: Collection, transform: Transform) -> IsotropyReport | None:
    """Measure the isotropy of a seeded sample of the vectors in use. Return None if there are fewer than FEWEST."""
    store = collection.store
    numbers = store.used_vectors()
    if len(numbers) > isotropy.SAMPLE:
        numbers = np.sort(np.random.default_rng(0).choice(numbers, isotropy.SAMPLE, replace=False))
    if len(numbers) < FEWEST:
        return None
    raw = store.vectors(numbers.tolist(), collection.dimension, checked=True)
    before = measured(raw)
    return IsotropyReport(len(raw), before, before if transform.family == "none" else measured(transform.apply(raw)))


def measured(rows: NDArray[np.float32]) -> Isotropy:
    values = isotropy.singular_values(rows)[: min(rows.shape)]
    unit = isotropy.unit_rows(rows)
    cosines = np.clip((unit @ unit.T)[np.triu_indices(len(unit), k=1)], -1, 1)
    counts, _ = np.histogram(cosines, BINS, (-1, 1))
    return Isotropy(
        dimension=rows.shape[1],
        mean_cosine=_finite(isotropy.mean_cosine(rows)),
        isoscore=_finite(isotropy.isoscore(rows)),
        participation_ratio=_finite(isotropy.participation_ratio(rows)),
        uniformity=_finite(isotropy.uniformity(rows)),
        partition_isotropy=_finite(isotropy.partition_isotropy(rows)),
        cosines=tuple(_rounded(count / len(cosines)) for count in counts),
        spectrum=tuple(_rounded(value / max(values[0], 1e-300)) for value in values),
    )


def _finite(value: float) -> float | None:
    return _rounded(value) if math.isfinite(value) else None


def _rounded(value: float) -> float:
    return float(f"{value:.{SIGNIFICANT}g}")
