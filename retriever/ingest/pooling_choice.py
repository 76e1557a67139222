"""Choose the pooling of the encoder from the corpus, without labels, before anything is embedded.

1. A sample of passages is encoded once, and the vectors of every pooling are computed from that. The sample is as large
   as the time limit allows. Its passages have at most SAMPLE_TOKENS tokens.
2. `retriever.transforms.tuned` judges the vectors of the model's own pooling. If the model has no pooling config, it
   judges the mean and the first token of the last layer. A tuned encoder keeps its pooling, unless it cannot read the
   text because many tokens are unknown to it.
3. For an untuned encoder, the poolings are compared by their agreement with BM25, each with the best of a few
   transforms, or with the transform that the collection will have. One candidate is a table of the corpus's words,
   "learned". It is cheap, and it is chosen unless another pooling agrees better by more than chance.

A tuned encoder must not be judged by BM25, which favours the layers near the words. On random Wikipedia sentences,
all-MiniLM-L6-v2 agrees with BM25 by .40 with its own pooling and by .55 with its input embeddings. Yet its own pooling
retrieves best: nDCG@10 on Cranfield is 37.6, against 23.0 with `word`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from retriever.corpus import Document
from retriever.corpus.passages import encoded_text
from retriever.corpus.source import Source
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import LEARNED, UNTUNED_POOLING
from retriever.encoder.static.words import word_table
from retriever.ingest.encoder_choice import sample_passages, unreadable
from retriever.progress import Progress, silent
from retriever.settings import CollectionSettings, EncoderOptions
from retriever.transforms.agreement import Questions, agreement_of, paired_gain, sample_questions
from retriever.transforms.spec import AUTO, parse
from retriever.transforms.tuned import WHITENINGS, Verdict, judge

TRIED = ("mean", "cls", "first-last", "last2", "first", "word")
LAST_LAYER = ("mean", "cls")
# Ordered from the gentlest to the strongest transform. A flow is left out, because training one per pooling is slow.
TRANSFORMS = ("none", *WHITENINGS)
LINEAR = ("none", "center", "standardize", "whiten")
STAND_IN = "whiten"

STAGE = "choosing a pooling"
# The choice takes at most this many seconds, or this share of the expected time of the ingestion if that is more.
SECONDS = 60.0
SHARE = 0.1
# The share of that time that is spent on encoding. The rest is for fitting transforms.
ENCODING = 0.6
# On Cranfield, 200 passages and 800 passages rank the poolings of an untuned BERT in the same order, with every seed.
PASSAGES = 200
FEWEST_PASSAGES = 100
SAMPLE_TOKENS = 64
PACE_TEXTS = 16
# Texts are encoded in blocks of random texts, so that the progress is proportional to the time. Fitting the transforms
# of a pooling counts as much as a block.
BLOCK = 32

MEANINGS = {
    LEARNED: "A table of the corpus's own words is used, with vectors made from the model's input embeddings. "
    "The transformer's layers are not used at all",
    "word": "A text is the average of the input embeddings of its tokens. The transformer's layers are not used at all",
    "first": "A text is the average of the first layer's output. The other layers of the transformer are not used",
    "first-last": "A text is the average of the first and last layers' output",
    "last2": "A text is the average of the last two layers' output",
    "mean": "A text is the average of the last layer's output",
    "max": "A text is the maximum of the last layer's output",
    "cls": "A text is the last layer's output for the first token",
}

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
Learn = Callable[[Sequence[str]], Encode]
"""Learns a table of words from texts, and returns the function that encodes texts with it."""


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
    tokens: int
    """The maximum number of tokens of a passage of the sample."""
    seconds: float
    verdict: Verdict | None = None
    """Whether the encoder looks tuned for similarity. None if there is too little text to judge."""


@dataclass(frozen=True)
class Sample:
    """Passages, and questions that were cut from them. Poolings are compared on their vectors."""

    texts: Sequence[str]
    questions: Questions
    seed: int

    @property
    def all_texts(self) -> list[str]:
        return [*self.texts, *self.questions.texts]

    def scores(self, rows: NDArray[np.float32], specs: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Return the agreement with BM25 for each transform that can be fitted, as one value per question.

        `rows` holds the vectors of the passages, followed by the vectors of the questions. The transform is fitted on
        both, just as the transform of a collection is fitted on passages and short texts.
        """
        passages, queries = self.split(rows)
        return agreement_of(specs, self.questions, queries, passages, rows, self.seed)

    def split(self, rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return rows[: len(self.texts)], rows[len(self.texts) :]

    def verdict(self, rows: NDArray[np.float32], declared: bool) -> Verdict:
        passages, queries = self.split(rows)
        return judge(self.questions, queries, passages, self.scores(rows, TRANSFORMS), declared=declared)

    def best(self, rows: NDArray[np.float32], specs: Sequence[str]) -> tuple[str, NDArray[np.float64]]:
        """Return the transform with the best agreement, and the agreement. Use "none" if nothing can be fitted."""
        scores = self.scores(rows, specs) or self.scores(rows, ["none"])
        best = max(scores, key=lambda spec: float(scores[spec].mean()))
        return best, scores[best]


def with_chosen_pooling(
    settings: CollectionSettings, source: Source, options: EncoderOptions, progress: Progress
) -> CollectionSettings:
    """Choose the pooling of a new collection from the first documents of its source. A word table has only one."""
    encoder = options.model(progress=progress)
    if encoder.files.static:
        return settings
    documents, prompts = source.peek(), encoder.identity.query_prompt or encoder.identity.document_prompt
    choice = choose_pooling(
        documents,
        encoder,
        settings.index.transform,
        # A learned table has no prompts, and an encoder with prompts was tuned with them.
        learn=None if prompts else lambda texts: word_table(texts, encoder).encode,
        fraction=source.fraction_taken,
        progress=progress,
    )
    identity = replace(settings.encoder, pooling=choice.chosen)
    return replace(settings, encoder=identity, pooling_choice=asdict(choice))


def choose_pooling(
    documents: Sequence[Document],
    encoder: Encoder,
    transform: str,
    *,
    learn: Learn | None = None,
    fraction: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> PoolingChoice:
    """Compare poolings on a sample of the documents.

    The pooling that `encoder` has now is treated as the model's own pooling. `transform` is the transform that
    the collection will have: a spec, or "auto". `learn` makes the candidate "learned"; without it, there is none.
    `fraction` is the share of the whole source that the documents are; None if that is unknown.
    """
    began = time.perf_counter()
    progress(STAGE, 0, None)
    own = encoder.identity.pooling
    tokens = min(SAMPLE_TOKENS, encoder.identity.max_length)
    short = Encoder(
        encoder.identity.name,
        max_length=tokens,
        device=encoder.requested_device,
        stored=replace(encoder.identity, precision="fp32"),
    )
    texts, owners = sample_passages(documents, short, seed, PASSAGES)
    sample = Sample(texts, sample_questions(texts, owners, seed), seed)
    if not sample.questions.too_few:
        pace = _seconds_per_character(short, texts)
        expected = pace * sum(document.characters() for document in documents) / (fraction or 1)
        left = ENCODING * max(SECONDS, SHARE * expected) - (time.perf_counter() - began)
        sample = _fitting(sample, owners, left / pace)
    found: tuple[PoolingCandidate, ...] = ()
    verdict: Verdict | None = None
    too_few = sample.questions.too_few
    chosen, reason = own, f"{too_few}, so no other pooling was compared. {MEANINGS[own]}"
    if not too_few:
        # In some models, e.g. ALBERT and ELECTRA, the input embeddings have fewer dimensions than the layers.
        same = short.torch_model.input_dimension == short.identity.dimension
        tried = [pooling for pooling in TRIED if same or pooling != "word"]
        poolings, texts = tuple(dict.fromkeys((own, *tried))), sample.all_texts
        total = len(texts) + BLOCK * len(poolings)

        def report(done: int) -> None:
            progress(STAGE, done, total)

        rows = _encode(short, texts, len(sample.texts), poolings, seed, report)
        whole = [encoded_text(document.title, document.text) for document in documents]
        learned = partial(learn, whole) if learn else None
        chosen, reason, found, verdict = _compare(sample, rows, short, _specs(transform), learned, report)
        report(total)
    seconds = round(time.perf_counter() - began, 2)
    count = len(sample.questions.texts)
    return PoolingChoice(chosen, own, reason, found, count, len(sample.texts), tokens, seconds, verdict)


# ---- the sample ----------------------------------------------------------------------------------------------


def _seconds_per_character(encoder: Encoder, texts: Sequence[str]) -> float:
    """Measure the pace of the encoder on a few texts, without the time to load it."""
    own = [encoder.identity.pooling]
    encoder.encode_poolings(texts[:1], own)
    few = texts[:PACE_TEXTS]
    began = time.perf_counter()
    encoder.encode_poolings(few, own)
    return (time.perf_counter() - began) / max(sum(map(len, few)), 1)


def _fitting(sample: Sample, owners: NDArray[np.int64], characters: float) -> Sample:
    """Return a sample with about this many characters at most, but with at least FEWEST_PASSAGES passages."""
    share = characters / sum(map(len, sample.all_texts))
    count = max(FEWEST_PASSAGES, int(len(sample.texts) * share))
    if count >= len(sample.texts):
        return sample
    return Sample(
        sample.texts[:count], sample_questions(sample.texts[:count], owners[:count], sample.seed), sample.seed
    )


def _encode(
    encoder: Encoder,
    texts: Sequence[str],
    passages: int,
    poolings: Sequence[str],
    seed: int,
    progress: Callable[[int], None],
) -> dict[str, NDArray[np.float32]]:
    """Return the vectors of each pooling, and report the progress after each block.

    The first texts, as many as `passages`, are passages. The others are queries.
    """
    rows = {pooling: np.empty((len(texts), encoder.identity.dimension), np.float32) for pooling in poolings}
    order = np.random.default_rng(seed).permutation(len(texts))
    for start in range(0, len(texts), BLOCK):
        progress(start)
        block = order[start : start + BLOCK]
        for queries in (False, True):
            own = block[(block >= passages) == queries]
            found = encoder.encode_poolings([texts[number] for number in own], poolings, queries=queries)
            for pooling, vectors in found.items():
                rows[pooling][own] = vectors
    return rows


# ---- the decision --------------------------------------------------------------------------------------------


def _specs(transform: str) -> tuple[str, ...]:
    if transform == AUTO:
        return TRANSFORMS
    return (transform,) if parse(transform).family in LINEAR else (STAND_IN,)


def _compare(
    sample: Sample,
    rows: Mapping[str, NDArray[np.float32]],
    encoder: Encoder,
    specs: Sequence[str],
    learned: Callable[[], Encode] | None,
    progress: Callable[[int], None],
) -> tuple[str, str, tuple[PoolingCandidate, ...], Verdict]:
    """Return the pooling, the reason, the candidates and the verdict."""
    own, files = encoder.identity.pooling, encoder.files
    declared = files.declares_pooling and own == files.own_pooling
    judged = LAST_LAYER if own == UNTUNED_POOLING and not declared else (own,)
    verdicts = {pooling: sample.verdict(rows[pooling], declared) for pooling in judged}
    unread = unreadable(encoder, sample.texts)
    tuned = [] if unread else [pooling for pooling in judged if verdicts[pooling].tuned]
    if tuned:
        best = {pooling: sample.best(rows[pooling], ["none"]) for pooling in dict.fromkeys((own, *tuned))}
        chosen = _preferred({pooling: best[pooling][1] for pooling in tuned}, tuned[0])
    else:
        best = {}
        for number, (pooling, vectors) in enumerate(rows.items()):
            progress(len(sample.all_texts) + BLOCK * number)
            best[pooling] = sample.best(vectors, specs)
        if learned:
            best[LEARNED] = sample.best(learned()(sample.all_texts), ["none"])
        chosen = _preferred({pooling: scores for pooling, (_, scores) in best.items()}, LEARNED if learned else own)
    found = tuple(
        PoolingCandidate(pooling, spec, *paired_gain(scores, best[own][1])) for pooling, (spec, scores) in best.items()
    )
    verdict = verdicts.get(chosen, verdicts[judged[0]])
    seen = unread or verdict.describe()
    reason = _compared(chosen, found, seen) if not tuned else _kept(chosen, own, seen)
    return chosen, f"{reason}. {MEANINGS[chosen]}", found, verdict


def _preferred(scores: Mapping[str, NDArray[np.float64]], default: str) -> str:
    """Return the pooling with the best agreement if it is better than the default by more than chance."""
    best = max(scores, key=lambda pooling: float(scores[pooling].mean()))
    _, _, low, _ = paired_gain(scores[best], scores[default])
    return best if low > 0 else default


def _kept(chosen: str, own: str, seen: str) -> str:
    kept = "its own pooling is kept" if chosen == own else f"the pooling {chosen} of its last layer is used"
    return f"{seen}, so {kept}"


def _compared(chosen: str, found: Sequence[PoolingCandidate], seen: str) -> str:
    if max(found, key=lambda candidate: candidate.agreement).pooling == chosen:
        return f"{seen}; of {len(found)} poolings, {chosen} agrees best with a search by words"
    return (
        f"{seen}; {chosen} is used, because no other pooling agrees better with a search by words by more than chance"
    )
