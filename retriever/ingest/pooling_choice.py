"""Choose the pooling that fits corpus and encoder best, without labels, before anything is embedded.

The evidence is that of `retriever.transforms.choice`: sentences cut from passages serve as queries, and the ranking of
the other documents is compared with that of BM25. A sample goes through the model once, which gives every pooling of
it. Each pooling is judged by the best of a few transforms, or by the transform that the collection will have.

Another pooling must beat the model's own by MARGIN of its score, and by more than chance. The model's own is also kept
if the best transform improves it by less than TUNED, because BM25 favours the layers near the words. On random
Wikipedia sentences, all-MiniLM-L6-v2 agrees with BM25 by .40 with its own pooling, .52 with the first block and .55
with its input embeddings, yet its own retrieves best (Cranfield nDCG@10: 37.6, first 15.3, word 23.0). The gain of a
transform separates such encoders: at most 2 % for MiniLM on five sets; for a BERT that was never tuned for similarity
9 % on short sentences and 60 % on abstracts, where the layers near the words do retrieve best, in the order of BM25.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.corpus import Document
from retriever.corpus.passages import encoded_passages
from retriever.corpus.source import Source
from retriever.encoder.encoder import Encoder
from retriever.progress import Progress, silent
from retriever.settings import CollectionSettings, EncoderOptions
from retriever.transforms.choice import Questions, fit_candidate, paired_gain, sample_questions
from retriever.transforms.spec import AUTO, parse

TRIED = ("mean", "cls", "first-last", "last2", "first", "word")
# From the gentlest to the strongest transform. Training a flow for each pooling would take too long.
TRANSFORMS = ("none", "whiten:gamma=0.5", "whiten:soft=1.0", "whiten:soft=0.1", "whiten")
LINEAR = ("none", "center", "standardize", "whiten")
STAND_IN = "whiten"
MARGIN = 0.1
TUNED = 0.05
# On Cranfield, 200 passages rank the poolings of an untuned BERT in the same order as 800, with every seed.
PASSAGES = 400
STAGE = "choosing a pooling"


@dataclass(frozen=True)
class PoolingCandidate:
    """The agreement of a pooling with BM25 through its best transform, and its gain over the model's own pooling.

    `low` and `high` are the 95 % confidence interval of the gain.
    """

    pooling: str
    transform: str
    agreement: float
    gain: float
    low: float
    high: float


@dataclass(frozen=True)
class PoolingChoice:
    """The pooling chosen, the model's own, and the evidence."""

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


def with_chosen_pooling(
    settings: CollectionSettings, source: Source, options: EncoderOptions, progress: Progress
) -> CollectionSettings:
    """Choose the pooling of a new collection from the first documents of its source."""
    encoder = options.encoder(progress=progress)
    choice = choose_pooling(source.peek(), encoder, settings.index.transform, progress=progress)
    identity = replace(settings.encoder, pooling=choice.chosen)
    return replace(settings, encoder=identity, pooling_choice=choice.to_json())


def choose_pooling(
    documents: Sequence[Document],
    encoder: Encoder,
    transform: str,
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> PoolingChoice:
    """Compare poolings on a sample of the documents; the pooling of `encoder` counts as the model's own.

    `transform` is the transform that the collection will have: a spec, or "auto".
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
        tried = _candidates(transform)
        best = {pooling: _best(questions, rows, tried, seed) for pooling, rows in vectors.items()}
        found = tuple(
            PoolingCandidate(pooling, through, *paired_gain(scores, best[own][1]))
            for pooling, (through, scores) in best.items()
        )
        none = float(_agreement(questions, vectors[own], ["none"], seed)["none"].mean())
        transformed = float(_best(questions, vectors[own], TRANSFORMS, seed)[1].mean())
        chosen, reason = _decide(found, transformed / max(none, 1e-9) - 1)
    seconds = round(time.perf_counter() - began, 2)
    return PoolingChoice(chosen, own, reason, found, len(questions.texts), len(texts), MARGIN, seconds)


def sample_passages(documents: Sequence[Document], encoder: Encoder, seed: int) -> tuple[list[str], NDArray[np.int64]]:
    """Draw up to PASSAGES passages as the encoder reads them, evenly over the documents, and the document of each."""
    rng = np.random.default_rng(seed)
    each = math.ceil(PASSAGES / max(len(documents), 1))
    texts: list[str] = []
    owners: list[int] = []
    for number in rng.permutation(len(documents))[:PASSAGES]:
        passages = [text for _, _, text in encoded_passages(documents[number], encoder)]
        chosen = np.sort(rng.permutation(len(passages))[:each])
        texts += [passages[place] for place in chosen]
        owners += [int(number)] * len(chosen)
    return texts[:PASSAGES], np.array(owners[:PASSAGES], np.int64)


def _candidates(transform: str) -> tuple[str, ...]:
    if transform == AUTO:
        return TRANSFORMS
    return (transform,) if parse(transform).family in LINEAR else (STAND_IN,)


def _agreement(
    questions: Questions, rows: NDArray[np.float32], transforms: Sequence[str], seed: int
) -> dict[str, NDArray[np.float64]]:
    """Return the agreement with BM25 through each transform that can be fitted, one value per question.

    `rows` are the vectors of the passages followed by those of the questions. The fit sees both, as that of a
    collection sees passages and short texts.
    """
    passages, queries = rows[: -len(questions.texts)], rows[-len(questions.texts) :]
    fits = {spec: fit_candidate(spec, rows, seed) for spec in transforms}
    return {spec: questions.agreement(fit, queries, passages) for spec, fit in fits.items() if fit is not None}


def _best(
    questions: Questions, rows: NDArray[np.float32], transforms: Sequence[str], seed: int
) -> tuple[str, NDArray[np.float64]]:
    """Return the transform with the best agreement, "none" if no transform can be fitted, and the agreement."""
    scores = _agreement(questions, rows, transforms, seed) or _agreement(questions, rows, ["none"], seed)
    best = max(scores, key=lambda spec: float(scores[spec].mean()))
    return best, scores[best]


def _decide(found: tuple[PoolingCandidate, ...], worth: float) -> tuple[str, str]:
    """Return the pooling and the reason; `worth` is the relative gain of a transform with the model's own pooling."""
    own = found[0]
    best = max(found, key=lambda candidate: candidate.agreement)
    if best.pooling == own.pooling:
        return own.pooling, "no other pooling agrees better with the words of the text than the model's own"
    if worth < TUNED:
        return own.pooling, (
            f"the model's own is good as it is (the best transform gains {worth:.0%}), as in encoders tuned for "
            "similarity, whose other layers words cannot judge"
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
