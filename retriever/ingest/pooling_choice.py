"""Which pooling suits this corpus and this encoder, decided without labels before anything is embedded.

The evidence is that of `choosing`: sentences cut out of passages as queries, and agreement with BM25 about the other
documents. A sample of the corpus goes through the model once, which gives every pooling of it. As a pooling is only as
good as what the transform makes of it, each is judged by the best of a few transforms, or by the one asked for.

The model's own pooling has a margin: another must beat it by MARGIN of its score, and by more than chance. It is also
kept where the best transform is worth less than TUNED of its score to it, because BM25 likes layers near the words more
than it should: on random Wikipedia sentences all-MiniLM-L6-v2 agrees .40 by its own pooling, .52 by the first block and
.55 by its input embeddings, yet it retrieves best by its own (Cranfield nDCG@10: 37.6, first 15.3, word 23.0). What
a transform is worth tells such an encoder: to MiniLM at most 2 % on five sets; to a BERT never tuned for similarity 9 %
on short sentences and 60 % on abstracts, and there the layers near the words do retrieve best, in BM25's order.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.corpus import Document
from retriever.corpus.passages import encoded_text, fit_title, split
from retriever.encoder.encoder import Encoder
from retriever.progress import Progress, silent
from retriever.transforms.choice import Questions, fit_candidate, paired_gain, sample_questions
from retriever.transforms.spec import AUTO, parse

TRIED = ("mean", "cls", "first-last", "last2", "first", "word")
# What the transform may become, from the gentlest to the strongest; a flow is too slow to train for each pooling.
TRANSFORMS = ("none", "whiten:gamma=0.5", "whiten:soft=1.0", "whiten:soft=0.1", "whiten")
LINEAR = ("none", "center", "standardize", "whiten")
STAND_IN = "whiten"
MARGIN = 0.1
TUNED = 0.05
# On Cranfield 200 passages put the poolings of an untuned BERT in the same order as 800, whatever the seed.
PASSAGES = 400
STAGE = "choosing a pooling"


@dataclass(frozen=True)
class PoolingCandidate:
    """How well a pooling agrees with BM25 through its best transform, and its gain over the model's own, 95 %."""

    pooling: str
    transform: str
    agreement: float
    gain: float
    low: float
    high: float


@dataclass(frozen=True)
class PoolingChoice:
    """What was chosen, from what, on which evidence."""

    chosen: str
    own: str
    reason: str
    candidates: tuple[PoolingCandidate, ...]
    queries: int
    passages: int
    margin: float
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def choose_pooling(
    documents: Sequence[Document],
    encoder: Encoder,
    transform: str,
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> PoolingChoice:
    """Compare the poolings on a sample of the documents, with the pooling that `encoder` has as the model's own.

    `transform` is what the collection will have: the spec of one, or "auto".
    """
    began = time.perf_counter()
    progress(STAGE, 0, None)
    own = encoder.identity.pooling
    texts, owners = sample_passages(documents, encoder, seed)
    questions = sample_questions(texts, owners, seed)
    found: tuple[PoolingCandidate, ...] = ()
    chosen, reason = own, questions.too_few
    if not reason:
        poolings = tuple(dict.fromkeys((own, *TRIED)))
        vectors = encoder.encode_poolings(
            [*texts, *questions.texts], poolings, lambda done, total: progress(STAGE, done, total)
        )
        judge = _Judge(questions, seed)
        best = {pooling: judge.best(rows, _transforms(transform)) for pooling, rows in vectors.items()}
        found = tuple(
            PoolingCandidate(pooling, through, *paired_gain(scores, best[own][1]))
            for pooling, (through, scores) in best.items()
        )
        chosen, reason = _decide(found, judge.worth_of_a_transform(vectors[own]))
    seconds = round(time.perf_counter() - began, 2)
    return PoolingChoice(chosen, own, reason, found, len(questions.texts), len(texts), MARGIN, seconds)


def sample_passages(documents: Sequence[Document], encoder: Encoder, seed: int) -> tuple[list[str], NDArray[np.int64]]:
    """Up to PASSAGES passages as the encoder gets them, as evenly from all documents as can be, and whose each is."""
    rng = np.random.default_rng(seed)
    budget, count_tokens = encoder.token_budget, encoder.count_tokens
    each = math.ceil(PASSAGES / max(len(documents), 1))
    texts: list[str] = []
    owners: list[int] = []
    for number in rng.permutation(len(documents))[:PASSAGES]:
        document = documents[number]
        title = fit_title(document.title, budget, count_tokens)
        passages = split(document.text, title, budget, count_tokens)
        for place in np.sort(rng.permutation(len(passages))[:each]):
            passage = passages[place]
            texts.append(encoded_text(title, document.text[passage.start : passage.end]))
            owners.append(int(number))
    return texts[:PASSAGES], np.array(owners[:PASSAGES], np.int64)


def _transforms(asked: str) -> tuple[str, ...]:
    if asked == AUTO:
        return TRANSFORMS
    return (asked,) if parse(asked).family in LINEAR else (STAND_IN,)


@dataclass(frozen=True)
class _Judge:
    """Agreement of vectors with the questions' BM25; rows are the passages' vectors and, after them, the questions'."""

    questions: Questions
    seed: int

    def best(self, rows: NDArray[np.float32], transforms: Sequence[str]) -> tuple[str, NDArray[np.float64]]:
        """The transform through which vectors agree best, and their agreement; "none" where no other can be fitted."""
        scores = self._scores(rows, transforms) or self._scores(rows, ["none"])
        best = max(scores, key=lambda spec: float(scores[spec].mean()))
        return best, scores[best]

    def worth_of_a_transform(self, rows: NDArray[np.float32]) -> float:
        """By how much of its score the best transform is better than none."""
        none = float(self._scores(rows, ["none"])["none"].mean())
        return float(self.best(rows, TRANSFORMS)[1].mean()) / max(none, 1e-9) - 1

    def _scores(self, rows: NDArray[np.float32], transforms: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        asked = len(self.questions.texts)
        passages, queries = rows[:-asked], rows[-asked:]
        # Fitted on both, as a collection's transform is fitted on passages and on short texts cut from them.
        fits = {spec: fit_candidate(spec, rows, self.seed) for spec in transforms}
        return {spec: self.questions.agreement(fit, queries, passages) for spec, fit in fits.items() if fit is not None}


def _decide(found: tuple[PoolingCandidate, ...], worth: float) -> tuple[str, str]:
    """`worth`: by how much a transform betters the model's own pooling."""
    own = found[0]
    best = max(found, key=lambda candidate: candidate.agreement)
    if best.pooling == own.pooling:
        return own.pooling, "no other pooling agrees better with the words of the text than the model's own"
    if worth < TUNED:
        return own.pooling, (
            f"the model's own is good as it is (the best transform gains {worth:.0%}), as in encoders tuned for "
            "similarity, and words are no judge of their other layers"
        )
    share = best.gain / max(own.agreement, 1e-9)
    if share < MARGIN or best.low <= 0:
        return own.pooling, (
            f"the best other pooling, {best.pooling}, is better than the model's own by {share:.0%}, "
            f"which is within the margin of {MARGIN:.0%} or within chance"
        )
    return best.pooling, (
        f"{best.pooling} agrees better with the words of the text than the model's own, {own.pooling}, by {share:.0%}"
    )
