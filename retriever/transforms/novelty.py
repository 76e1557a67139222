"""Novelty: how much a text differs from the texts that the transform was fitted on. `search`, `add` and `info` use it
for warnings. Drift: the novelty of the passages that were added since the fit.

The score of a raw vector is its negative log-likelihood in bits per dimension. A higher score is more unusual. A score
is meaningful only in comparison with the scores of ordinary text. Those are measured when the transform is fitted, on
texts that the density has not seen, because a density scores its own training texts too low.

Queries are short, and short texts score higher. For a BERT that was never tuned for similarity, the score depends
mostly on the length, because the mean of few token vectors lies far from the centre. Compared with whole sentences, 98
of 100 WikiQA questions would count as unusual. So the density is fitted on short texts as well, and a query is compared
with ordinary texts of a similar number of words (`Band`).

The density is a Gaussian with shrunk covariance for every transform. `none` and `center` have no density of their own.
A transform that reduces the dimension ignores everything outside its subspace. A partial whitening is not the most
likely fit. A flow has a density, but one kind of density for all families is simpler, and the density of BERT-flow was
not better where both were compared.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from indexes.generation import Generation
from indexes.protocol import AnyCollection
from retriever.corpus.passages import words
from retriever.errors import Damaged
from retriever.transforms.affine import fit_gaussian
from retriever.transforms.base import Json, Transform, load
from retriever.transforms.moments import equal_rows

NAME = "novelty"
JSON_FILE = f"{NAME}.json"

FEWEST = 50
FOLDS = 10
# Scores are measured fold by fold until there are this many.
ENOUGH = 400
LEVELS = (1, 5, 25, 50, 75, 95, 99)
# The limit is TAIL times as far from the median as the 95 % quantile. A few hundred texts are enough to estimate the
# 95 % quantile, but not the 99 % quantile, which was 1.4 to 2.0 times as far. TAIL was chosen on the queries of
# Cranfield and WikiQA.
TAIL = 1.85
# Texts are grouped by their number of words. A group starts at one of these numbers and ends before the next one.
BANDS = (2, 4, 6, 9, 13, 20, 40, 80)
FEWEST_IN_BAND = 20
# Queries of fewer words are not judged. A single word is so far from running text that half of all words would be
# unusual.
FEWEST_WORDS = 3
# Drift. This many passages are enough to estimate a share of a few per cent, and are scored quickly.
MOST_SCORED = 5000
# One in a hundred ordinary passages is above the limit. A few more may be chance, but a tenth of all passages is not.
FEWEST_STRANGE = 5
SOME_SHARE = 0.03
STRONG_SHARE = 0.1
IDS_KEPT = 5

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """The scores of ordinary text: their number, mean and quantiles (in per cent)."""

    n: int
    mean: float
    quantiles: dict[str, float]

    @classmethod
    def of(cls, scores: Scores) -> Self:
        levels = zip(LEVELS, np.percentile(scores, LEVELS), strict=True)
        return cls(len(scores), float(scores.mean()), {str(level): float(value) for level, value in levels})


@dataclass(frozen=True)
class Band:
    """The scores of ordinary texts of about `words` words. A text that scores above `limit` is unusual."""

    words: float
    n: int
    median: float
    limit: float


@dataclass(frozen=True)
class ShortTexts:
    """Short texts cut from passages, with their raw vectors."""

    texts: Sequence[str]
    vectors: NDArray[np.float32]


@dataclass(frozen=True)
class Novelty:
    """A density, and the scores that it gives to ordinary text. It is stored with a generation of the index."""

    density: Transform
    """A whitening with shrunk covariance. Its likelihood is that of a Gaussian."""
    passages: Reference
    bands: tuple[Band, ...]
    """Scores of ordinary texts by length. Empty if the encoder was not available at the fit."""
    last_vector: int
    """The number of the newest vector at the time of the fit. Vectors with higher numbers were added later."""

    def scores(self, vectors: NDArray[np.float32]) -> Scores:
        """Return the score of every raw vector, in bits per dimension."""
        return _scores(self.density, vectors)

    @property
    def passage_limit(self) -> float:
        """The score that one in a hundred ordinary passages exceeds."""
        return self.passages.quantiles["99"]

    def query_limit(self, query: str) -> float | None:
        """Return the score above which this query is unusual, or None if the query is too short to judge."""
        count = len(words(query))
        if not self.bands or count < max(FEWEST_WORDS, 0.75 * self.bands[0].words):
            return None
        # The variance of a mean is proportional to 1 / n. The limit of the longest band holds for all longer texts.
        places = [-1 / band.words for band in self.bands]
        return float(np.interp(-1 / count, places, [band.limit for band in self.bands]))

    # ---- on disk -----------------------------------------------------------------------------------------

    def save(self, folder: Path) -> list[str]:
        """Write the files that `load` reads to a folder, and return their names."""
        facts: dict[str, Json] = {
            "last_vector": self.last_vector,
            "passages": asdict(self.passages),
            "bands": [asdict(band) for band in self.bands],
        }
        state = self.density.state
        return type(self.density)(replace(state, config={**state.config, **facts})).save(folder, NAME)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the files that `save` wrote. Raise `Damaged` if a file is missing or was changed."""
        try:
            density = load(folder, NAME)
            facts: Any = density.state.config
            passages, bands = Reference(**facts["passages"]), tuple(Band(**band) for band in facts["bands"])
            return cls(density, passages, bands, facts["last_vector"])
        except (Damaged, KeyError, TypeError) as error:
            raise Damaged(f"{folder / JSON_FILE} cannot be used: {error}; run: retriever verify --repair") from error

    @classmethod
    def of(cls, generation: Generation) -> Self | None:
        """Load the novelty of a generation. Return None if the generation had too few vectors to measure it."""
        return cls.load(generation.folder) if JSON_FILE in generation.manifest["files"] else None


