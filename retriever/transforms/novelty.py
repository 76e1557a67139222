"""How unlike a text is to what the transform was fitted on: the alarm that `search`, `add` and `info` raise.

The score of a raw vector is its negative log-likelihood in bits per dimension, so higher is stranger. It means
something only beside the scores of ordinary text, so these are measured when the transform is fitted, by a density that
has not seen the texts it scores: one that knows a text by heart would call every new one strange.

A query is short and no stranger for it. To a BERT never tuned for similarity length is most of what there is to see:
the mean of few token vectors lies far out, and by the scores of whole sentences 98 of 100 of WikiQA's questions would
be called strange. So the density is fitted on short texts as well, and a query is judged by ordinary texts of as many
words as it has (`Band`).

The density is a Gaussian with shrunk covariance, whatever the transform: `none` and `center` have no density, a reduced
dimension is blind outside its subspace, and a tempered whitening is not the likeliest. A flow has one of its own, but
one for all families is the simpler, and BERT-flow's was no better where it was compared.
"""

import hashlib
import json
import math
import re
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

JSON_FILE = "novelty.json"
TENSOR_FILE = "novelty.safetensors"

FEWEST = 50
FOLDS = 10
# Scores are measured on folds of a tenth until there are so many of them.
ENOUGH = 400
LEVELS = (1, 5, 25, 50, 75, 95, 99)
# The limit is so many times as far from the median as the 95 % quantile, which some hundred texts give firmly; the 99 %
# quantile, which they do not, was at 1.4 to 2.0. Chosen with Cranfield's and WikiQA's queries in sight.
TAIL = 1.85
# Texts are banded by their words: from one of these numbers up to the next.
BANDS = (2, 4, 6, 9, 13, 20, 40, 80)
FEWEST_IN_BAND = 20
# A word by itself is far from all running text: half of the words of a collection would be called unlike it.
FEWEST_WORDS = 3
_WORD = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff]|\w+")

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """The scores of ordinary text: how many, their mean, and their quantiles by per cent."""

    n: int
    mean: float
    quantiles: dict[str, float]

    @classmethod
    def of(cls, scores: Scores) -> Self:
        found = np.percentile(scores, LEVELS)
        return cls(
            len(scores),
            float(scores.mean()),
            {str(level): float(value) for level, value in zip(LEVELS, found, strict=True)},
        )


@dataclass(frozen=True)
class Band:
    """The scores of ordinary texts of about so many words, and what is beyond all but a few of them."""

    words: float
    n: int
    median: float
    limit: float


@dataclass(frozen=True)
class ShortTexts:
    """Texts cut from passages, and their raw vectors."""

    texts: Sequence[str]
    vectors: NDArray[np.float32]


@dataclass(frozen=True)
class Gaussian:
    """N(mean, (W W^T)^-1): z = (u - mean) W is white, and log |det W| makes its likelihood that of u."""

    mean: NDArray[np.float32]
    matrix: NDArray[np.float32]
    log_det: float

    @classmethod
    def fit(cls, vectors: NDArray[np.float32]) -> Self | None:
        """The Gaussian of these vectors, its covariance shrunk; None where they are all the same."""
        whitening = fit("whiten", vectors)
        if "matrix" not in whitening.state.tensors:
            return None
        return cls(
            whitening.state.tensors["mean"],
            whitening.state.tensors["matrix"],
            float(whitening.log_det(vectors[:1])[0]),
        )

    def scores(self, vectors: NDArray[np.float32]) -> Scores:
        """Bits per dimension of every row."""
        z = (vectors - self.mean) @ self.matrix
        dimension = len(self.mean)
        nats = 0.5 * np.einsum("ij,ij->i", z, z, dtype=np.float64) + 0.5 * dimension * math.log(2 * math.pi)
        return np.asarray((nats - self.log_det) / (dimension * math.log(2)))


@dataclass(frozen=True)
class Novelty:
    """A density and the scores of ordinary text under it, as they are kept with a generation."""

    density: Gaussian
    passages: Reference
    bands: tuple[Band, ...]
    """What ordinary texts score by their length; none where the encoder was not to be had at the fit."""
    last_vector: int
    """The newest vector at the time of the fit: what is newer was added since."""

    def scores(self, vectors: NDArray[np.float32]) -> Scores:
        """Bits per dimension of every raw vector."""
        return self.density.scores(vectors)

    @property
    def passage_limit(self) -> float:
        """What one ordinary passage in a hundred is beyond."""
        return self.passages.quantiles["99"]

    def query_limit(self, query: str) -> float | None:
        """What a query must be beyond to be called strange; None where it cannot be judged."""
        count = words(query)
        if not self.bands or count < max(FEWEST_WORDS, 0.75 * self.bands[0].words):
            return None
        # The scatter of a mean goes with 1 / n; the longest band's limit holds for all that is longer.
        places = [-1 / band.words for band in self.bands]
        return float(np.interp(-1 / count, places, [band.limit for band in self.bands]))

    # ---- on disk -----------------------------------------------------------------------------------------

    def save(self, folder: Path) -> list[str]:
        """Write what `load` reads into a folder; returns the names of the files."""
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
        """What `save` wrote; `Damaged` when it is not there whole."""
        from safetensors import SafetensorError
        from safetensors.numpy import load as tensors_from

        try:
            facts, data = json.loads((folder / JSON_FILE).read_bytes()), (folder / TENSOR_FILE).read_bytes()
            if facts.pop("fingerprint") != _fingerprint(facts, data):
                raise ValueError("its fingerprint is not that of what it holds")
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
        """What is kept with a generation; None where it had too few vectors, or an older version made it."""
        return cls.load(generation.folder) if JSON_FILE in generation.manifest["files"] else None


def _fingerprint(facts: dict[str, Any], tensors: bytes) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + tensors).hexdigest()


# ---- measuring -----------------------------------------------------------------------------------------------


def measured(
    vectors: NDArray[np.float32],
    documents: NDArray[np.int64],
    texts_of: Callable[[NDArray[np.int64]], Sequence[str]],
    short: ShortTexts | None,
    *,
    last_vector: int,
    seed: int = 0,
) -> Novelty | None:
    """The density of these vectors and what ordinary text scores under it; None where there are too few.

    `documents` says which rows belong together; `texts_of` gives the texts of some rows.
    """
    if len(vectors) < FEWEST:
        return None
    # Of the short texts every other one is fitted on, and the rest are scored. The density that is kept knows no more
    # of them than those that measure, or what is measured would be too lenient to queries.
    beside = vectors[:0] if short is None else short.vectors[::2]
    density = Gaussian.fit(np.concatenate([vectors, beside]))
    if density is None:
        return None
    rng = np.random.default_rng(seed)
    held_out = list(_folds(vectors, documents, beside, rng))
    if not held_out:
        return None
    passages = np.concatenate([own.scores(vectors[rows]) for rows, own in held_out])
    if short is None:
        return Novelty(density, Reference.of(passages), (), last_vector)
    scores = np.concatenate([passages, held_out[0][1].scores(short.vectors[1::2])])
    texts = [*(text for rows, _ in held_out for text in texts_of(rows)), *short.texts[1::2]]
    return Novelty(density, Reference.of(passages), _bands(np.array([words(t) for t in texts]), scores), last_vector)


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
    """Rows from tenths of the documents, ENOUGH of them in all, each with a density fitted on the other nine and on
    the short texts `beside` them.

    Whole documents, because a passage is less new to a density that knows the passages beside it.
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


def words(text: str) -> int:
    """How many words a text has; of scripts that put no spaces between them, how many characters."""
    return sum(1 for _ in _WORD.finditer(text))
