"""A small collection made by the very code of `retriever index`, every part of it measured, in a process of its own.

    sample ─▶ choose precision ─▶ embed ─▶ store, with documents made up of its words ─▶ fit ─▶ index ─▶ try types

The fit sees at most so many passages (FIT_SAMPLE): with as many stored it costs what it will cost in any larger
collection. CPU seconds are of all threads; memory is what the process takes at most in each part.
"""

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import unit_rows
from indexes.folder.collection import Collection
from retriever.corpus import Document
from retriever.corpus.passages import encoded_passages
from retriever.corpus.short_texts import short_texts
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_loader import resolve_device
from retriever.encoder.runtimes.onnx_runtime import cores
from retriever.ingest.pooling_choice import choose_pooling
from retriever.ingest.precision_choice import FEWEST_DOCUMENTS, choose_precision
from retriever.plan import index_trials, making
from retriever.plan.given import SEED, Given, stand_ins
from retriever.plan.rates import Encoded, Sampled
from retriever.plan.usage import answer_with, cpu_seconds
from retriever.progress import Progress
from retriever.transforms.spec import AUTO

QUERIES = 400
# The encoder is timed for about so long, on texts of the sample.
ENCODED_CPU_SECONDS = 12.0
FIRST_TEXTS = 64
OTHER_EVERY = 4
STAGE = "rehearsing"


@dataclass(frozen=True)
class Request:
    """What is to be rehearsed; the documents lie in a file of JSON lines, the collection is made in `folder`."""

    documents: str
    what: str
    read_cpu_seconds: float
    folder: str
    planned: int
    encoder: str
    pooling: str | None
    max_length: int | None
    precision: str | None
    transform: str
    recall: float
    collection: str | None = None
    """One that exists and has vectors of its own."""


