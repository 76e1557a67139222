"""`auto`: chooses the transform for a corpus and an encoder, without labels. "none" is one of the candidates.

First, `retriever.transforms.tuned` judges whether the encoder was tuned for similarity. If so, "none" is chosen. Only
one to three whitenings are measured, as evidence. Otherwise, all candidates are compared by their agreement with BM25
(`retriever.transforms.agreement`), and the best one is chosen if it is better than "none" by more than chance. The
couplings of the flow are not trained if the flow without couplings agrees worse than the best whitening by more than
chance.

A rule on the gain alone is not enough. On 240 German paragraphs, with the input embeddings of an untuned BERT, the best
candidate agrees only 7.5 % better than "none", but nDCG@10 rises from 56.2 to 76.9. For all-MiniLM-L6-v2 on Cranfield,
the best candidate agrees 4 % better, and retrieves worse.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.transforms.agreement import Fits, Questions, fit_candidate, paired_gain, sample_questions
from retriever.transforms.spec import AUTO, parse
from retriever.transforms.tuned import WHITENINGS, Verdict, judge

STRENGTHS = (
    "flow:strength=0.25",
    "flow:strength=0.5",
    "flow:strength=0.75",
    "flow:strength=0.9",
    "flow:strength=1",
)
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
    *STRENGTHS,
)
POOL = 4000
# With fewer passages, the choice is left for later: the evidence is weak, and there is little to search.
FEWEST_PASSAGES = 100


@dataclass(frozen=True)
class Evidence:
    """The texts of passages, the number of the document of each passage, and their raw vectors."""

    texts: Sequence[str]
    documents: NDArray[np.int64]
    vectors: NDArray[np.float32]


@dataclass(frozen=True)
class Look:
    """The first look at the evidence: the questions and their raw vectors, before any transform is fitted."""

    evidence: Evidence
    questions: Questions
    too_little: str
    """The reason why there is too little evidence. Empty if there is enough."""
    queries: NDArray[np.float32]
    tuned: bool
    """True if the encoder looks tuned for similarity before any whitening is measured."""
    seconds: float

    @classmethod
    def at(cls, evidence: Evidence, encode: Callable[[Sequence[str]], NDArray[np.float32]], seed: int = 0) -> "Look":
        """Cut sentences out of the passages as questions. `encode` computes their raw vectors."""
        began = time.perf_counter()
        questions = sample_questions(evidence.texts, evidence.documents, seed)
        queries, tuned, too_little = evidence.vectors[:0], False, questions.too_few
        if (count := len(set(evidence.texts))) < FEWEST_PASSAGES:
            too_little = f"the choice needs {FEWEST_PASSAGES} passages, and so far the collection has {count:,}"
        if not too_little:
            queries = encode(questions.texts)
            none = fit_candidate("none", evidence.vectors, seed)
            assert none is not None
            raw = questions.agreement(none, queries, evidence.vectors)
            tuned = judge(questions, queries, evidence.vectors, {"none": raw}).tuned_at_sight
        return cls(evidence, questions, too_little, queries, tuned, time.perf_counter() - began)


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
    seconds: float
    verdict: Verdict | None = None
    """Whether the encoder looks tuned for similarity. None if there is too little text to judge."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def choose_for(
    spec: str,
    look: Look,
    fits: Fits,
    *,
    with_short_texts: bool,
    progress: Callable[[int, int], None] | None = None,
) -> Choice | None:
    """Choose the transform for "auto", or the strength for "flow" without options.

    Return None for any other spec, and for "flow" if `with_short_texts` is False, because there is nothing to choose.
    """
    if spec != AUTO and not (spec == "flow" and with_short_texts):
        return None
    candidates, otherwise = (CANDIDATES, "none") if spec == AUTO else (STRENGTHS, spec)
    return choose(look, fits, candidates=candidates, otherwise=otherwise, progress=progress)


def choose(
    look: Look,
    fits: Fits,
    *,
    candidates: Sequence[str] = CANDIDATES,
    otherwise: str = "none",
    progress: Callable[[int, int], None] | None = None,
) -> Choice:
    """Compare candidates, which `fits` fits, on the evidence.

    `otherwise` is chosen if there is too little evidence. If "none" is not among the candidates, it is measured as the
    baseline but never chosen.
    """
    began = time.perf_counter() - look.seconds
    questions, queries, vectors = look.questions, look.queries, look.evidence.vectors
    counts = len(questions.texts), len(look.evidence.texts)
    if look.too_little:
        return Choice(otherwise, look.too_little, (), *counts, round(look.seconds, 2))
    agreement: dict[str, NDArray[np.float64]] = {}

    def measure(spec: str) -> None:
        if spec not in agreement and (transform := fits.candidate(spec)):
            agreement[spec] = questions.agreement(transform, queries, vectors)

    for spec in ("none", *(WHITENINGS[:1] if look.tuned else WHITENINGS)):
        measure(spec)
    verdict = judge(questions, queries, vectors, agreement)

    specs = dict.fromkeys(("none", *candidates))
    left_alone = verdict.tuned and "none" in candidates
    usable = [spec for spec in specs if int(parse(spec).options.get("dimension", 0)) < vectors.shape[1]]
    for number, spec in enumerate([] if left_alone else usable):
        if (
            spec == STRENGTHS[0]
            and "none" in candidates
            and _flow_cannot_win(agreement, fits, questions, queries, vectors)
        ):
            break
        measure(spec)
        if progress:
            progress(number + 1, len(usable))
    measured = [spec for spec in specs if spec in agreement]
    found = tuple(Candidate(spec, *paired_gain(agreement[spec], agreement["none"])) for spec in measured)
    chosen, reason = _decide(found, verdict) if "none" in candidates else _best(found[1:], otherwise)
    return Choice(chosen, reason, found, *counts, round(time.perf_counter() - began, 2), verdict)


def _flow_cannot_win(
    agreement: Mapping[str, NDArray[np.float64]],
    fits: Fits,
    questions: Questions,
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
) -> bool:
    """Return whether the flow without couplings agrees less with BM25 than another candidate, by more than chance."""
    best = max(agreement.values(), key=np.mean)
    untrained = [fits.candidate(f"{spec},steps=0") for spec in STRENGTHS]
    found = [questions.agreement(flow, queries, vectors) for flow in untrained if flow]
    return bool(found) and paired_gain(best, max(found, key=np.mean))[2] > 0


def _best(found: tuple[Candidate, ...], otherwise: str) -> tuple[str, str]:
    if not found:
        return otherwise, "no candidate could be fitted"
    best = max(found, key=lambda candidate: candidate.agreement)
    return best.spec, f"{best.spec} agrees best with a search by words"


def _decide(found: tuple[Candidate, ...], verdict: Verdict) -> tuple[str, str]:
    none = found[0]
    best = max(found, key=lambda candidate: candidate.agreement)
    if verdict.tuned:
        return "none", f"{verdict.describe()}, so its vectors are used as they are"
    if best.low <= 0:
        return (
            "none",
            f"{verdict.describe()}, but no transform agrees better with a search by words than the raw vectors",
        )
    share = best.gain / max(none.agreement, 1e-9)
    return best.spec, (
        f"{verdict.describe()}; {best.spec} agrees {share:.0%} better with a search by words than the raw vectors"
    )
