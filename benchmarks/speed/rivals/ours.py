"""Our own system, used through its public API.

With given vectors, the whole ingestion runs (splitting, storing, FAISS) with `--transform none` and an encoder that
looks the vectors up. Without vectors, `Retriever.build` runs with all defaults, the choices of `auto` included.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.rivals import Documents, Found, Matrix, Queries, Rival, StoredVectors
from retriever import Retriever
from retriever.encoder.base import AnyEncoder
from retriever.encoder.batches import Encoding, TokenBatch
from retriever.encoder.encoder import Encoder
from retriever.errors import RetrieverError

BATCH = 32


class LookingUp(Encoder):
    """The real encoder, except that it looks up known vectors.

    Other texts, e.g. those that tune an index, are encoded.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, device="cpu")
        self.given = 0
        self._queries: dict[str, Matrix] = {}
        self._known_rows: dict[str, int] = {}
        self._vectors: StoredVectors | None = None

    def know(self, queries: Queries) -> None:
        assert queries.vectors is not None
        self._queries = dict(zip(queries.texts, queries.vectors, strict=True))

    def stream(self, documents: Documents, vectors: StoredVectors) -> Iterator[dict[str, Any]]:
        """Yield the documents. The row of each document is remembered until the document is encoded."""
        self._vectors = vectors
        for row, (id_, text) in enumerate(documents):
            self._known_rows[text] = row
            yield {"id": id_, "text": text}

    def encode_batches(
        self, texts: Sequence[str], *, queries: bool = False
    ) -> Iterator[tuple[NDArray[np.int64], Matrix]]:
        for places, tokens in _batches(len(texts)):
            yield places, self._look_up(texts, tokens)

    def encoding(self, texts: Sequence[str], *, queries: bool = False) -> Encoding[list[int]]:
        return Encoding(_batches(len(texts)), lambda tokens: self._look_up(texts, tokens), workers=1)

    def _look_up(self, texts: Sequence[str], tokens: list[list[int]]) -> Matrix:
        self.given += len(tokens)
        return np.concatenate([self._vector(texts[place]) for (place,) in tokens])

    def _vector(self, text: str) -> Matrix:
        if text in self._queries:
            return self._queries[text][None]
        row = self._known_rows.pop(text, None)
        if row is not None and self._vectors is not None:
            return self._vectors.rows(row, row + 1)
        return self.encode_tokens([self._truncating_tokenizer.encode(text).ids])


def _batches(count: int) -> Iterator[TokenBatch]:
    """Yield batches of texts. Each text is represented by its position instead of its tokens."""
    for start in range(0, count, BATCH):
        places = np.arange(start, min(start + BATCH, count))
        yield places, [[place] for place in places.tolist()]


class Fed(Retriever):
    """A collection whose encoder can be replaced."""

    looking_up: LookingUp | None = None

    def encoder(self) -> AnyEncoder:
        return self.looking_up or super().encoder()


class System(Rival):
    """A collection with the default index type. It is searched by meaning alone, as the other systems are."""

    def ingest(self, documents: Documents, vectors: StoredVectors | None) -> None:
        own: dict[str, Any] = {"encoder": self.model, "device": "cpu"}
        if vectors is None:
            Retriever.build(({"id": id_, "text": text} for id_, text in documents), self.folder, **own).close()
            return
        encoder = LookingUp(self.model)

        class Given(Fed):
            looking_up = encoder

        stream, options = encoder.stream(documents, vectors), {"transform": "none", "precision": "fp32", **own}
        with Given.build(stream, self.folder, **options) as collection:
            embedded = collection.report.texts_embedded
        if encoder.given < embedded:
            used = f"the given vectors were used for only {encoder.given:,} of them."
            raise RetrieverError(f"{embedded:,} texts were embedded, but {used}")

    def open(self) -> None:
        self._retriever = Fed.open(self.folder, encoder=self.model, device="cpu")
        self._looking_up = LookingUp(self.model)

    def search(self, queries: Queries, k: int) -> list[list[Found]]:
        self._retriever.looking_up = None
        if queries.vectors is not None:
            self._looking_up.know(queries)
            self._retriever.looking_up = self._looking_up
        found = self._retriever.search_many(list(queries.texts), k, mode="dense")
        return [[Found(hit.id, hit.passage) for hit in hits] for hits in found]

    def encode(self, texts: Sequence[str]) -> Matrix:
        self._retriever.looking_up = None
        return self._retriever.encoder().encode(texts)

    def close(self) -> None:
        self._retriever.close()
