"""Compute 95 % intervals of figures and of paired gains, and test the gains.

All figures are times 100 except p. An area under ROC has DeLong's interval and test (DeLong, DeLong and Clarke-Pearson,
1988). A mean over questions has a percentile bootstrap interval and a sign-flip permutation test, both seeded.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]

RESAMPLES = 10_000
DRAWN_TOGETHER = 2_000_000
CONFIDENCE = 0.95


def placements(scores: Floats, positive: Labels) -> tuple[Floats, Floats]:
    """Return the placements of the positives and of the negatives.

    The placement of a positive is the share of negatives below it. The placement of a negative is the share of
    positives above it. Ties count half. The mean of either list is the area under ROC, i.e. the probability that a
    positive scores above a negative.
    """
    from scipy.stats import rankdata

    ranks = rankdata(scores)
    above, below = scores[positive], scores[~positive]
    of_positives = (ranks[positive] - rankdata(above)) / len(below)
    of_negatives = 1 - (ranks[~positive] - rankdata(below)) / len(above)
    return of_positives, of_negatives


def area_figures(scores: Floats, positive: Labels, raw: Floats | None = None) -> dict[str, float]:
    """Return the area under ROC with DeLong's interval, and its gain over the scores of the raw vectors if given."""
    own = placements(scores, positive)
    figures = _with_interval("auc", own, least=0.0)
    if raw is not None:
        base = placements(raw, positive)
        differences = own[0] - base[0], own[1] - base[1]
        figures |= _with_interval("auc_gain", differences, least=-1.0)
        figures["auc_p"] = _normal_p(float(differences[0].mean()), _error(differences))
    return figures


def _with_interval(name: str, parts: tuple[Floats, Floats], least: float) -> dict[str, float]:
    """Return the mean with its interval, clipped to the possible values."""
    from scipy.stats import norm

    mean, reach = float(parts[0].mean()), float(norm.ppf((1 + CONFIDENCE) / 2)) * _error(parts)
    return _points(name, mean, max(least, mean - reach), min(1.0, mean + reach))


def _error(parts: tuple[Floats, Floats]) -> float:
    """Return DeLong's standard error of an area, or of a difference of areas, from (differences of) placements."""
    return math.sqrt(sum(part.var(ddof=1) / len(part) if len(part) > 1 else 0.0 for part in parts))


def _normal_p(difference: float, error: float) -> float:
    from scipy.stats import norm

    return 2 * float(norm.sf(abs(difference) / error)) if error else float(difference == 0)


def mean_figures(name: str, values: Floats, raw: Floats | None = None) -> dict[str, float]:
    """Return the mean over questions with its bootstrap interval, and its gain over the raw values if given."""
    figures = _points(name, float(values.mean()), *mean_interval(values))
    if raw is not None:
        gains = values - raw
        figures |= _points(f"{name}_gain", float(gains.mean()), *mean_interval(gains, least=-1.0))
        figures[f"{name}_p"] = sign_flip_p(gains)
    return figures


def _points(name: str, mean: float, low: float, high: float) -> dict[str, float]:
    return {name: 100 * mean, f"{name}_low": 100 * low, f"{name}_high": 100 * high}


def mean_interval(values: Floats, least: float = 0.0) -> tuple[float, float]:
    """Return the mean's 95 % percentile bootstrap interval. For a single value, the interval is from `least` to 1."""
    if len(values) < 2:
        return least, 1.0
    rng, count = np.random.default_rng(0), len(values)
    means = [values[rng.integers(0, count, (rows, count))].mean(axis=1) for rows in _batches(count)]
    low, high = np.quantile(np.concatenate(means), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def sign_flip_p(differences: Floats) -> float:
    """Return the two-sided p-value: the share of sign flips (all if few, else random ones) with a mean as far from
    0."""
    rng, count = np.random.default_rng(0), len(differences)
    least = abs(float(differences.sum())) - 1e-9  # tolerance: rounding depends on the order of summation
    if 2**count <= RESAMPLES:
        every = 2.0 * (np.arange(2**count)[:, None] >> np.arange(count) & 1) - 1
        return float((np.abs(every @ differences) >= least).mean())
    as_far = 0
    for rows in _batches(count):
        sums = rng.choice(np.array([-1.0, 1.0]), (rows, count)) @ differences
        as_far += int((np.abs(sums) >= least).sum())
    return (as_far + 1) / (RESAMPLES + 1)


def _batches(count: int) -> Iterator[int]:
    """Split the resamples into batches to limit memory. Yield the size of each batch."""
    most = max(1, DRAWN_TOGETHER // count)
    for start in range(0, RESAMPLES, most):
        yield min(most, RESAMPLES - start)