class Rehearsal:
    """One, from the beginning to the end."""

    def __init__(self, request: Request, progress: Progress) -> None:
        self.request = request
        with Path(request.documents).open(encoding="utf-8") as file:
            self.documents = [Document(**json.loads(line)) for line in file]
        self._progress, self._parts = progress, 0

    def run(self) -> dict[str, Any]:
        """The rates as JSON, but for `searched` and `scans`; and the queries to search with."""
        self._tell()
        request, pooling, reason = self.request, self.request.pooling, "as asked for"
        fixed = None if request.precision == AUTO else request.precision
        first = self._encoder(fixed or "fp32", None if pooling == AUTO else pooling)
        first.encode([self.documents[0].text[:200]])
        start = cpu_seconds()
        if pooling == AUTO:
            pooling = choose_pooling(self.documents, first, request.transform).chosen
            first = self._encoder(fixed or "fp32", pooling)
        precision = fixed or "fp32"
        if fixed is None:
            integers = self._encoder("int8", pooling)
            choice = choose_precision(self.documents, first, integers, request.transform)
            precision, reason = choice.chosen, choice.reason
            if len(self.documents) < FEWEST_DOCUMENTS:
                reason = f"the sample has fewer than {FEWEST_DOCUMENTS:,} documents to compare precisions on"
            del integers
        del first
        choosing = cpu_seconds() - start
        self._tell()

        encoder = self._encoder(precision, pooling)
        places = [list(encoded_passages(document, encoder)) for document in self.documents]
        texts = list(dict.fromkeys(text for own in places for _, _, text in own))
        tokens = encoder.count_tokens(texts)
        encoded, rows, known = self._encoded(encoder, texts, tokens)
        self._tell()

        sampled = Sampled(
            request.what,
            len(self.documents),
            sum(map(len, places)),
            len(texts),
            sum(tokens),
            sum(document.characters() for document in self.documents),
            request.read_cpu_seconds,
        )
        given = self._encoder(precision, pooling, Given)
        given.give(known, rows, sum(tokens) / len(texts) + 2)
        with making.made(Path(request.folder), encoder, request.transform) as collection, collection.writing():
            stored = making.store(collection, self.documents, given, sampled, request.planned)
            self._tell()
            suits = making.suiting(request.transform, encoder, places, known)
            fitted, published, apply = making.publish(collection, encoder, request.transform, suits)
            self._tell()
            fetch_ms = making.fetch_ms(collection, collection.store.used_vectors(), apply)
        queries = short_texts(texts, QUERIES, SEED) or texts[:QUERIES]
        asking = unit_rows(apply(encoder.encode(queries)))
        real = unit_rows(apply(self._real(rows)))
        rng = np.random.default_rng(SEED)

        def more(count: int) -> NDArray[np.float32]:
            return unit_rows(apply(stand_ins(rows, count, rng)))

        planned = max(1, round(request.planned * sampled.texts / sampled.documents))
        trials = {}
        for name, trial in index_trials.tried(request.recall, real, asking, more, planned):
            trials[name] = trial
            self._tell()
        rates = {
            "encoder": encoder.identity.to_json(),
            "precision": precision,
            "precision_reason": reason,
            "start_cpu_seconds": start,
            "choosing_cpu_seconds": choosing,
            "sample": asdict(sampled),
            "encoded": {name: asdict(one) for name, one in encoded.items()},
            "stored": asdict(stored),
            "fitted": asdict(fitted),
            "published": asdict(published),
            "truth_cpu_a_vector": index_trials.truth_cpu_a_vector(asking, more(4096))
            * making.judges(stored)
            / len(asking),
            "fetch_ms": fetch_ms,
            "trials": {name: asdict(trial) for name, trial in trials.items()},
            "cores": cores(),
            "gpu": "cuda" in encoded,
        }
        self._tell()
        return {"rates": rates, "queries": queries[:100], "planned_vectors": planned}

    def _tell(self) -> None:
        self._progress(STAGE, self._parts, 6 + len(index_trials.TYPES))
        self._parts += 1

    def _encoder(self, precision: str, pooling: str | None, kind: type[Encoder] = Encoder, device: str = "cpu") -> Any:
        name, longest = self.request.encoder, self.request.max_length
        return kind(name, pooling=pooling, max_length=longest, precision=precision, device=device)

    def _encoded(
        self, encoder: Encoder, texts: Sequence[str], tokens: Sequence[int]
    ) -> tuple[dict[str, Encoded], NDArray[np.float32], dict[str, NDArray[np.float32]]]:
        """Texts through the encoder, as many as the time allows; some of them in the other precision, too."""
        order = np.random.default_rng(SEED).permutation(len(texts)).tolist()
        first = self._timed(encoder, texts, order[:FIRST_TEXTS], tokens)[0]
        count = int(ENCODED_CPU_SECONDS / max(first.cpu_a_text, 1e-6))
        chosen = order[: max(FIRST_TEXTS, count)]
        own, rows = self._timed(encoder, texts, chosen, tokens)
        found = {encoder.identity.precision: own}
        if self.request.precision in (None, AUTO):
            other = "int8" if encoder.identity.precision == "fp32" else "fp32"
            with contextlib.suppress(Exception):  # what cannot be exported has no other precision
                spare = self._encoder(other, encoder.identity.pooling)
                spare.encode([texts[0]])
                found[other] = self._timed(spare, texts, chosen[::OTHER_EVERY], tokens)[0]
        if resolve_device(AUTO) == "cuda":
            on_gpu = self._encoder("fp32", encoder.identity.pooling, device="cuda")
            on_gpu.encode([texts[0]])
            found["cuda"] = self._timed(on_gpu, texts, chosen, tokens)[0]
        return found, rows, {texts[place]: row for place, row in zip(chosen, rows, strict=True)}

    def _timed(
        self, encoder: Encoder, texts: Sequence[str], chosen: Sequence[int], tokens: Sequence[int]
    ) -> tuple[Encoded, NDArray[np.float32]]:
        wall, cpu = time.perf_counter(), cpu_seconds()
        rows = encoder.encode([texts[place] for place in chosen])
        cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
        return Encoded(len(chosen), sum(tokens[place] for place in chosen), cpu, wall), rows

    def _real(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Vectors of real texts: those of the sample, or more of a collection that exists."""
        if not self.request.collection:
            return rows
        with Collection.open(Path(self.request.collection)) as collection:
            numbers = collection.store.used_vectors()
            rng = np.random.default_rng(SEED)
            some = np.sort(rng.choice(numbers, min(len(numbers), index_trials.TRIED_ON), replace=False))
            return collection.store.vectors(some.tolist(), collection.dimension, checked=True)


def work(request: dict[str, Any], progress: Progress) -> dict[str, Any]:
    return Rehearsal(Request(**request), progress).run()


if __name__ == "__main__":
    answer_with(work)
