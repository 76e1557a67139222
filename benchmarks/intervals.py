"""How sure a figure is, and its gain over another on the same items: 95 % intervals and paired tests.

An area under ROC gets DeLong's (DeLong, DeLong and Clarke-Pearson, 1988), which need no resampling; a mean over
questions gets a percentile bootstrap and a sign-flip permutation test, both seeded. All figures are times 100 but p.
"""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]

RESAMPLES = 10_000
CONFIDENCE = 0.95


def placements(scores: Floats, positive: Labels) -> tuple[Floats, Floats]:
    """For each positive the share of negatives below it, for each negative that of positives above; ties half.

    The mean of either is the area under ROC: the chance that a positive scores above a negative.
    """
    from scipy.stats import rankdata

    ranks = rankdata(scores)
    above, below = scores[positive], scores[~positive]
    of_positives = (ranks[positive] - rankdata(above)) / len(below)
    of_negatives = 1 - (ranks[~positive] - rankdata(below)) / len(above)
    return of_positives, of_negatives


def area_figures(scores: Floats, positive: Labels, raw: Floats | None = None) -> dict[str, float]:
    """The area under ROC with DeLong's interval; given the scores of raw vectors, the gain over them with its p."""
    own = placements(scores, positive)
    figures = _with_interval("auc", own)
    if raw is not None:
        base = placements(raw, positive)
        differences = own[0] - base[0], own[1] - base[1]
        figures |= _with_interval("auc_gain", differences)
        figures["auc_p"] = _normal_p(float(differences[0].mean()), _error(differences))
    return figures


def _with_interval(name: str, parts: tuple[Floats, Floats]) -> dict[str, float]:
    from scipy.stats import norm

    mean, reach = float(parts[0].mean()), float(norm.ppf((1 + CONFIDENCE) / 2)) * _error(parts)
    return {name: 100 * mean, f"{name}_low": 100 * (mean - reach), f"{name}_high": 100 * (mean + reach)}


def _error(parts: tuple[Floats, Floats]) -> float:
    """DeLong's standard error of an area, or of the difference of two, from the placements or their differences."""
    return math.sqrt(sum(part.var(ddof=1) / len(part) if len(part) > 1 else 0.0 for part in parts))


def _normal_p(difference: float, error: float) -> float:
    from scipy.stats import norm

    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return 2 * float(norm.sf(abs(difference) / error))


def mean_figures(name: str, values: Floats, raw: Floats | None = None) -> dict[str, float]:
    """The mean over questions with a bootstrap interval; given the raw vectors' values, the paired gain with its p."""
    figures = _bootstrapped(name, values)
    if raw is not None:
        figures |= _bootstrapped(f"{name}_gain", values - raw)
        figures[f"{name}_p"] = sign_flip_p(values - raw)
    return figures


def _bootstrapped(name: str, values: Floats) -> dict[str, float]:
    """Questions drawn with replacement, as many as there are."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(0, len(values), (RESAMPLES, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return {name: 100 * float(values.mean()), f"{name}_low": 100 * float(low), f"{name}_high": 100 * float(high)}


def sign_flip_p(differences: Floats) -> float:
    """Two-sided: how often a mean as far from 0 comes up when each difference may as well have the other sign."""
    rng = np.random.default_rng(0)
    signs = rng.choice(np.array([-1.0, 1.0]), (RESAMPLES, len(differences)))
    observed = abs(float(differences.sum()))
    # The sums of the same numbers in another order differ in their last digits.
    as_far = int((np.abs(signs @ differences) >= observed - 1e-9).sum())
    return (as_far + 1) / (RESAMPLES + 1)
