"""`auto`: chooses the transform for a corpus and an encoder, without labels. "none" is one of the candidates.

The evidence is the text itself. A sentence is cut out of a passage and used as a query. BM25 ranks the passages of all
*other* documents for this query. A transform is good if the ranking by transformed vectors agrees with the ranking by
BM25 (nDCG@10 with BM25 scores as gains). BM25 is unreliable for a single query but reliable on average over many: for
encoders that were never tuned for similarity, the transform that agrees best also retrieves best. Searching for the
passage that the sentence came from would be misleading. It rewards a transform that tells texts apart, not one that
finds related texts.

"none" has a margin: the score of another candidate must be significantly higher, and higher by the share MARGIN. For
all-MiniLM-L6-v2, which needs no transform, the best candidate beat "none" by 2 % (WikiQA, Python's documentation) and
4 % (Cranfield), but retrieved worse. For a BERT that was never tuned for similarity, the best candidate beat "none" by
36 % (WikiQA), 149 % (Cranfield) and 185 % (SciFact), and retrieved better. The margin of 10 % lies in between.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import unit_rows
from retriever.corpus.passages import sentences
from retriever.corpus.short_texts import first_words, word_units
from retriever.errors import FitFailed, FitWarning
from retriever.transforms import Flow, Transform, fit, parse
from retriever.transforms.bm25 import Bm25
from retriever.transforms.spec import AUTO

# Of equally good candidates the first one is chosen, so weaker transforms come first.
CANDIDATES = (
    "none",
    "center",
    "standardize",
    "whiten:gamma=0.25",
    "whiten:gamma=0.5",
    "whiten:gamma=0.75",
    "whiten:soft=1.0",
    "whiten:soft=0.3",
    "whiten:soft=0.1",
    "whiten:dimension=256",
    "whiten:dimension=128",
    "whiten",
    "flow:strength=0.25",
    "flow:strength=0.5",
    "flow:strength=0.75",
    "flow:strength=0.9",
    "flow:strength=1",
)
STRENGTHS = tuple(spec for spec in CANDIDATES if spec.startswith("flow"))
MARGIN = 0.1
QUERIES = 400
POOL = 4000
FEWEST_QUERIES = 30
SHORTEST, LONGEST = 4, 40  # number of words in a sentence that can be a query
DEPTH = 10


@dataclass(frozen=True)
class Evidence:
    """The texts of passages, the number of the document of each passage, and their raw vectors."""

    texts: Sequence[str]
    documents: NDArray[np.int64]
    vectors: NDArray[np.float32]


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


@dataclass(frozen=True)
class Candidate:
    """The agreement of a transform with BM25, and its gain over "none" with the limits of the 95 % interval."""

    spec: str
    agreement: float
    gain: float
    low: float
    high: float


@dataclass(frozen=True)
class Choice:
    """The chosen transform, the candidates and the evidence."""

    chosen: str
    reason: str
    candidates: tuple[Candidate, ...]
    queries: int
    passages: int
    margin: float
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def choose_for(
    spec: str,
    evidence: Evidence,
    encode: Callable[[Sequence[str]], NDArray[np.float32]],
    sample: NDArray[np.float32],
    *,
    with_short_texts: bool,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Choice | None:
    """Choose the transform for "auto", or the strength for "flow" without options.

    Return None for any other spec, and for "flow" if `with_short_texts` is False, because nothing is to be chosen then.
    """
    if spec != AUTO and not (spec == "flow" and with_short_texts):
        return None
    candidates, otherwise = (CANDIDATES, "none") if spec == AUTO else (STRENGTHS, spec)
    return choose(evidence, encode, sample, seed=seed, candidates=candidates, otherwise=otherwise, progress=progress)


def choose(
    evidence: Evidence,
    encode: Callable[[Sequence[str]], NDArray[np.float32]],
    sample: NDArray[np.float32],
    *,
    seed: int = 0,
    candidates: Sequence[str] = CANDIDATES,
    otherwise: str = "none",
    progress: Callable[[int, int], None] | None = None,
) -> Choice:
    """Fit every candidate to the sample of raw vectors and compare them on the evidence.

    `encode` computes the raw vectors of the sentences that are used as queries. `otherwise` is chosen if there is too
    little evidence. If "none" is not among the candidates, it is measured as the baseline but never chosen.
    """
    began = time.perf_counter()
    questions = sample_questions(evidence.texts, evidence.documents, seed)
    if questions.too_few:
        seconds = time.perf_counter() - began
        return Choice(otherwise, questions.too_few, (), len(questions.texts), len(evidence.texts), MARGIN, seconds)
    queries = encode(questions.texts)

    specs, dimension = dict.fromkeys(("none", *candidates)), evidence.vectors.shape[1]
    usable = [spec for spec in specs if int(parse(spec).options.get("dimension", 0)) < dimension]
    agreement: dict[str, NDArray[np.float64]] = {}
    flow: Flow | None = None
    for number, spec in enumerate(usable):
        # The flow is trained once. The other strengths use the same trained flow.
        transform = flow.at_strength(spec) if flow and spec in STRENGTHS else fit_candidate(spec, sample, seed)
        if isinstance(transform, Flow):
            flow = transform
        if transform is not None:
            agreement[spec] = questions.agreement(transform, queries, evidence.vectors)
        if progress:
            progress(number + 1, len(usable))
    found = tuple(Candidate(spec, *paired_gain(scores, agreement["none"])) for spec, scores in agreement.items())
    chosen, reason = _decide(found) if "none" in candidates else _best(found[1:], otherwise)
    margin = MARGIN if "none" in candidates else 0.0
    seconds = round(time.perf_counter() - began, 2)
    return Choice(chosen, reason, found, len(queries), len(evidence.texts), margin, seconds)


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


def fit_candidate(spec: str, sample: NDArray[np.float32], seed: int) -> Transform | None:
    """Fit a candidate. Return None if it cannot be fitted, or if the fit fell back to another family."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        try:
            transform = fit(spec, sample, seed=seed)
        except FitFailed:
            if spec == "none":
                raise
            return None
    return transform if transform.family == parse(spec).family else None


def paired_gain(scores: NDArray[np.float64], base: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """Return the mean score, the mean gain over the base, and the lower and upper limit of its 95 % interval."""
    difference = scores - base
    error = 1.96 * difference.std(ddof=1) / np.sqrt(len(difference))
    gain = float(difference.mean())
    return float(scores.mean()), gain, gain - float(error), gain + float(error)


def _best(found: tuple[Candidate, ...], otherwise: str) -> tuple[str, str]:
    if not found:
        return otherwise, "no candidate could be fitted"
    best = max(found, key=lambda candidate: candidate.agreement)
    return best.spec, f"{best.spec} agrees best with a search by words"


def _decide(found: tuple[Candidate, ...]) -> tuple[str, str]:
    none = found[0]
    best = max(found, key=lambda candidate: candidate.agreement)
    if best.spec == none.spec:
        return "none", "no candidate agrees better with a search by words than doing nothing"
    share = best.gain / max(none.agreement, 1e-9)
    if share < MARGIN or best.low <= 0:
        return "none", (
            f"the best candidate, {best.spec}, is better than doing nothing by {share:.0%}, "
            f"which is within the margin of {MARGIN:.0%} or not significant"
        )
    return best.spec, f"{best.spec} agrees better with a search by words than doing nothing, by {share:.0%}"
