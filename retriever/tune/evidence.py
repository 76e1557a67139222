"""Measures an encoder without labels, on passages that it was not tuned on.

The main figure is the agreement with BM25 about the passages of other documents, by which `auto` chooses a transform.
The second figure is the contrastive loss of the halves of passages: how well one half finds the other half.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import unit_rows
from retriever.encoder.encoder import Encoder
from retriever.errors import Misuse
from retriever.transforms import fit
from retriever.transforms.agreement import Questions, agreement_of, sample_questions
from retriever.transforms.tuned import WHITENINGS, judge
from retriever.tune.texts import Texts, halves

MOST_HALVES = 128
SCALE = 20.0
"""Cosines are multiplied by this before the softmax. SimCSE calls its inverse the temperature, 0.05."""

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True)
class Measurement:
    """The agreement with BM25 (nDCG@10, higher is better), and the loss of halves (lower is better)."""

    agreement: float
    loss: float


class Evidence:
    """Held-out passages, and questions about them."""

    def __init__(self, texts: Texts, seed: int) -> None:
        self.passages = list(texts.held_out)
        self.questions: Questions = sample_questions(self.passages, np.array(texts.documents, np.int64), seed)
        if reason := self.questions.too_few:
            raise Misuse(
                f"there is too little text to measure whether tuning helps: in {len(self.passages):,} held-out "
                f"passages, {reason}. Give more text, or use the encoder as it is."
            )
        self.halves = [pair for pair in map(halves, self.passages) if pair][:MOST_HALVES]

    @property
    def texts(self) -> list[str]:
        return [*self.questions.texts, *self.passages]

    def agreement(self, vectors: NDArray[np.float32]) -> float:
        """Return the mean agreement with BM25. `vectors` are the vectors of `texts`."""
        if not np.isfinite(vectors).all():
            return 0.0
        queries, passages = np.split(vectors, [len(self.questions.texts)])
        return float(self.questions.agreement(fit("none", passages), queries, passages).mean())

    def looks_tuned(self, encoder: Encoder) -> bool:
        """Return whether the vectors of an encoder look tuned for similarity, before it is tuned on this text."""
        queries, passages = encoder.encode_queries(self.questions.texts), encoder.encode(self.passages)
        sample = np.concatenate([passages, queries])
        scores = agreement_of(("none", *WHITENINGS), self.questions, queries, passages, sample, 0)
        files = encoder.files
        declared = files.declares_pooling and encoder.identity.pooling == files.own_pooling
        return judge(self.questions, queries, passages, scores, declared=declared).tuned

    def measure(self, encode: Encode) -> Measurement:
        return Measurement(round(self.agreement(encode(self.texts)), 4), round(self._loss(encode), 4))

    def _loss(self, encode: Encode) -> float:
        if len(self.halves) < 2:
            return 0.0
        first, second = (unit_rows(encode(side)) for side in zip(*self.halves, strict=True))
        scores = SCALE * (first @ second.T).astype(np.float64)
        highest = scores.max(axis=1, keepdims=True)
        logarithms = np.log(np.exp(scores - highest).sum(axis=1)) + highest[:, 0]
        return float((logarithms - np.diag(scores)).mean())
