"""How the vectors of a collection fill their space, as the encoder gives them and through the transform."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.folder.collection import Collection
from retriever.transforms import Transform, isotropy

FEWEST = 10
"""Of fewer vectors than these, no measure of a space says anything."""
BINS = 200
SIGNIFICANT = 6


@dataclass(frozen=True)
class Shape:
    """The measures of one space; see `retriever.transforms.isotropy` for their formulas. None means no value."""

    dimension: int
    mean_cosine: float | None
    isoscore: float | None
    participation_ratio: float | None
    uniformity: float | None
    partition_isotropy: float | None
    cosines: tuple[float, ...]
    """The share of all pairs whose cosine is in each of BINS equal steps from -1 to 1."""
    spectrum: tuple[float, ...]
    """The singular values, largest first, as shares of the largest."""


@dataclass(frozen=True)
class Shapes:
    """The same vectors before and after the transform."""

    sample: int
    before: Shape
    after: Shape

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def shapes(collection: Collection, transform: Transform) -> Shapes | None:
    """Measured on a seeded choice of the stored vectors in use; None where there are too few."""
    store = collection.store
    numbers = store.used_vectors()
    if len(numbers) > isotropy.SAMPLE:
        numbers = np.sort(np.random.default_rng(0).choice(numbers, isotropy.SAMPLE, replace=False))
    if len(numbers) < FEWEST:
        return None
    raw = store.vectors(numbers.tolist(), collection.dimension, checked=True)
    before = shape(raw)
    return Shapes(len(raw), before, before if transform.family == "none" else shape(transform.apply(raw)))


def shape(rows: NDArray[np.float32]) -> Shape:
    """All measures of some vectors."""
    values = isotropy.singular_values(rows)[: min(rows.shape)]
    return Shape(
        dimension=rows.shape[1],
        mean_cosine=_known(isotropy.mean_cosine(rows)),
        isoscore=_known(isotropy.isoscore(rows)),
        participation_ratio=_known(isotropy.participation_ratio(rows)),
        uniformity=_known(isotropy.uniformity(rows)),
        partition_isotropy=_known(isotropy.partition_isotropy(rows)),
        cosines=tuple(_short(share) for share in _cosine_shares(rows)),
        spectrum=tuple(_short(value / max(values[0], 1e-300)) for value in values),
    )


def _cosine_shares(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    unit = isotropy.unit_rows(rows)
    cosines = np.clip((unit @ unit.T)[np.triu_indices(len(unit), k=1)], -1, 1)
    counts, _ = np.histogram(cosines, BINS, (-1, 1))
    return counts / len(cosines)


def _known(value: float) -> float | None:
    return _short(value) if math.isfinite(value) else None


def _short(value: float) -> float:
    return float(f"{value:.{SIGNIFICANT}g}")
