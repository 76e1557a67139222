"""Measure the speed of encoders: ours and sentence-transformers alternate over chunks of texts."""

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.speed.process import measured
from benchmarks.speed.rivals import OURS, Matrix, SentenceTransformersEncoder
from indexes.faiss.vectors import unit_rows
from retriever.encoder.encoder import Encoder

CHUNK = 256
WARM_UP = 64
SENTENCE_TRANSFORMERS = "sentence-transformers"

Encode = Callable[[Sequence[str]], Matrix]


def encoder_names(precisions: Sequence[str]) -> list[str]:
    return [*(f"{OURS} {precision}" for precision in precisions), SENTENCE_TRANSFORMERS]


def encode_in_turns(model: str, texts: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Return the seconds of each encoder, and the mean cosine of its vectors with those of sentence-transformers."""
    encoders = {name: _encoder(name, model) for name in names}
    for encode in encoders.values():
        encode(texts[:WARM_UP])
    costs = {name: {"wall_seconds": 0.0, "cpu_seconds": 0.0} for name in encoders}
    cosines = dict.fromkeys(names, 0.0)
    for turn, start in enumerate(range(0, len(texts), CHUNK)):
        chunk = texts[start : start + CHUNK]
        found = {}
        for name in rotated(names, turn):
            with measured() as cost:
                found[name] = encoders[name](chunk)
            for key, value in cost.items():
                costs[name][key] += value
        for name in encoders:
            cosines[name] += float((unit_rows(found[name]) * unit_rows(found[SENTENCE_TRANSFORMERS])).sum())
    return {name: {**costs[name], "cosine": cosines[name] / len(texts), "sentences": len(texts)} for name in encoders}


def _encoder(name: str, model: str) -> Encode:
    if name == SENTENCE_TRANSFORMERS:
        return SentenceTransformersEncoder(model).encode
    return Encoder(model, precision=name.removeprefix(f"{OURS} "), device="cpu").encode


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """Return the names in rotated order, so that each turn starts with a different name."""
    first = turn % max(len(names), 1)
    return [*names[first:], *names[:first]]
