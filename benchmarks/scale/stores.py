"""Copy a collection from a folder to Milvus and back, and compare its rows and hits."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.table import Table

from benchmarks.options import Figures
from benchmarks.scale.serving import own_queries
from indexes.generation import INDEX_FILE
from indexes.rows import Matrix
from retriever.evaluate.report.tables import text_table
from retriever.hits import Hits
from retriever.progress import Progress
from retriever.retriever import Retriever
from retriever.transfer.copy import copy

TOP = 10
BATCH = 100
TABLES = {
    "documents": "SELECT number, id, title, text, metadata, content_hash, source, seal FROM documents ORDER BY number",
    "passages": 'SELECT document, position, start, "end", vector FROM passages ORDER BY document, position',
    "vectors": "SELECT id, text_hash, vector, checksum FROM vectors ORDER BY id",
}


@dataclass
class StoreFigures(Figures):
    documents: int
    queries: int
    same_ids: int = 0
    """The number of queries whose ten best hits are the same documents and passages in the same order."""
    largest_difference: float = 0.0
    """The largest difference between the scores of two hits at the same rank."""
    same_tables: dict[str, bool] = field(default_factory=dict)
    """Whether each table, the transform and the index are unchanged after the copy to Milvus and back."""
    seconds: dict[str, float] = field(default_factory=dict)
    ms_a_query: dict[str, float] = field(default_factory=dict)

    def table(self) -> Table:
        table = text_table(f"{self.documents:,} documents in a folder and in Milvus", ["", "figure"], 2)
        same = f"{self.same_ids:,} of {self.queries:,}"
        table.add_row(f"queries with the same {TOP} best", same)
        table.add_row("largest difference between scores", f"{self.largest_difference:.1e}")
        for name, is_same in self.same_tables.items():
            table.add_row(f"{name} after the copy to Milvus and back", "the same" if is_same else "DIFFERENT")
        for what, seconds in self.seconds.items():
            table.add_row(what, f"{seconds:.0f} s, {self.documents / seconds:,.0f} documents per second")
        for where, ms in self.ms_a_query.items():
            table.add_row(f"a query in {where}, in batches of {BATCH}", f"{ms:.1f} ms")
        return table


def measure(folder: Path, queries: int, *, store: str | None, progress: Progress) -> StoreFigures:
    with TemporaryDirectory(prefix="retriever-stores-") as temporary:
        place = store or f"milvus:{temporary}/milvus.db"
        back = Path(temporary) / "back"
        with Retriever.open(folder) as retriever:
            texts = own_queries(retriever, queries)
            vectors = retriever.query_vectors(texts)
            figures = StoreFigures(len(retriever), len(texts))
        figures.seconds["copied to Milvus"] = copy(folder, place, progress=progress).seconds
        here = _answers(folder, texts, vectors, figures, "the folder", progress)
        there = _answers(place, texts, vectors, figures, "Milvus", progress)
        for one, other in zip(here, there, strict=True):
            here_ids, there_ids = ([(hit.id, hit.start, hit.end) for hit in hits] for hits in (one, other))
            figures.same_ids += here_ids == there_ids
            differences = (abs(a.score - b.score) for a, b in zip(one, other, strict=False))
            figures.largest_difference = max([figures.largest_difference, *differences])
        figures.seconds["copied back"] = copy(place, back, progress=progress).seconds
        before, after = _digests(folder), _digests(back)
        figures.same_tables = {name: before[name] == after[name] for name in before}
    return figures


def _answers(
    place: str | Path, queries: Sequence[str], vectors: Matrix, figures: StoreFigures, where: str, progress: Progress
) -> list[Hits]:
    found: list[Hits] = []
    with Retriever.open(place) as retriever:
        retriever.answer_many(queries[:1], TOP, vectors=vectors[:1])
        began = time.perf_counter()
        for start in range(0, len(queries), BATCH):
            some = slice(start, start + BATCH)
            found += [answer.hits for answer in retriever.answer_many(queries[some], TOP, vectors=vectors[some])]
            progress(f"searching {where}", len(found), len(queries))
        figures.ms_a_query[where] = 1000 * (time.perf_counter() - began) / len(queries)
    return found


def _digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every table and of the FAISS index, and the fingerprint of the transform."""
    with Retriever.open(folder) as retriever:
        connection = retriever.local.store.db.conn
        found = {}
        for name, query in TABLES.items():
            digest = hashlib.sha256()
            for row in connection.execute(query):
                digest.update(repr(row).encode())
            found[name] = digest.hexdigest()
        generation = retriever.collection.generation()
        assert generation is not None
        found["the transform"] = str(generation.manifest["transform"]["fingerprint"])
        found["the index"] = str(generation.manifest["files"][INDEX_FILE]["sha256"])
        return found
