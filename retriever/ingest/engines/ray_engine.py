"""The work of an ingestion done by the workers of a Ray cluster.

    reader, beside this process ──documents, split──▶ this process ──batches──▶ workers, one encoder each
                                                        │   ▲                      │
                                              SQLite ◀──┘   └────────vectors───────┘

Windows, batches, what is left out and what is stored are decided here, by the same code that a run without Ray uses.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from indexes.rows import VECTOR_TYPE
from retriever.encoder.batches import Batch, TokenBatch
from retriever.encoder.encoder import BATCH_TOKENS
from retriever.errors import Misuse
from retriever.ingest.engines.base import Blocks, Encodes
from retriever.ingest.engines.ray_cluster import Cluster
from retriever.ingest.engines.ray_pool import InOrder, Pool
from retriever.ingest.engines.ray_reader import Reading, passages_of
from retriever.ingest.engines.ray_worker import EncoderSpec

if TYPE_CHECKING:
    from retriever.corpus import Document, Skipped
    from retriever.corpus.source import Source
    from retriever.encoder.encoder import Encoder
    from retriever.transforms import Transform

# Batches that may wait for one that is late, as after the death of its worker: some megabytes.
MOST_WAITING = 512
# Blocks of vectors on their way for each worker: more of them would take memory and save no time.
MOST_BLOCKS_EACH = 2


class Ray:
    """A cluster's workers, for as long as the context lasts."""

    def __init__(self, address: str | None) -> None:
        self._cluster = Cluster(address)
        self._pool: Pool | None = None
        self._reading: Reading | None = None

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            stack.callback(self._cluster.close)
            if self._reading:
                stack.callback(self._reading.close)
            if self._pool:
                stack.callback(self._pool.close)

    @property
    def gpus(self) -> int:
        return int(self._cluster.resources().get("GPU", 0))

    def documents(self, source: "Source", encoder: "Encoder") -> "Iterable[Document | Skipped]":
        """Read by a process beside this one where there are files that it can read, else here."""
        self._reading = Reading.of(source, EncoderSpec.of(encoder, "cpu"), self._cluster)
        return self._reading or source

    def passages(self, document: "Document", encoder: "Encoder") -> Iterator[tuple[int, int, str]]:
        if self._reading:
            self._reading.has_news()
        return passages_of(document, encoder)

    def encoding(self, texts: Sequence[str], encoder: "Encoder") -> Encodes:
        return self._encoding(texts, encoder, half=True)

    def encode(self, texts: Sequence[str], encoder: "Encoder") -> NDArray[np.float32]:
        rows = np.empty((len(texts), encoder.identity.dimension), np.float32)
        encoding = self._encoding(texts, encoder, half=False)
        while done := encoding.finished():
            for batch in done:
                rows[batch.positions] = batch.vectors
        return rows

    def _encoding(self, texts: Sequence[str], encoder: "Encoder", half: bool) -> "RayEncoding":
        device = self._device(encoder)
        most_tokens = encoder.asked_batch_tokens or BATCH_TOKENS[device]
        return RayEncoding(encoder.batches(texts, most_tokens), self._workers(encoder), half)

    def mapped(self, transform: "Transform", blocks: Blocks) -> Blocks:
        if transform.family == "none":  # nothing is done to them that would be worth the way
            yield from ((numbers, transform.apply(raw)) for numbers, raw in blocks)
            return
        pool = self._pool or self._workers(None)
        shared = self._cluster.ray.put(transform)
        numbers: list[NDArray[np.int64]] = []

        def arguments() -> Iterator[tuple[Any, ...]]:
            for own, raw in blocks:
                numbers.append(own)
                yield shared, raw.astype(VECTOR_TYPE)  # as they are stored: exact, and half as many bytes

        in_order = InOrder(pool, "apply", arguments(), MOST_BLOCKS_EACH * pool.count)
        while done := in_order.some():
            for rows in done:
                yield numbers.pop(0), rows

    def notes(self) -> list[str]:
        pool = self._pool
        if pool is None:
            return []
        notes = list(pool.notes)
        if pool.lost:
            again = f"{pool.sent_again:,} batch{'es' * (pool.sent_again != 1)}"
            workers = f"{len(pool.lost):,} worker{'s' * (len(pool.lost) != 1)}"
            notes.append(
                f"{workers} of the Ray cluster died ({', '.join(sorted(set(pool.lost)))}); others took over {again}"
            )
        return notes

    # ---- workers -----------------------------------------------------------------------------------------

    def _device(self, encoder: "Encoder") -> str:
        """Where the workers encode: on GPUs where the cluster has them and they can, unless told otherwise."""
        asked = encoder.asked_device
        if asked == "cpu" or encoder.identity.precision == "int8":
            return "cpu"
        if asked == "cuda" and not self.gpus:
            raise Misuse("--device cuda: the Ray cluster has no GPU; take --device cpu or auto.")
        return "cuda" if self.gpus else "cpu"

    def _workers(self, encoder: "Encoder | None") -> Pool:
        if self._pool is None:
            device = self._device(encoder) if encoder else "cpu"
            resources: dict[str, float] = {"num_cpus": 1} if device == "cpu" else {"num_cpus": 1, "num_gpus": 1}
            room = self._cluster.resources().get("CPU" if device == "cpu" else "GPU", 1)
            spec = EncoderSpec.of(encoder, device) if encoder else None
            self._pool = Pool(self._cluster, spec, max(1, int(room)), resources)
        return self._pool


class RayEncoding:
    """Batches on their way through the workers' encoders; whoever asks for them sends the next ones out."""

    def __init__(self, batches: Iterator[TokenBatch], pool: Pool, half: bool) -> None:
        self._sent: list[tuple[NDArray[np.int64], int]] = []
        self._in_order = InOrder(pool, "encode", self._arguments(batches, half), MOST_WAITING)

    def _arguments(self, batches: Iterator[TokenBatch], half: bool) -> Iterator[tuple[Any, ...]]:
        for positions, tokens in batches:
            self._sent.append((positions, sum(map(len, tokens))))
            yield tokens, half

    def start(self) -> None:
        """Nothing begins before it is asked for."""

    def finished(self) -> list[Batch]:
        found = self._in_order.some()
        sent, self._sent = self._sent[: len(found)], self._sent[len(found) :]
        return [Batch(positions, rows, tokens) for (positions, tokens), rows in zip(sent, found, strict=True)]

    def close(self) -> None:
        self._in_order.stop()
