"""Agreement with BM25: the evidence without labels by which poolings and transforms are compared.

A sentence is cut out of a passage and used as a query. BM25 ranks the passages of all *other* documents for this query.
Vectors are good if their ranking agrees with the ranking by BM25 (nDCG@10 with BM25 scores as gains). BM25 is
unreliable for a single query but reliable on average over many. Searching for the passage that the sentence came from
would be misleading. It rewards vectors that tell texts apart, not vectors that find related texts.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import unit_rows
from indexes.terms import NO_STEMS, text_terms
from retriever.corpus.passages import sentences
from retriever.corpus.short_texts import first_words, word_units
from retriever.errors import FitFailed, FitWarning
from retriever.transforms.affine import whiten
from retriever.transforms.base import StepProgress, Transform, fit
from retriever.transforms.flow.flow import Flow
from retriever.transforms.moments import Spectrum, equal_rows
from retriever.transforms.spec import parse

QUERIES = 400
FEWEST_QUERIES = 30
SHORTEST, LONGEST = 4, 40  # number of words in a sentence that can be a query
DEPTH = 10
K1, B = 0.9, 0.4


class Bm25:
    """Scores queries against a fixed list of texts, as in Robertson and Zaragoza (2009), with the usual k1 and b.

    A score is the sum over the query's words of idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length)),
    with idf = log(1 + (N - n + 0.5) / (n + 0.5)).
    """

    def __init__(self, texts: Sequence[str]) -> None:
        counts = [Counter(text_terms(text, NO_STEMS)) for text in texts]
        self.vocabulary = {word: number for number, word in enumerate(dict.fromkeys(w for c in counts for w in c))}
        lengths = np.array([sum(count.values()) for count in counts], np.float64)
        rows = np.repeat(np.arange(len(texts)), [len(count) for count in counts])
        columns = np.array([self.vocabulary[word] for count in counts for word in count], np.int64)
        frequencies = np.array([n for count in counts for n in count.values()], np.float64)
        holding = np.bincount(columns, minlength=len(self.vocabulary))
        idf = np.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        norm = K1 * (1 - B + B * lengths / max(lengths.mean(), 1e-9))
        weights = idf[columns] * frequencies * (K1 + 1) / (frequencies + norm[rows])
        order = np.argsort(columns, kind="stable")
        self._texts, self._weights = rows[order], weights[order]
        self._first = np.searchsorted(columns[order], np.arange(len(self.vocabulary) + 1))
        self._count = len(texts)

    def scores(self, queries: Sequence[str]) -> NDArray[np.float64]:
        """Return the scores, with one row per query and one column per text.

        A sparse matrix of scipy would do the same, but importing it takes longer than all scores of a small collection.
        """
        scores = np.zeros((len(queries), self._count))
        for query, own in zip(queries, scores, strict=True):
            for word in text_terms(query, NO_STEMS):
                if (column := self.vocabulary.get(word)) is not None:
                    place = slice(self._first[column], self._first[column + 1])
                    own[self._texts[place]] += self._weights[place]
        return scores


@dataclass(frozen=True)
class Questions:
    """Sentences cut out of passages. `gains` holds the BM25 scores of passages of other documents, per sentence."""

    texts: list[str]
    gains: NDArray[np.float64]
    own: NDArray[np.bool_]
    """For each sentence, which passages belong to the document that the sentence was cut from."""

    @property
    def too_few(self) -> str:
        """The reason why there are too few questions. Empty if there are enough."""
        if len(self.texts) >= FEWEST_QUERIES:
            return ""
        return f"only {len(self.texts)} sentences can be used as queries, and {FEWEST_QUERIES} are needed"

    def agreement(
        self, transform: Transform, queries: NDArray[np.float32], vectors: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Return nDCG@10 of the ranking by transformed vectors, with BM25 scores as gains, per question.

        Passages of the question's own document are not ranked. `queries` are the raw vectors of the questions, and
        `vectors` are the raw vectors of the passages.
        """
        cosines = unit_rows(transform.apply(queries)) @ unit_rows(transform.apply(vectors)).T
        cosines[self.own] = -np.inf
        best = np.argpartition(-cosines, DEPTH, axis=1)[:, :DEPTH]
        order = np.take_along_axis(best, np.argsort(-np.take_along_axis(cosines, best, 1), axis=1, kind="stable"), 1)
        discounts = 1 / np.log2(np.arange(DEPTH) + 2)
        ideal = -np.sort(-self.gains, axis=1)[:, :DEPTH] @ discounts
        return np.asarray((np.take_along_axis(self.gains, order, 1) @ discounts) / ideal)


