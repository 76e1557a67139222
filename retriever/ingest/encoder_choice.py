"""Choose the precision of the encoder from the corpus, without labels, before anything is embedded.

This module also tells whether an encoder can read the corpus.

An encoder with 8-bit integers is about twice as fast on processors with VNNI, but changes every vector slightly. The
check cuts short texts from a sample of passages, uses them as queries, and ranks the passages with both precisions.
8-bit integers are chosen if two conditions hold:

- On average, at least KEPT of the ten nearest passages are the same with both precisions. This must hold for the raw
  vectors and for transformed vectors, because a whitening amplifies small errors.
- The Spearman correlation of all cosines is at least ALIKE.

all-MiniLM-L6-v2 passes: on Wikipedia and Cranfield, .93 and .94 of the nearest passages are the same, and .92 and .91
after whitening. A BERT that was never tuned for similarity does not pass: the figures are .94 and .96, but .88 and .86
after whitening.
"""

import math
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import unit_rows
from indexes.terms import is_unspaced
from retriever.corpus import Document
from retriever.corpus.passages import encoded_passages
from retriever.corpus.short_texts import short_texts
from retriever.corpus.source import Source
from retriever.encoder.encoder import Encoder
from retriever.errors import EncoderUnavailable
from retriever.progress import Progress, silent
from retriever.settings import CollectionSettings, EncoderOptions
from retriever.transforms.agreement import fit_candidate
from retriever.transforms.spec import AUTO, parse
from retriever.transforms.tuned import rank_correlation

# An encoder cannot read a text with a larger share of unknown tokens. Encoders with English vocabularies do not know
# .14 to .74 of Japanese and Chinese texts, and at most .002 of texts in English, German, Russian and Python.
UNKNOWN_SHARE = 0.1
SAMPLE_DOCUMENTS, SAMPLE_CHARACTERS = 200, 1000

_WORD = re.compile(r"\w+")

PASSAGES = 400

KEPT = 0.9
ALIKE = 0.99
NEAREST = 10
# With fewer documents, the check takes about as much time as 8-bit integers save.
FEWEST_DOCUMENTS = 1000
FEWEST_QUERIES = 50
QUERIES = 200
# Transforms that are used in the check in place of one that is not chosen or trained yet: the most common choice of
# "auto" other than "none", or a whitening that is as strong as the flow.
STAND_INS = {"auto": "whiten:soft=1.0", "flow": "whiten:soft=1.0", "bert-flow": "whiten"}


def unreadable(encoder: Encoder, texts: Sequence[str]) -> str:
    """Return the reason why the encoder cannot read these texts. Empty if it can."""
    share = encoder.unknown_share([text[:SAMPLE_CHARACTERS] for text in texts[:SAMPLE_DOCUMENTS]])
    return f"the encoder does not know {share:.0%} of the tokens of this text" if share > UNKNOWN_SHARE else ""


def pieces_per_word(encoder: Encoder, texts: Sequence[str]) -> float | None:
    """Return into how many tokens a word of these texts is cut on average, as evidence of how well they can be read.

    Scripts without spaces between words are left out. None if no other words are left.
    """
    words = [
        [word for word in _WORD.findall(text[:SAMPLE_CHARACTERS]) if not is_unspaced(word)]
        for text in texts[:SAMPLE_DOCUMENTS]
    ]
    count = sum(map(len, words))
    return round(sum(encoder.count_tokens(list(map(" ".join, words)))) / count, 2) if count else None


def is_pooling_open(source: Source, options: EncoderOptions) -> bool:
    """Return whether to choose a pooling if the user gave none.

    This is so if the model has no pooling of its own, or if it cannot read the text.
    """
    encoder = options.model()
    if not encoder.files.declares_pooling:
        return True
    return not encoder.files.static and bool(unreadable(encoder, [document.text for document in source.peek()]))


def sample_passages(
    documents: Sequence[Document], encoder: Encoder, seed: int, most: int = PASSAGES
) -> tuple[list[str], NDArray[np.int64]]:
    """Draw up to `most` passages, evenly from the documents.

    Return the text of each passage as the encoder reads it, and the position of its document.
    """
    rng = np.random.default_rng(seed)
    each = math.ceil(most / max(len(documents), 1))
    texts: list[str] = []
    owners: list[int] = []
    for number in rng.permutation(len(documents))[:most]:
        passages = [text for _, _, text in encoded_passages(documents[number], encoder)]
        chosen = np.sort(rng.permutation(len(passages))[:each])
        texts += [passages[place] for place in chosen]
        owners += [int(number)] * len(chosen)
    return texts[:most], np.array(owners[:most], np.int64)


