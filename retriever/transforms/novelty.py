"""Novelty: how much a text differs from the texts that the transform was fitted on. `search`, `add` and `info` use it
for warnings.

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

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from indexes.folder.generation import Generation
from retriever.errors import Damaged
from retriever.transforms import fit
from retriever.transforms.bm25 import tokenize

JSON_FILE = "novelty.json"
TENSOR_FILE = "novelty.safetensors"

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
class Gaussian:
    """The normal distribution N(mean, (W W^T)^-1), with W the `matrix`. `log_det` is log |det W|.

    z = (u - mean) W is white: it has mean 0 and covariance I.
    """

    mean: NDArray[np.float32]
    matrix: NDArray[np.float32]
    log_det: float

    @classmethod
    def fit(cls, vectors: NDArray[np.float32]) -> Self | None:
        """Fit a Gaussian with shrunk covariance. Return None if all vectors are equal."""
        whitening = fit("whiten", vectors)
        tensors = whitening.state.tensors
        return cls(tensors["mean"], tensors["matrix"], whitening.constant_log_det) if "matrix" in tensors else None

    def scores(self, vectors: NDArray[np.float32]) -> Scores:
        """Return the score of every row, in bits per dimension."""
        z = (vectors - self.mean) @ self.matrix
        dimension = len(self.mean)
        nats = 0.5 * np.einsum("ij,ij->i", z, z, dtype=np.float64) + 0.5 * dimension * math.log(2 * math.pi)
        return np.asarray((nats - self.log_det) / (dimension * math.log(2)))


@dataclass(frozen=True)
class Novelty:
    """A density, and the scores that it gives to ordinary text. It is stored with a generation of the index."""

    density: Gaussian
    passages: Reference
    bands: tuple[Band, ...]
    """Scores of ordinary texts by length. Empty if the encoder was not available at the fit."""
    last_vector: int
    """The number of the newest vector at the time of the fit. Vectors with higher numbers were added later."""

    def scores(self, vectors: NDArray[np.float32]) -> Scores:
        """Return the score of every raw vector, in bits per dimension."""
        return self.density.scores(vectors)

    @property
    def passage_limit(self) -> float:
        """The score that one in a hundred ordinary passages exceeds."""
        return self.passages.quantiles["99"]

    def query_limit(self, query: str) -> float | None:
        """Return the score above which this query is unusual, or None if the query is too short to judge."""
        count = len(tokenize(query))
        if not self.bands or count < max(FEWEST_WORDS, 0.75 * self.bands[0].words):
            return None
        # The variance of a mean is proportional to 1 / n. The limit of the longest band holds for all longer texts.
        places = [-1 / band.words for band in self.bands]
        return float(np.interp(-1 / count, places, [band.limit for band in self.bands]))

    # ---- on disk -----------------------------------------------------------------------------------------

    def save(self, folder: Path) -> list[str]:
        """Write the files that `load` reads to a folder, and return their names."""
        from safetensors.numpy import save as tensor_bytes

        tensors = tensor_bytes({"mean": self.density.mean, "matrix": np.ascontiguousarray(self.density.matrix)})
        facts = {
            "format": 1,
            "log_det": self.density.log_det,
            "last_vector": self.last_vector,
            "passages": asdict(self.passages),
            "bands": [asdict(band) for band in self.bands],
        }
        facts["fingerprint"] = _fingerprint(facts, tensors)
        text = json.dumps(facts, indent=1, sort_keys=True, allow_nan=False)
        (folder / JSON_FILE).write_text(text + "\n", encoding="utf-8")
        (folder / TENSOR_FILE).write_bytes(tensors)
        return [JSON_FILE, TENSOR_FILE]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the files that `save` wrote. Raise `Damaged` if a file is missing or was changed."""
        from safetensors import SafetensorError
        from safetensors.numpy import load as tensors_from

        try:
            facts, data = json.loads((folder / JSON_FILE).read_bytes()), (folder / TENSOR_FILE).read_bytes()
            if facts.pop("fingerprint") != _fingerprint(facts, data):
                raise ValueError("its fingerprint does not match its content")
            tensors = tensors_from(data)
            return cls(
                Gaussian(tensors["mean"], tensors["matrix"], facts["log_det"]),
                Reference(**facts["passages"]),
                tuple(Band(**band) for band in facts["bands"]),
                facts["last_vector"],
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
            raise Damaged(f"{folder / JSON_FILE} cannot be used: {error}; run: retriever verify --repair") from error

    @classmethod
    def of(cls, generation: Generation) -> Self | None:
        """Load the novelty of a generation. Return None if the generation had too few vectors to measure it."""
        return cls.load(generation.folder) if JSON_FILE in generation.manifest["files"] else None


def _fingerprint(facts: dict[str, Any], tensors: bytes) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + tensors).hexdigest()


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
    density = Gaussian.fit(np.concatenate([vectors, beside]))
    if density is None:
        return None
    rng = np.random.default_rng(seed)
    held_out = list(_folds(vectors, documents, beside, rng))
    if not held_out:
        return None
    passages = np.concatenate([own.scores(vectors[rows]) for rows, own in held_out])
    bands: tuple[Band, ...] = ()
    if short is not None:
        scores = np.concatenate([passages, held_out[0][1].scores(short.vectors[1::2])])
        texts = [*(text for rows, _ in held_out for text in texts_of(rows)), *short.texts[1::2]]
        bands = _bands(np.array([len(tokenize(text)) for text in texts]), scores)
    return Novelty(density, Reference.of(passages), bands, last_vector)


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
) -> Iterator[tuple[NDArray[np.int64], Gaussian]]:
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
        if done < ENOUGH and (density := Gaussian.fit(np.concatenate([np.delete(vectors, fold, axis=0), beside]))):
            some = np.sort(fold[: ENOUGH - done])
            done += len(some)
            yield some, density
