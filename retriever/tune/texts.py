"""The text that an encoder is tuned on: passages, held-out passages, and pairs of texts that belong together.

There are two kinds of pairs. A crop is a run of sentences of a passage, paired with the rest of the passage. For
unsupervised SimCSE (Gao et al. 2021), a text is paired with itself: dropout gives it two different vectors. Each of the
two copies also loses some of its words, which makes the task harder. In one run without lost words, with the un-tuned
DistilBERT of `retriever bench model`, similarity stopped rising after 30 steps and was 3 points lower after 80 steps. A
passage of one sentence has no crops.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from retriever.corpus import Document
from retriever.corpus.passages import Tokenizes, encoded_passages, sentences
from retriever.corpus.short_texts import word_units
from retriever.corpus.source import Documents, OnError, Source
from retriever.errors import Misuse

MOST_DOCUMENTS, MOST_CHARACTERS = 50_000, 20_000
# Share of the documents that are held out, and the maximum number of passages in them.
HELD_OUT, MOST_HELD_OUT = 0.2, 300
FEWEST_WORDS, FEWEST_PASSAGES = 3, 64
CROPS = 0.5
"""Share of the pairs that are crops, among passages of at least two sentences."""
LEFT_OUT = 0.3
"""Share of the words that each copy of a text loses."""
LEAST_PAIRS = 50_000
# Batches are formed from this many batches' worth of pairs, sorted by length, so that there is little padding.
WINDOW = 32

Pair = tuple[str, str]


@dataclass(frozen=True)
class Texts:
    """The passages to tune on, and held-out passages with the number of the document of each."""

    training: Sequence[str]
    held_out: Sequence[str]
    documents: Sequence[int]

    def sha256(self) -> str:
        """Return a hash of all passages. It does not depend on which of them are held out."""
        digest = hashlib.sha256()
        for text in sorted((*self.training, *self.held_out)):
            digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
        return digest.hexdigest()


def read_texts(documents: Documents, tokenizer: Tokenizes, on_error: OnError = "skip", seed: int = 0) -> Texts:
    """Read a random sample of the documents, split them into passages, and hold some documents out.

    Passages that occur twice are used once. Passages of fewer than FEWEST_WORDS words are not used.
    """
    source = Source(documents)
    source.refuse_if_empty(on_error)
    rng = np.random.default_rng(seed)
    sample = _sample((item for item in source if isinstance(item, Document)), rng)
    order = rng.permutation(len(sample))
    seen: set[str] = set()
    training: list[str] = []
    held_out: list[str] = []
    numbers: list[int] = []
    for place in order:
        document = sample[place]
        found = []
        for _, _, text in encoded_passages(document, tokenizer):
            if len(word_units(text)[0]) >= FEWEST_WORDS and text not in seen:
                seen.add(text)
                found.append(text)
        if place < HELD_OUT * len(sample) and len(held_out) < MOST_HELD_OUT:
            held_out += found
            numbers += [int(place)] * len(found)
        else:
            training += found
    if len(training) < FEWEST_PASSAGES:
        raise Misuse(
            f"there are only {len(training):,} different passages of at least {FEWEST_WORDS} words to tune on, in "
            f"{len(sample):,} documents; at least {FEWEST_PASSAGES} are needed. Give more text, or use the encoder as "
            "it is."
        )
    return Texts(training, held_out[:MOST_HELD_OUT], numbers[:MOST_HELD_OUT])


def _sample(documents: Iterable[Document], rng: np.random.Generator) -> list[Document]:
    """Draw up to MOST_DOCUMENTS documents with equal probability (reservoir sampling), and cut long ones."""
    sample: list[Document] = []
    for number, document in enumerate(documents):
        short = Document(document.id, document.text[:MOST_CHARACTERS], document.title[:MOST_CHARACTERS])
        if len(sample) < MOST_DOCUMENTS:
            sample.append(short)
        elif (place := int(rng.integers(number + 1))) < MOST_DOCUMENTS:
            sample[place] = short
    return sample


def training_pairs(passages: Sequence[str], batch_size: int, seed: int) -> list[Pair]:
    """Return pairs in the order of training: each `batch_size` consecutive pairs are a batch of similar length.

    Each round makes one pair of each passage. A batch never holds two pairs of the same passage.
    """
    rng = np.random.default_rng(seed)
    ordered: list[Pair] = []
    while len(ordered) < LEAST_PAIRS:
        pairs = [_pair(passages[place], rng) for place in rng.permutation(len(passages))]
        batches = []
        for start in range(0, len(pairs), WINDOW * batch_size):
            window = sorted(pairs[start : start + WINDOW * batch_size], key=lambda pair: max(map(len, pair)))
            batches += [window[a : a + batch_size] for a in range(0, len(window) - batch_size + 1, batch_size)]
        ordered += [pair for place in rng.permutation(len(batches)) for pair in batches[place]]
    return ordered


def _pair(passage: str, rng: np.random.Generator) -> Pair:
    spans = sentences(passage)
    if len(spans) < 2 or rng.random() >= CROPS:
        return _with_gaps(passage, rng), _with_gaps(passage, rng)
    size = int(rng.integers(1, len(spans) // 2 + 1))
    start = int(rng.integers(0, len(spans) - size + 1))
    first, last = spans[start][0], spans[start + size - 1][1]
    return passage[first:last].strip(), f"{passage[:first].strip()} {passage[last:].strip()}".strip()


def _with_gaps(passage: str, rng: np.random.Generator) -> str:
    units, separator = word_units(passage)
    kept = [unit for unit, number in zip(units, rng.random(len(units)), strict=True) if number >= LEFT_OUT]
    return separator.join(kept or units)


def halves(passage: str) -> Pair | None:
    """Return the first and the second half of a passage, or None if a half would be shorter than FEWEST_WORDS."""
    units, separator = word_units(passage)
    middle = len(units) // 2
    if middle < FEWEST_WORDS:
        return None
    return separator.join(units[:middle]), separator.join(units[middle:])