# ---- measuring -----------------------------------------------------------------------------------------------


def measure(
    vectors: NDArray[np.float32],
    documents: NDArray[np.int64],
    texts_of: Callable[[NDArray[np.int64]], Sequence[str]],
    short: ShortTexts | None,
    *,
    last_vector: int,
    seed: int = 0,
) -> Novelty | None:
    """Fit a density to the vectors and measure the scores of ordinary text. Return None if there are too few vectors.

    `documents` holds the document number of each row. `texts_of` returns the texts of the given rows.
    """
    if len(vectors) < FEWEST:
        return None
    # The density is fitted on every other short text, and the remaining ones are scored. The stored density must not
    # see more short texts than the densities that measure the scores, or the limits would be too high for queries.
    beside = vectors[:0] if short is None else short.vectors[::2]
    density = _fit(np.concatenate([vectors, beside]))
    if density is None:
        return None
    rng = np.random.default_rng(seed)
    held_out = list(_folds(vectors, documents, beside, rng))
    if not held_out:
        return None
    passages = np.concatenate([_scores(own, vectors[rows]) for rows, own in held_out])
    bands: tuple[Band, ...] = ()
    if short is not None:
        scores = np.concatenate([passages, _scores(held_out[0][1], short.vectors[1::2])])
        texts = [*(text for rows, _ in held_out for text in texts_of(rows)), *short.texts[1::2]]
        bands = _bands(np.array([len(words(text)) for text in texts]), scores)
    return Novelty(density, Reference.of(passages), bands, last_vector)


def _fit(vectors: NDArray[np.float32]) -> Transform | None:
    """Fit a Gaussian with shrunk covariance. Return None if all vectors are equal."""
    return None if equal_rows(vectors) else fit_gaussian(vectors)


def _scores(density: Transform, vectors: NDArray[np.float32]) -> Scores:
    """Return the negative log-likelihood of every row, in bits per dimension."""
    return np.asarray(-density.log_likelihood(vectors) / (density.dimension_in * math.log(2)))


