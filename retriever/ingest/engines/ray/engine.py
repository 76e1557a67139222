"""The engine that ingests with the workers of a Ray cluster.

    reader, on this machine ──split documents──────▶ this process ──batches──▶ workers, one encoder each
                                                       │   ▲                      │
                                             SQLite ◀──┘   └────────vectors───────┘

This process makes the windows and the batches and stores the results, with the same code as without Ray.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from indexes.rows import VECTOR_TYPE
from retriever.encoder.batches import Batch, TokenBatch
from retriever.encoder.encoder import BATCH_TOKENS, Encoder
from retriever.errors import Misuse
from retriever.ingest.engines.base import Blocks, Encodes, Engine
from retriever.ingest.engines.ray.cluster import Cluster
from retriever.ingest.engines.ray.pool import OrderedCalls, Pool
from retriever.ingest.engines.ray.reader import RemoteSource, passages_of
from retriever.ingest.engines.ray.worker import EncoderSpec

if TYPE_CHECKING:
    from retriever.corpus import Document
    from retriever.corpus.files import Item
    from retriever.corpus.source import Source
    from retriever.encoder.base import AnyEncoder
    from retriever.transforms import Transform

# Maximum number of results that wait for a late batch, e.g. because its worker died. They need some megabytes.
MAX_WAITING = 512
# Number of blocks of vectors that are sent per worker. More would need memory without saving time.
BLOCKS_PER_WORKER = 2


class Ray(Engine):
    """The engine that uses the workers of a Ray cluster, as a context manager."""

    def __init__(self, address: str | None) -> None:
        self._cluster = Cluster(address)
        self._pool: Pool | None = None
        self._source: RemoteSource | None = None

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            stack.callback(self._cluster.close)
            if self._source:
                stack.callback(self._source.close)
            if self._pool:
                stack.callback(self._pool.close)

    @property
    def gpus(self) -> int:
        return int(self._cluster.resources().get("GPU", 0))

    def documents(self, source: "Source", encoder: "AnyEncoder") -> "Iterable[Item]":
        """Read a source: in a separate process if that process can read the files, otherwise in this process."""
        self._source = RemoteSource.open(source, EncoderSpec.of(_model(encoder), "cpu"), self._cluster)
        return self._source or source

    def passages(self, document: "Document", encoder: "AnyEncoder") -> Iterator[tuple[int, int, str]]:
        if self._source:
            self._source.found_new_document()
        return passages_of(document, _model(encoder))

    def encoding(self, texts: Sequence[str], encoder: "AnyEncoder") -> Encodes:
        return self._encoding(texts, _model(encoder), queries=False)

    def encode_queries(self, texts: Sequence[str], encoder: "AnyEncoder") -> NDArray[np.float32]:
        rows = np.empty((len(texts), encoder.identity.dimension), np.float32)
        encoding = self._encoding(texts, _model(encoder), queries=True)
        while done := encoding.finished():
            for batch in done:
                rows[batch.positions] = batch.vectors
        return rows

    def _encoding(self, texts: Sequence[str], encoder: Encoder, queries: bool) -> "RayEncoding":
        batch_tokens = encoder.requested_batch_tokens or BATCH_TOKENS[self._device(encoder)]
        return RayEncoding(
            encoder.token_batches(texts, batch_tokens, queries=queries), self._workers(encoder), half=not queries
        )

    def mapped(self, transform: "Transform", blocks: Blocks) -> Blocks:
        if transform.family == "none":  # not worth sending
            yield from super().mapped(transform, blocks)
            return
        pool = self._pool or self._workers(None)
        shared = self._cluster.ray.put(transform)
        sent: list[NDArray[np.int64]] = []

        def arguments() -> Iterator[tuple[Any, ...]]:
            for numbers, raw in blocks:
                sent.append(numbers)
                yield shared, raw.astype(VECTOR_TYPE)  # the vectors are stored in this precision, so nothing is lost

        calls = OrderedCalls(pool, "apply", arguments(), BLOCKS_PER_WORKER * pool.count)
        while done := calls.next_results():
            for rows in done:
                yield sent.pop(0), rows

    def notes(self) -> list[str]:
        pool = self._pool
        if pool is None:
            return []
        notes = list(pool.notes)
        if pool.lost:
            batches = f"{pool.resent:,} batch{'es' * (pool.resent != 1)}"
            workers = f"{len(pool.lost):,} worker{'s' * (len(pool.lost) != 1)}"
            hosts = ", ".join(sorted(set(pool.lost)))
            notes.append(f"{workers} of the Ray cluster died ({hosts}); other workers encoded {batches} again")
        return notes

    def _device(self, encoder: Encoder) -> str:
        """Return the device of the workers: "cuda" if the cluster has GPUs and the encoder allows them, else "cpu"."""
        device = encoder.requested_device
        if device == "cpu" or encoder.identity.precision == "int8":
            return "cpu"
        if device == "cuda" and not self.gpus:
            raise Misuse('`device="cuda"`: the Ray cluster has no GPU; use `device="cpu"` or `device="auto"`.')
        return "cuda" if self.gpus else "cpu"

    def _workers(self, encoder: Encoder | None) -> Pool:
        if self._pool is None:
            device = self._device(encoder) if encoder else "cpu"
            resources: dict[str, float] = {"num_cpus": 1} if device == "cpu" else {"num_cpus": 1, "num_gpus": 1}
            count = self._cluster.resources().get("CPU" if device == "cpu" else "GPU", 1)
            spec = EncoderSpec.of(encoder, device) if encoder else None
            self._pool = Pool(self._cluster, spec, max(1, int(count)), resources)
        return self._pool


class RayEncoding:
    """Batches that the workers encode. Each call of `finished` sends further batches."""

    def __init__(self, batches: Iterator[TokenBatch], pool: Pool, half: bool) -> None:
        self._sent: list[tuple[NDArray[np.int64], int]] = []
        self._calls = OrderedCalls(pool, "encode", self._arguments(batches, half), MAX_WAITING)
        self.close = self._calls.stop

    def _arguments(self, batches: Iterator[TokenBatch], half: bool) -> Iterator[tuple[Any, ...]]:
        for positions, tokens in batches:
            self._sent.append((positions, sum(map(len, tokens))))
            yield tokens, half

    def start(self) -> None:
        """Do nothing, because `finished` sends the batches."""

    def finished(self) -> list[Batch]:
        found = self._calls.next_results()
        sent, self._sent = self._sent[: len(found)], self._sent[len(found) :]
        return [Batch(positions, rows, tokens) for (positions, tokens), rows in zip(sent, found, strict=True)]


def _model(encoder: "AnyEncoder") -> Encoder:
    assert isinstance(encoder, Encoder), "`Retriever.build` refuses other encoders with Ray"
    return encoder
