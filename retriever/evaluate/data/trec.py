"""Read and write TREC run files. Each hit is a line `query Q0 document rank score tag`.

trec_eval ignores the rank, reads scores in single precision and breaks ties by the document's id. Scores are therefore
made strictly decreasing in single precision, so that trec_eval sees the same ranking.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from retriever.errors import Damaged
from retriever.evaluate.rankings import Hits
from retriever.files import atomic_write

COLUMNS = 6


def strictly_decreasing(hits: Hits) -> list[tuple[str, float]]:
    """Return the hits in the same order. Lower each score that is not already below the previous one."""
    ranked = []
    before = np.float32(np.inf)
    for document, score in hits:
        before = min(np.float32(score), np.nextafter(before, np.float32(-np.inf)))
        ranked.append((document, float(before)))
    return ranked


def unwritable(ids: Iterable[str]) -> list[str]:
    """Return the ids that contain white space. TREC's format cannot hold them, because white space ends a column."""
    return [id_ for id_ in ids if id_.split() != [id_]]


def write_run(path: Path, hits: Mapping[str, Hits], tag: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as aside, aside.open("w", encoding="utf-8") as file:
        for query, own in hits.items():
            for rank, (document, score) in enumerate(own, 1):
                file.write(f"{query} Q0 {document} {rank} {score:.9g} {tag}\n")


def read_run(path: Path, queries: Sequence[str]) -> dict[str, list[tuple[str, float]]]:
    """Return the hits of these queries in the order of the file. A query that is not in the file has no hits."""
    hits: dict[str, list[tuple[str, float]]] = {query: [] for query in queries}
    with path.open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            cells = line.split()
            if len(cells) != COLUMNS or cells[0] not in hits:
                advice = "Delete the file and run the same command again."
                raise Damaged(f"{path}:{number} does not belong to this run. {advice}")
            hits[cells[0]].append((cells[2], float(np.float32(cells[4]))))
    return hits
