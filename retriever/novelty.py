"""How unlike a text is to what the transform was fitted on: the alarm that `search`, `add` and `info` raise.

The score of a raw vector is its negative log-likelihood in bits per dimension, so higher is stranger. It means
something only beside the scores of ordinary text, so these are measured when the transform is fitted: of passages,
and of short texts cut out of passages, because a query is short and no stranger for it. Both are scored by a density
that has not seen them (fitted on nine tenths of the documents, for the passages of the last), as the text to come will
be: a density that knows a text by heart would call every new one strange.

The density is a Gaussian with shrunk covariance, fitted on the vectors that the transform is fitted on, whatever the
transform: `none` and `center` have no density, a reduced dimension is blind outside its subspace, and a tempered
whitening is not the likeliest. A flow has one of its own. BERT-flow's was compared once, with MiniLM, in sample and
with the 99 % quantile of any sentences as the limit: better on some collections, worse on others. On Cranfield and
SciFact it caught more foreign queries (95 % against 72 % of SciFact's on Cranfield), on beginnings of Wikipedia's
articles none of the gibberish (24 %) and 3 % of the Chinese (83 %), and on its sentences it called 12 % of WikiQA's
questions strange (3 %). One density for all families is the simpler and the steadier.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from indexes.generation import Generation
from retriever.errors import Damaged
from retriever.passages import sentences
from retriever.transforms import fit

JSON_FILE = "novelty.json"
TENSOR_FILE = "novelty.safetensors"

FEWEST = 50
FOLDS = 10
# Scores are measured on folds of a tenth until there are so many of them.
ENOUGH = 400
LEVELS = (1, 5, 25, 50, 75, 95, 99)
SHORTEST, LONGEST, WINDOW = 8, 40, 12  # words of a short text
# The limit is so many times as far from the median as the 95 % quantile, which some hundred texts give firmly; the 99 %
# quantile, which they do not, was at 1.4 to 2.0. So 0 of 225 queries were called strange on Cranfield, and 4 of
# WikiQA's 400 on beginnings of Wikipedia articles; both were looked at when it was chosen.
TAIL = 1.85
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
    short: Reference | None
    """None where the encoder was not to be had when the transform was fitted."""
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
        if self.short is None or words(query) < FEWEST_WORDS:
            return None
        median = self.short.quantiles["50"]
        return median + TAIL * (self.short.quantiles["95"] - median)

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
            "short": self.short and asdict(self.short),
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
                Reference(**facts["short"]) if facts["short"] else None,
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
    encode: Callable[[Sequence[str]], NDArray[np.float32] | None],
    *,
    last_vector: int,
    seed: int = 0,
) -> Novelty | None:
    """The density of these vectors and what ordinary text scores under it; None where there are too few.

    `documents` says which rows belong together; `texts_of` gives the texts of some rows, `encode` the vectors of the
    short texts that are cut from them, or None where it cannot.
    """
    density = Gaussian.fit(vectors) if len(vectors) >= FEWEST else None
    if density is None:
        return None
    rng = np.random.default_rng(seed)
    held_out = list(_folds(vectors, documents, rng))
    if not held_out:
        return None
    passages = np.concatenate([own.scores(vectors[rows]) for rows, own in held_out])
    pieces = [[short_text(text, rng) for text in texts_of(rows)] for rows, _ in held_out]
    asked = encode([piece for own in pieces for piece in own])
    if asked is None or not len(asked):
        return Novelty(density, Reference.of(passages), None, last_vector)
    parts = np.split(asked, np.cumsum([len(own) for own in pieces])[:-1])
    short = np.concatenate([own.scores(part) for (_, own), part in zip(held_out, parts, strict=True)])
    return Novelty(density, Reference.of(passages), Reference.of(short), last_vector)


def _folds(
    vectors: NDArray[np.float32], documents: NDArray[np.int64], rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], Gaussian]]:
    """Rows from tenths of the documents, ENOUGH of them in all, each with a density fitted on the other nine.

    Whole documents, because a passage is less new to a density that knows the passages beside it.
    """
    groups = np.unique(documents)
    if len(groups) < FOLDS:
        groups = documents = np.arange(len(vectors))
    done = 0
    for some_groups in np.array_split(rng.permutation(groups), FOLDS):
        fold = rng.permutation(np.flatnonzero(np.isin(documents, some_groups)))
        if done < ENOUGH and (density := Gaussian.fit(np.delete(vectors, fold, axis=0))):
            some = np.sort(fold[: ENOUGH - done])
            done += len(some)
            yield some, density


def short_text(text: str, rng: np.random.Generator) -> str:
    """The longest sentence that a query could be; where there is none of such a length, some words in a row.

    Any sentence would do worse: "The results are compared." is in every collection and says less of it than a query
    does. With such as ordinary text, on Cranfield half of the foreign queries pass that are caught with the longest.
    """
    whole = [text[a:b] for a, b in sentences(text) if SHORTEST <= words(text[a:b]) <= LONGEST]
    if whole:
        return max(whole, key=words)
    parts = text.split()
    joint = " " if len(parts) > 1 else ""  # nothing: a script without spaces
    parts = parts if joint else list(text.strip())
    start = int(rng.integers(max(1, len(parts) - WINDOW + 1)))
    return joint.join(parts[start : start + WINDOW])


def words(text: str) -> int:
    """How many words a text has; of scripts that put no spaces between them, how many characters."""
    return sum(1 for _ in _WORD.finditer(text))
