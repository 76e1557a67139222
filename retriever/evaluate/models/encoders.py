"""The encoders of the benchmarks: any BERT with any pooling, and the label of each in tables."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import DEFAULT_ENCODER, EncoderIdentity

Batches = Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]


class TextEncoder:
    """An encoder with one pooling. `key` changes whenever the vectors would change."""

    def __init__(self, encoder: Encoder, label: str) -> None:
        self.encoder = encoder
        self.label = label
        self.pooling = encoder.identity.pooling
        self.dimension = encoder.identity.dimension

    @cached_property
    def key(self) -> str:
        return identity_digest(self.encoder.identity)

    @property
    def revision(self) -> str:
        return self.encoder.identity.weights

    def encode_batches(self, texts: Sequence[str], queries: bool = False) -> Batches:
        return self.encoder.encode_batches(texts, queries=queries)


def identity_digest(identity: EncoderIdentity, more: Mapping[str, str] | None = None) -> str:
    """Return the SHA-256 of everything that determines an encoder's vectors, i.e. of its identity without its name."""
    parts = {name: value for name, value in identity.to_json().items() if name != "name"} | dict(more or {})
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def open_encoders(
    names: Sequence[str] = (DEFAULT_ENCODER,),
    poolings: Sequence[str] = (),
    *,
    max_length: int | None = None,
    precision: str = "fp32",
    device: str = "auto",
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> list[TextEncoder]:
    """Open every encoder with every pooling. The default pooling is the encoder's own."""
    labels = labels_of(names or (DEFAULT_ENCODER,))
    opened = partial(
        Encoder,
        max_length=max_length,
        precision=precision,
        device=device,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
    )
    return [
        TextEncoder(opened(name, pooling=pooling), label)
        for name, label in labels.items()
        for pooling in dict.fromkeys(poolings) or (None,)
    ]


def labels_of(names: Sequence[str]) -> dict[str, str]:
    """Label each folder by the last part of its path, or by the whole path if two labels would be equal."""
    short = {name: Path(name).resolve().name if Path(name).expanduser().is_dir() else name for name in names}
    return {name: label if list(short.values()).count(label) == 1 else name for name, label in short.items()}
