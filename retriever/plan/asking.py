"""Queries asked of a collection in a process of its own, one at a time and on one core: CPU of each, and memory."""

from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from indexes.faiss.recall import WANTED
from indexes.faiss.vectors import exact_index, unit_rows
from retriever.plan.usage import answer_with, cpu_ms_between, cpu_seconds, peak_bytes
from retriever.progress import Progress
from retriever.retriever import Retriever

WARM_UP, FEWEST = 5, 200
LEAST = 0.1
# Of the exact scan. The largest is meant to lie beyond any processor's cache, as a whole collection does.
SCANNED = (2000, 10_000, 40_000)
LARGEST_SCAN_BYTES = 256_000_000
SEED = 0


def asked(folder: Path, queries: list[str], encoder: str | None = None) -> dict[str, Any]:
    """The CPU milliseconds of a query, with and without the encoder's, and the most memory it took.

    Of many queries the one that nine in ten took longer than: others who use the machine can only add to it.
    """
    with Retriever.open(folder, encoder=encoder, device="cpu") as retriever:
        encoding, searching = [], []
        for place, query in enumerate(islice(cycle(queries), WARM_UP + max(len(queries), FEWEST))):
            began = cpu_seconds()
            vectors = retriever.encoder().encode([query])
            encoded = cpu_seconds()
            retriever.answer_many([query], 10, vectors=vectors)
            if place >= WARM_UP:
                encoding.append(encoded - began)
                searching.append(cpu_seconds() - encoded)
        return {
            "vectors": retriever.collection.store.count("vectors"),
            "cpu_ms": 1000 * float(np.quantile(searching, LEAST)),
            "encoder_ms": 1000 * float(np.quantile(encoding, LEAST)),
            "peak_bytes": peak_bytes(),
        }


def scans(dimension: int, planned: int) -> list[tuple[int, float]]:
    """CPU milliseconds of an exact scan by the number of vectors; what these are makes no difference to it."""
    rng = np.random.default_rng(SEED)
    largest = max(1, min(planned, LARGEST_SCAN_BYTES // (4 * dimension)))
    found = []
    for count in sorted({min(count, largest) for count in (*SCANNED, largest)}):
        rows = unit_rows(rng.standard_normal((count, dimension), np.float32))
        index = exact_index(dimension, [(np.arange(count, dtype=np.int64), rows)])
        query = unit_rows(rng.standard_normal((1, dimension), np.float32))
        found.append((count, cpu_ms_between(partial(index.search, query, WANTED, np.zeros(0, np.int64)))))
    return found


def _work(request: dict[str, Any], progress: Progress) -> dict[str, Any]:
    answer: dict[str, Any] = {"searched": asked(Path(request["folder"]), request["queries"], request.get("encoder"))}
    if "scan" in request:
        answer["scans"] = scans(**request["scan"])
    return answer


if __name__ == "__main__":
    answer_with(_work)
