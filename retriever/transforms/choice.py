"""`auto`: chooses the transform for a corpus and an encoder, without labels. "none" is one of the candidates.

First, `retriever.transforms.tuned` judges whether the encoder was tuned for similarity. If so, "none" is chosen. Only a
few whitenings are measured, as evidence. Otherwise, all candidates are compared by their agreement with BM25
(`retriever.transforms.agreement`), and the best one is chosen if it is better than "none" by more than chance.

A rule on the gain alone is not enough. On 240 German paragraphs, with the input embeddings of an untuned BERT, the best
candidate agrees only 7.5 % better than "none", but nDCG@10 rises from 56.2 to 76.9. For all-MiniLM-L6-v2 on Cranfield,
the best candidate agrees 4 % better, and retrieves worse.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.transforms import Flow, parse
from retriever.transforms.agreement import agreement_of, fit_candidate, paired_gain, sample_questions
from retriever.transforms.spec import AUTO
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


@dataclass(frozen=True)
class Evidence:
    """The texts of passages, the number of the document of each passage, and their raw vectors."""

    texts: Sequence[str]
    documents: NDArray[np.int64]
    vectors: NDArray[np.float32]


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
    evidence: Evidence,
    encode: Callable[[Sequence[str]], NDArray[np.float32]],
    sample: NDArray[np.float32],
    *,
    with_short_texts: bool,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Choice | None:
    """Choose the transform for "auto", or the strength for "flow" without options.

    Return None for any other spec, and for "flow" if `with_short_texts` is False, because there is nothing to choose.
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
    """Fit candidates to the sample of raw vectors and compare them on the evidence.

    `encode` computes the raw vectors of the sentences that are used as queries. `otherwise` is chosen if there is too
    little evidence. If "none" is not among the candidates, it is measured as the baseline but never chosen.
    """
    began = time.perf_counter()
    questions = sample_questions(evidence.texts, evidence.documents, seed)
    counts = len(questions.texts), len(evidence.texts)
    if questions.too_few:
        return Choice(otherwise, questions.too_few, (), *counts, round(time.perf_counter() - began, 2))
    queries, vectors = encode(questions.texts), evidence.vectors
    agreement = agreement_of(("none", *WHITENINGS), questions, queries, vectors, sample, seed)
    verdict = judge(questions, queries, vectors, agreement)

    specs = dict.fromkeys(("none", *candidates))
    left_alone = verdict.tuned and "none" in candidates
    usable = [spec for spec in specs if int(parse(spec).options.get("dimension", 0)) < vectors.shape[1]]
    flow: Flow | None = None
    for number, spec in enumerate([] if left_alone else usable):
        if spec not in agreement:
            # The flow is trained once. The other strengths use the same trained flow.
            transform = flow.at_strength(spec) if flow and spec in STRENGTHS else fit_candidate(spec, sample, seed)
            if isinstance(transform, Flow):
                flow = transform
            if transform is not None:
                agreement[spec] = questions.agreement(transform, queries, vectors)
        if progress:
            progress(number + 1, len(usable))
    measured = [spec for spec in specs if spec in agreement]
    found = tuple(Candidate(spec, *paired_gain(agreement[spec], agreement["none"])) for spec in measured)
    chosen, reason = _decide(found, verdict) if "none" in candidates else _best(found[1:], otherwise)
    return Choice(chosen, reason, found, *counts, round(time.perf_counter() - began, 2), verdict)


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
        return "none", f"{verdict.describe()}, but no transform agrees better with a search by words than doing nothing"
    share = best.gain / max(none.agreement, 1e-9)
    return best.spec, (
        f"{verdict.describe()}; {best.spec} agrees better with a search by words than doing nothing, by {share:.0%}"
    )