def _bands(counts: NDArray[np.int64], scores: Scores) -> tuple[Band, ...]:
    found = []
    for first, after in pairwise(BANDS):
        some = (counts >= first) & (counts < after)
        if some.sum() >= FEWEST_IN_BAND:
            median, high = np.percentile(scores[some], (50, 95))
            typical = 1 / float((1 / counts[some]).mean())
            found.append(Band(typical, int(some.sum()), float(median), float(median + TAIL * (high - median))))
    return tuple(found)


def _folds(
    vectors: NDArray[np.float32], documents: NDArray[np.int64], beside: NDArray[np.float32], rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], Transform]]:
    """Yield the rows of each fold, with a density fitted on the other folds and on the short texts `beside`.

    At most ENOUGH rows are yielded in total. A fold holds whole documents, because a density that was fitted on other
    passages of a document would score its passages too low.
    """
    groups = np.unique(documents)
    if len(groups) < FOLDS:
        groups = documents = np.arange(len(vectors))
    done = 0
    for some_groups in np.array_split(rng.permutation(groups), FOLDS):
        fold = rng.permutation(np.flatnonzero(np.isin(documents, some_groups)))
        if done < ENOUGH and (density := _fit(np.concatenate([np.delete(vectors, fold, axis=0), beside]))):
            some = np.sort(fold[: ENOUGH - done])
            done += len(some)
            yield some, density


# ---- drift ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drift:
    """A comparison of passages (distinct texts) added after the fit with those that the transform was fitted on."""

    added: int
    scored: int
    """Number of added passages that were scored: all of them, or a random sample of MOST_SCORED."""
    strange: int
    """Number of scored passages whose score is above that of 99 % of ordinary passages."""
    shift: float
    """Mean score of the scored passages minus the mean score of ordinary passages, in bits per dimension."""
    strange_ids: tuple[str, ...]
    """Ids of the first documents that contain strange passages."""

    @property
    def share(self) -> float:
        return self.strange / self.scored if self.scored else 0.0

    @property
    def verdict(self) -> str:
        if not self.added:
            return "none: nothing was added since the fit"
        if self.strange < FEWEST_STRANGE or self.share < SOME_SHARE:
            return "none: the added text is like the text that the transform was fitted on"
        return f"{'strong' if self.strong else 'some'}: `retriever rebuild` fits the transform again"

    @property
    def strong(self) -> bool:
        """Whether the transform should be fitted again."""
        return self.strange >= FEWEST_STRANGE and self.share >= STRONG_SHARE

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"share": self.share, "verdict": self.verdict}


def drift(collection: AnyCollection, novelty: Novelty, after: int = 0) -> Drift:
    """Measure the drift of the vectors in use that are newer than the fit and newer than the vector `after`."""
    store = collection.store
    with store.snapshot():
        numbers = store.used_vectors(max(after, novelty.last_vector))
        added = len(numbers)
        if added > MOST_SCORED:
            numbers = np.sort(np.random.default_rng(0).choice(numbers, MOST_SCORED, replace=False))
        if not added:
            return Drift(0, 0, 0, 0.0, ())
        scores = novelty.scores(store.vectors(numbers.tolist(), collection.dimension))
        strange = numbers[scores > novelty.passage_limit]
        passages = store.passages_of_vectors(strange.tolist())
        first = sorted({passage.document for own in passages.values() for passage in own})[:IDS_KEPT]
        documents = store.documents(first)
    shift = float(scores.mean()) - novelty.passages.mean
    return Drift(added, len(numbers), len(strange), shift, tuple(documents[number]["id"] for number in first))


def unknown(generation: Generation | None) -> dict[str, Any]:
    """Return what `info` shows if the scores of ordinary text were not measured for the collection."""
    if generation is None:
        reason = "there is no index yet"
    elif generation.manifest["transform"]["fitted_on"] < FEWEST:
        reason = f"the transform was fitted on fewer than {FEWEST} vectors"
    else:
        reason = "it was not measured when the transform was fitted; `retriever rebuild` measures it"
    return {"verdict": f"unknown: {reason}"}
