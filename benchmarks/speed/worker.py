"""The process that one system is measured in: asked line by line in JSON, it does as told and answers with figures.

A process a system keeps the memory of one out of the figures of another, and lets them take turns all the same: those
that are not asked wait. CPU time is that of all threads and of child processes. Before it is measured a system ingests
a few documents into another folder, so that imports are left out of the figures; the cold command has them.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.speed.rivals import rival
from benchmarks.speed.rivals.base import Documents, Matrix, Queries, Rival, StoredVectors
from retriever.memory import peak_bytes

WARM_UP_DOCUMENTS = 64
WARM_UP_QUERIES = 3


@contextmanager
def measured() -> Iterator[dict[str, float]]:
    """Seconds by the clock and of all cores, filled in at the end."""
    cost: dict[str, float] = {}
    wall, cpu = time.perf_counter(), cpu_seconds()
    yield cost
    cost |= {"wall_seconds": time.perf_counter() - wall, "cpu_seconds": cpu_seconds() - cpu}


def cpu_seconds() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


class Worker:
    """One system and what it is asked."""

    def __init__(self) -> None:
        self._rival: Rival
        self._texts: list[str] = []
        self._vectors: Matrix | None = None
        self._k = 0

    def ingest(
        self, system: str, folder: str, model: str, texts: str, count: int, vectors: str | None, dimension: int
    ) -> dict[str, Any]:
        """Make a store."""
        given = StoredVectors(Path(vectors), dimension) if vectors else None
        with TemporaryDirectory() as aside:
            rival(system, Path(aside) / "few", model).ingest(
                Documents(Path(texts), min(WARM_UP_DOCUMENTS, count)), given
            )
        made = rival(system, Path(folder), model)
        with measured() as cost:
            made.ingest(Documents(Path(texts), count), given)
        return {**cost, "peak_bytes": peak_bytes()}

    def open(
        self, system: str, folder: str, model: str, texts: list[str], vectors: str | None, k: int
    ) -> dict[str, Any]:
        """Open a store for these queries, whose vectors lie in a file, and ask the first few to be warm."""
        self._rival = rival(system, Path(folder), model)
        self._texts, self._k = texts, k
        self._vectors = np.load(vectors, allow_pickle=False) if vectors else None
        self._rival.open()
        self._search(0, min(WARM_UP_QUERIES, len(texts)))
        return {}

    def queries(self, first: int, last: int) -> dict[str, Any]:
        """One query after another: seconds of each, the same of the encoder alone, and the ids found."""
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
        """Many queries at once."""
        with measured() as cost:
            found = self._search(first, last)
        return {**cost, "found": found, "peak_bytes": peak_bytes()}

    def _search(self, first: int, last: int) -> list[list[str]]:
        vectors = None if self._vectors is None else self._vectors[first:last]
        hits = self._rival.search(Queries(self._texts[first:last], vectors), self._k)
        return [[hit.id for hit in own] for own in hits]

    def encoding(self, model: str, texts: list[str], names: list[str]) -> dict[str, Any]:
        """Encoders taking turns over the same sentences."""
        from benchmarks.speed.encoding import encode_in_turns

        return encode_in_turns(model, texts, names)

    def profile(self, source: str, folder: str, model: str) -> dict[str, Any]:
        """Where the time of an ingestion goes."""
        from benchmarks.speed.profile import profile_ingestion

        return profile_ingestion(Path(source), Path(folder), model)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = getattr(self, str(request["do"]))(**request["with"])
        return found


def main() -> None:
    # Whatever a system prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # told to who asked
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
