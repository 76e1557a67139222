"""The process in which one system is measured. It reads requests as lines of JSON and answers with figures.

Each system has its own process, so that its memory counts alone and the systems can alternate. CPU time includes all
threads and child processes. A system first ingests a few documents elsewhere, so that imports do not count.
"""

import json
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.speed import engines, gpu
from benchmarks.speed.encoding import encode_in_turns
from benchmarks.speed.process import measured
from benchmarks.speed.rivals import Documents, Matrix, Queries, Rival, StoredVectors, rival
from retriever.memory import peak_bytes

WARM_UP_DOCUMENTS = 64
WARM_UP_QUERIES = 3


class Worker:
    """Answer requests, which name a method and its arguments. `queries` and `batch` search the store opened last."""

    encode = staticmethod(encode_in_turns)
    index = staticmethod(engines.index)
    on_device = staticmethod(gpu.on_device)
    _rival: Rival
    _texts: list[str]
    _vectors: Matrix | None
    _k: int

    def answer(self, what: str, given: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = getattr(self, what)(**given)
        return found

    def ingest(
        self, system: str, folder: str, model: str, texts: str, count: int, vectors: str | None, dimension: int
    ) -> dict[str, Any]:
        given = StoredVectors(Path(vectors), dimension) if vectors else None
        with TemporaryDirectory() as aside:
            few = Documents(Path(texts), min(WARM_UP_DOCUMENTS, count))
            rival(system, Path(aside) / "few", model).ingest(few, given)
        made = rival(system, Path(folder), model)
        with measured() as cost:
            made.ingest(Documents(Path(texts), count), given)
        return {**cost, "peak_bytes": peak_bytes()}

    def open(
        self, system: str, folder: str, model: str, texts: list[str], vectors: str | None, k: int
    ) -> dict[str, Any]:
        """Open a store for these queries, and run the first few queries to warm up."""
        self._rival = rival(system, Path(folder), model)
        self._texts, self._k = texts, k
        self._vectors = np.load(vectors, allow_pickle=False) if vectors else None
        self._rival.open()
        self._search(0, min(WARM_UP_QUERIES, len(texts)))
        return {}

    def queries(self, first: int, last: int) -> dict[str, Any]:
        """Run single queries. Return the seconds of each, those of its encoder, CPU seconds, and the ids found."""
        took, encoding, found = [], [], []
        spent = 0.0
        for number in range(first, last):
            if self._vectors is None:
                began = time.perf_counter()
                self._rival.encode([self._texts[number]])
                encoding.append(time.perf_counter() - began)
            with measured() as cost:
                found += self._search(number, number + 1)
            took.append(cost["wall_seconds"])
            spent += cost["cpu_seconds"]
        return {"seconds": took, "encoder_seconds": encoding, "cpu_seconds": spent, "found": found}

    def batch(self, first: int, last: int) -> dict[str, Any]:
        with measured() as cost:
            found = self._search(first, last)
        return {**cost, "found": found, "peak_bytes": peak_bytes()}

    def _search(self, first: int, last: int) -> list[list[str]]:
        vectors = None if self._vectors is None else self._vectors[first:last]
        hits = self._rival.search(Queries(self._texts[first:last], vectors), self._k)
        return [[hit.id for hit in own] for own in hits]


def main() -> None:
    # Output of a system must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = worker.answer(request["do"], request["with"])
        except Exception as error:  # reported to the caller
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
