"""Choose the pooling that fits the corpus and the encoder best, without labels, before anything is embedded.

The evidence is collected as in `retriever.transforms.choice`: sentences cut from passages serve as queries, and the
ranking of the other documents is compared with the ranking by BM25. The model encodes a sample once, and the vectors of
every pooling are computed from that. Each pooling is judged with the best of a few transforms, or with the transform
that the collection will have.

Another pooling is chosen only if its agreement with BM25 is higher than that of the model's own pooling by a share of
MARGIN, and by more than chance. The model's own pooling is also kept if the best transform improves it by less than
TUNED. The reason is that BM25 favours the layers near the words. On random Wikipedia sentences, all-MiniLM-L6-v2 agrees
with BM25 by .40 with its own pooling, by .52 with the first block and by .55 with its input embeddings. Yet its own
pooling retrieves best: nDCG@10 on Cranfield is 37.6, against 15.3 with `first` and 23.0 with `word`.

The gain of a transform tells whether an encoder was tuned for similarity. For MiniLM, the gain is at most 2 % on five
sets. For a BERT that was never tuned for similarity, it is 9 % on short sentences and 60 % on abstracts. With that
BERT, the layers near the words do retrieve best, and the order of the poolings is the one that BM25 predicts.
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
# Ordered from the gentlest to the strongest transform. A flow is left out, because training one per pooling is slow.
TRANSFORMS = ("none", "whiten:gamma=0.5", "whiten:soft=1.0", "whiten:soft=0.1", "whiten")
LINEAR = ("none", "center", "standardize", "whiten")
STAND_IN = "whiten"
MARGIN = 0.1
TUNED = 0.05
# On Cranfield, 200 passages and 800 passages rank the poolings of an untuned BERT in the same order, with every seed.
PASSAGES = 400
STAGE = "choosing a pooling"


@dataclass(frozen=True)
class PoolingCandidate:
    """The agreement of a pooling with BM25, and its gain over the model's own pooling.

    `transform` is the transform with the best agreement. `low` and `high` are the 95 % confidence interval of the gain.
    """

    pooling: str
    transform: str
    agreement: float
    gain: float
    low: float
    high: float


@dataclass(frozen=True)
class PoolingChoice:
    """The chosen pooling, the model's own pooling, and the evidence."""

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
    """Compare poolings on a sample of the documents.

    The pooling that `encoder` has now is treated as the model's own pooling. `transform` is the transform that
    the collection will have: a spec, or "auto".
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
    """Draw up to PASSAGES passages, evenly from the documents.

    Return the text of each passage as the encoder reads it, and the position of its document.
    """
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
    """Return the agreement with BM25 for each transform that can be fitted, as one value per question.

    `rows` holds the vectors of the passages, followed by the vectors of the questions. The transform is fitted on both,
    just as the transform of a collection is fitted on passages and short texts.
    """
    passages, queries = rows[: -len(questions.texts)], rows[-len(questions.texts) :]
    fits = {spec: fit_candidate(spec, rows, seed) for spec in transforms}
    return {spec: questions.agreement(fit, queries, passages) for spec, fit in fits.items() if fit is not None}


def _best(
    questions: Questions, rows: NDArray[np.float32], transforms: Sequence[str], seed: int
) -> tuple[str, NDArray[np.float64]]:
    """Return the transform with the best agreement, and the agreement. Use "none" if no transform can be fitted."""
    scores = _agreement(questions, rows, transforms, seed) or _agreement(questions, rows, ["none"], seed)
    best = max(scores, key=lambda spec: float(scores[spec].mean()))
    return best, scores[best]


def _decide(found: tuple[PoolingCandidate, ...], worth: float) -> tuple[str, str]:
    """Return the pooling and the reason. `worth` is the relative gain of a transform with the model's own pooling."""
    own = found[0]
    best = max(found, key=lambda candidate: candidate.agreement)
    if best.pooling == own.pooling:
        return own.pooling, "no other pooling agrees better with the words of the text than the model's own pooling"
    if worth < TUNED:
        return own.pooling, (
            f"the encoder seems to be tuned for similarity (the best transform gains only {worth:.0%}), so the model's "
            "own pooling is kept"
        )
    share = best.gain / max(own.agreement, 1e-9)
    if share < MARGIN or best.low <= 0:
        return own.pooling, (
            f"the best other pooling, {best.pooling}, is better than the model's own pooling by {share:.0%}, "
            f"which is within the margin of {MARGIN:.0%} or within chance"
        )
    return best.pooling, (
        f"{best.pooling} agrees with the words of the text better by {share:.0%} than the model's own pooling, "
        f"{own.pooling}"
    )