def sample_questions(texts: Sequence[str], documents: NDArray[np.int64], seed: int) -> Questions:
    """Cut one sentence out of each of up to QUERIES passages.

    Keep a sentence only if at least DEPTH passages of other documents share a word with it.
    """
    rng = np.random.default_rng(seed)
    queries, origins = _cut(texts, rng, lambda text: SHORTEST <= len(text.split()) <= LONGEST)
    if len(queries) < FEWEST_QUERIES:  # the text has no spaces between words, or no punctuation
        queries, origins = _cut(texts, rng, lambda text: len(word_units(text)[0]) >= SHORTEST)
    gains = Bm25(texts).scores(queries) if queries else np.zeros((0, len(texts)))
    own = documents[None, :] == documents[np.array(origins, np.int64)][:, None]
    gains[own] = 0
    answered = (gains > 0).sum(axis=1) >= DEPTH
    kept = [query for query, good in zip(queries, answered, strict=True) if good]
    return Questions(kept, gains[answered], own[answered])


def _cut(
    texts: Sequence[str], rng: np.random.Generator, suitable: Callable[[str], bool]
) -> tuple[list[str], list[int]]:
    """Return one suitable sentence of each of up to QUERIES texts, and the numbers of these texts.

    A sentence is cut to its first LONGEST words.
    """
    queries, origins = [], []
    for number in rng.permutation(len(texts)):
        text = texts[number]
        spans = [(a, b) for a, b in sentences(text) if suitable(text[a:b])]
        if spans:
            a, b = spans[rng.integers(len(spans))]
            queries.append(text[a:b] if len(word_units(text[a:b])[0]) <= LONGEST else first_words(text[a:b], LONGEST))
            origins.append(int(number))
        if len(queries) == QUERIES:
            break
    return queries, origins


class Fits:
    """Fits many transforms to one sample of raw vectors.

    All whitenings share one eigendecomposition of the covariance. All strengths of a flow share one training.
    """

    def __init__(
        self, sample: NDArray[np.float32], seed: int, device: str = "cpu", progress: StepProgress = None
    ) -> None:
        self.sample = sample
        self.seed = seed
        self._device = device
        self._progress = progress
        self._flows: dict[str, Flow] = {}

    def fit(self, spec: str) -> Transform:
        """Fit a transform, as `retriever.transforms.fit` does."""
        parsed = parse(spec)
        if parsed.family == "whiten" and self._spectrum:
            return whiten(self._spectrum, parsed, self.seed)
        if parsed.family != "flow":
            return fit(spec, self.sample, seed=self.seed, device=self._device, progress=self._progress)
        training = str({name: value for name, value in parsed.options.items() if name != "strength"})
        if training not in self._flows:
            flow = fit(spec, self.sample, seed=self.seed, device=self._device, progress=self._progress)
            if not isinstance(flow, Flow):
                return flow
            self._flows[training] = flow
        return self._flows[training].at_strength(spec)

    def candidate(self, spec: str) -> Transform | None:
        """Fit a candidate. Return None if it cannot be fitted, or if the fit fell back to another family."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            try:
                transform = self.fit(spec)
            except FitFailed:
                if spec == "none":
                    raise
                return None
        return transform if transform.family == parse(spec).family else None

    @cached_property
    def _spectrum(self) -> Spectrum | None:
        """The spectrum of the sample.

        None if there is none, because `fit` refuses the sample or cannot learn from it.
        """
        usable = len(self.sample) and np.isfinite(self.sample).all() and not equal_rows(self.sample)
        return Spectrum.of(self.sample) if usable else None


def fit_candidate(spec: str, sample: NDArray[np.float32], seed: int) -> Transform | None:
    """Fit one candidate. Return None if it cannot be fitted, or if the fit fell back to another family."""
    return Fits(sample, seed).candidate(spec)


def agreement_of(
    specs: Sequence[str],
    questions: Questions,
    queries: NDArray[np.float32],
    passages: NDArray[np.float32],
    sample: NDArray[np.float32],
    seed: int,
) -> dict[str, NDArray[np.float64]]:
    """Fit each transform to the sample, and return its agreement per question. Leave out what cannot be fitted."""
    fits = Fits(sample, seed)
    found = {spec: fits.candidate(spec) for spec in specs}
    return {spec: questions.agreement(fitted, queries, passages) for spec, fitted in found.items() if fitted}


def paired_gain(scores: NDArray[np.float64], base: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """Return the mean score, the mean gain over the base, and the lower and upper limit of its 95 % interval."""
    difference = scores - base
    error = 1.96 * difference.std(ddof=1) / np.sqrt(len(difference))
    gain = float(difference.mean())
    return float(scores.mean()), gain, gain - float(error), gain + float(error)
