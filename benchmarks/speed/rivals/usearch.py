"""USearch: its HNSW index by cosine with its defaults, mapped into memory, and the texts in a JSON file.

USearch holds only vectors, so the texts are kept in a file, as for the flat FAISS index.
"""

import json
from typing import Any

import numpy as np

from benchmarks.speed.rivals import Documents, Found, Queries, Rival, StoredVectors

TOGETHER = 10_000


class System(Rival):
    def ingest(self, documents: Documents, vectors: StoredVectors | None) -> None:
        from usearch.index import Index

        self.folder.mkdir(parents=True, exist_ok=True)
        index: Any = None
        every: list[tuple[str, str]] = []
        for ids, texts in documents.batches(TOGETHER):
            first = len(every)
            rows = self.encoder.encode(texts) if vectors is None else vectors.rows(first, first + len(texts))
            every += list(zip(ids, texts, strict=True))
            index = index or Index(ndim=int(rows.shape[1]), metric="cos")
            index.add(np.arange(first, len(every)), rows)
        index.save(str(self.folder / "index.usearch"))
        (self.folder / "texts.json").write_text(json.dumps(every, ensure_ascii=False), encoding="utf-8")

    def open(self) -> None:
        from usearch.index import Index

        self._index: Any = Index.restore(str(self.folder / "index.usearch"), view=True)
        self._texts = json.loads((self.folder / "texts.json").read_bytes())

    def search(self, queries: Queries, k: int) -> list[list[Found]]:
        vectors = np.atleast_2d(np.asarray(self.encoder.vectors_of(queries), np.float32))
        matches = (self._index.search(vector, k) for vector in vectors)
        return [[Found(*self._texts[int(row)]) for row in own.keys] for own in matches]
