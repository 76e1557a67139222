"""Decide from the text alone whether an encoder was tuned for similarity.

Agreement with BM25 cannot decide this, because it prefers vectors near the words. For a tuned encoder it would choose
worse vectors. The vectors themselves show it, in four signals. Each signal votes by a threshold, and the vectors count
as tuned with VOTES votes:

- Evenness: the largest variance of a coordinate, divided by the mean variance. Tuning spreads the variance evenly.
  A BERT that was only pre-trained has a few coordinates with most of it.
- Stability: the Spearman correlation of the cosines before and after a soft whitening. A whitening reorders the
  passages of an untuned encoder, because a few directions dominate its cosines.
- Contrast: by how many standard deviations a sentence's cosine to its own document is above its cosines to others.
- Gain: by how much the best of a few whitenings agrees better with BM25 than the raw vectors, relative to these.

A sentence-transformers pooling config is a fifth vote where it is known, but only together with contrast. Otherwise any
weights in a folder with such a config would look tuned. Other signals were measured and do not separate the encoders:
the mean cosine, the spectrum and the hubs. The documentation page on transforms has the figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import unit_rows
from retriever.transforms.agreement import Questions, fit_candidate

# Evenness is 1.6 to 2.1 for all-MiniLM-L6-v2, 2.4 to 3.1 for e5-small with prompts, and at least 3.0 for an untuned
# encoder.
EVEN = 2.8
# Stability is .58 to .86 for tuned encoders (.52 in a language the encoder does not know), and at most .51 otherwise.
STABLE = 0.55
# The gain is at most .03 for tuned encoders on documents of several sentences, up to .12 on single sentences, and .02
# to .14 otherwise.
SMALL_GAIN = 0.05
# The contrast is 3 to 13 for tuned encoders. Otherwise it is .7 to 3.5, and more if a document is a single sentence.
CONTRAST = 2.7
VOTES = 3
WHITENINGS = ("whiten:gamma=0.5", "whiten:soft=1.0", "whiten:soft=0.1")
SOFT = "whiten:soft=1.0"
# Stability depends on the number of vectors, so it is always measured on the documents of this many questions.
QUESTIONS = 128


@dataclass(frozen=True)
class Verdict:
    """Whether vectors look tuned for similarity, and the signals of it."""

    tuned: bool
    votes: int
    evenness: float
    stability: float
    gain: float
    contrast: float
    mean_cosine: float
    """The mean cosine of different passages. It has no vote."""
    declared: bool
    """Whether the model has a sentence-transformers pooling config and the vectors are of that pooling."""

    @property
    def tuned_at_sight(self) -> bool:
        """True if the vectors look tuned, whatever a whitening gains."""
        return self.votes - (self.gain < SMALL_GAIN) >= VOTES

    def describe(self) -> str:
        """Describe the signals in one clause."""
        looks = "looks tuned for similarity" if self.tuned else "does not look tuned for similarity on this text"
        return (
            f"the encoder {looks} (largest variance of a coordinate {self.evenness:.1f} times the mean; cosines before "
            f"and after a whitening correlate by {self.stability:.2f}; a whitening gains {self.gain:+.0%}; a sentence "
            f"is {self.contrast:.1f} standard deviations nearer to its own document than to others)"
        )


def judge(
    questions: Questions,
    queries: NDArray[np.float32],
    passages: NDArray[np.float32],
    agreement: Mapping[str, NDArray[np.float64]],
    *,
    declared: bool = False,
) -> Verdict:
    """Judge the raw vectors of questions and passages.

    `agreement` is the agreement of "none" and of the WHITENINGS that can be fitted, as one value per question.
    """
    raw = float(agreement["none"].mean())
    best = max((float(agreement[spec].mean()) for spec in WHITENINGS if spec in agreement), default=raw)
    gain = best / max(raw, 1e-9) - 1
    own = questions.own[:QUESTIONS]
    near = own.any(axis=0)
    some, asked = passages[near], queries[:QUESTIONS]
    variances = unit_rows(np.concatenate([some, asked])).var(axis=0)
    evenness = float(variances.max() / max(float(variances.mean()), 1e-12))
    stability = _stability(some, asked, ~own[:, near])
    contrast = _contrast(some, asked, own[:, near])
    near_own = contrast >= CONTRAST
    votes = (evenness <= EVEN, stability >= STABLE, gain < SMALL_GAIN, near_own, near_own and declared)
    return Verdict(
        tuned=sum(votes) >= VOTES,
        votes=sum(votes),
        evenness=round(evenness, 3),
        stability=round(stability, 3),
        gain=round(gain, 3),
        contrast=round(contrast, 3),
        mean_cosine=round(_mean_cosine(some), 3),
        declared=declared,
    )


def _stability(passages: NDArray[np.float32], queries: NDArray[np.float32], others: NDArray[np.bool_]) -> float:
    """Return the mean Spearman correlation of a query's cosines to passages of other documents, raw and whitened."""
    whitening = fit_candidate(SOFT, np.concatenate([passages, queries]), 0)
    if whitening is None:
        return 0.0
    raw = unit_rows(queries) @ unit_rows(passages).T
    whitened = unit_rows(whitening.apply(queries)) @ unit_rows(whitening.apply(passages)).T
    found = [
        rank_correlation(first[other], second[other])
        for first, second, other in zip(raw, whitened, others, strict=True)
        if other.sum() > 2
    ]
    return float(np.nan_to_num(np.mean(found))) if found else 0.0


def rank_correlation(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """Return Spearman's rank correlation; NaN if all values of a side are equal.

    `scipy.stats` has it too, but importing that module takes longer than the whole choice for a small collection.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the rank of each value. Equal values have the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((counts.cumsum() - (counts - 1) / 2)[places], np.float64)


def _contrast(passages: NDArray[np.float32], queries: NDArray[np.float32], own: NDArray[np.bool_]) -> float:
    """Return the median of (cosine to the own document - mean cosine to others) / standard deviation of the latter."""
    cosines = unit_rows(queries) @ unit_rows(passages).T
    nearest = np.where(own, cosines, -np.inf).max(axis=1)
    mean, spread = cosines.mean(axis=1, where=~own), cosines.std(axis=1, where=~own)
    return float(np.median((nearest - mean) / np.maximum(spread, 1e-9)))


def _mean_cosine(vectors: NDArray[np.float32]) -> float:
    total = unit_rows(vectors).sum(axis=0, dtype=np.float64)
    count = len(vectors)
    return float((total @ total - count) / max(count * (count - 1), 1))