@dataclass(frozen=True)
class PrecisionChoice:
    """The chosen precision and the evidence. The figures are None if nothing was compared."""

    chosen: str
    reason: str
    overlap: float | None = None
    """The share of the ten nearest passages that are the same with both precisions, by raw vectors."""
    overlap_transformed: float | None = None
    """The share of the ten nearest passages that are the same with both precisions, after `transform`."""
    transform: str = ""
    correlation: float | None = None
    queries: int = 0
    passages: int = 0
    seconds: float = 0.0


def with_chosen_precision(
    settings: CollectionSettings, source: Source, options: EncoderOptions, gpus: int, progress: Progress
) -> CollectionSettings:
    """Choose the precision of a new collection from its first documents. `gpus` counts GPUs of other machines."""
    single = replace(options, precision="fp32").model(settings.encoder, progress)
    if single.files.static:
        return settings
    if (gpus and options.device != "cpu") or single.device != "cpu":
        choice = PrecisionChoice("fp32", "8-bit integers are only used on CPUs, and this encoder runs on a GPU")
    else:
        integers = replace(options, precision="int8").model(settings.encoder, progress)
        documents, transform = source.peek(), settings.index.transform
        choice = choose_precision(documents, single, integers, transform, progress=progress)
    identity = replace(settings.encoder, precision=choice.chosen)
    return replace(settings, encoder=identity, precision_choice=asdict(choice))


def choose_precision(
    documents: Sequence[Document],
    single: Encoder,
    integers: Encoder,
    transform: str,
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> PrecisionChoice:
    """Compare both precisions on a sample of the documents. `transform` is the spec of the collection, or "auto"."""
    began = time.perf_counter()
    if len(documents) < FEWEST_DOCUMENTS:
        return PrecisionChoice("fp32", f"there are fewer than {FEWEST_DOCUMENTS:,} documents, too few to compare")
    passages = sample_passages(documents, single, seed)[0]
    queries = short_texts(passages, QUERIES, seed)
    if len(queries) < FEWEST_QUERIES:
        return PrecisionChoice(
            "fp32", f"only {len(queries)} short texts could be cut from the text, too few to compare"
        )
    texts, total = [*passages, *queries], 2 * (len(passages) + len(queries))
    rows: list[NDArray[np.float32]] = []
    try:
        for number, encoder in enumerate((single, integers)):
            progress("comparing precisions", number * len(texts), total)
            rows.append(np.concatenate([encoder.encode(passages), encoder.encode_queries(queries)]))
    except EncoderUnavailable as error:
        return PrecisionChoice("fp32", str(error))
    progress("comparing precisions", total, total)
    spec = STAND_INS.get(AUTO if transform == AUTO else parse(transform).family, transform)
    through = fit_candidate(spec, rows[0], seed)
    overlap = _overlap(rows[0], rows[1], len(passages))
    mapped = [through.apply(own) for own in rows] if through else rows
    transformed = _overlap(mapped[0], mapped[1], len(passages))
    correlation = _correlation(rows[0], rows[1], len(passages))
    kept = min(overlap, transformed) >= KEPT and correlation >= ALIKE
    shown = (
        f"{overlap:.0%} of the ten nearest passages are the same, {transformed:.0%} after {spec}, "
        f"and the cosines correlate by {correlation:.3f}"
    )
    needed = f"{KEPT:.0%} and {ALIKE} are needed"
    return PrecisionChoice(
        "int8" if kept else "fp32",
        f"8-bit integers {'keep' if kept else 'do not keep'} the ranking: {shown}; {needed}",
        overlap,
        transformed,
        spec,
        correlation,
        len(queries),
        len(passages),
        round(time.perf_counter() - began, 2),
    )


def _cosines(rows: NDArray[np.float32], passages: int) -> NDArray[np.float32]:
    unit = unit_rows(rows)
    return np.asarray(unit[passages:] @ unit[:passages].T)


def _overlap(ours: NDArray[np.float32], theirs: NDArray[np.float32], passages: int) -> float:
    """Return the average share of the nearest passages of a query that are the same by both sets of vectors."""
    first, second = (np.argsort(-_cosines(rows, passages), axis=1)[:, :NEAREST] for rows in (ours, theirs))
    shared = [len(set(a) & set(b)) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    return float(np.mean(shared)) / NEAREST


def _correlation(ours: NDArray[np.float32], theirs: NDArray[np.float32], passages: int) -> float:
    return rank_correlation(_cosines(ours, passages).ravel(), _cosines(theirs, passages).ravel())
