"""The minimal solution: sentence-transformers' `encode`, a flat FAISS index, and the texts in a JSON file."""

import json
from typing import Any

import numpy as np

from benchmarks.speed.rivals import Documents, Found, Queries, Rival, StoredVectors

TOGETHER = 10_000


class System(Rival):
    def ingest(self, documents: Documents, vectors: StoredVectors | None) -> None:
        import faiss

        self.folder.mkdir(parents=True, exist_ok=True)
        index: Any = None
        every: list[tuple[str, str]] = []
        for ids, texts in documents.batches(TOGETHER):
            first = len(every)
            rows = self.encoder.encode(texts) if vectors is None else vectors.rows(first, first + len(texts))
            every += list(zip(ids, texts, strict=True))
            index = index or faiss.IndexFlatIP(rows.shape[1])
            faiss.normalize_L2(rows)
            index.add(rows)
        faiss.write_index(index, str(self.folder / "index.faiss"))
        (self.folder / "texts.json").write_text(json.dumps(every, ensure_ascii=False), encoding="utf-8")

    def open(self) -> None:
        import faiss

        self._index: Any = faiss.read_index(str(self.folder / "index.faiss"))
        self._texts = json.loads((self.folder / "texts.json").read_bytes())

    def search(self, queries: Queries, k: int) -> list[list[Found]]:
        import faiss

        vectors = np.array(self.encoder.vectors_of(queries), np.float32)
        faiss.normalize_L2(vectors)
        _, rows = self._index.search(vectors, k)
        return [[Found(*self._texts[row]) for row in own if row >= 0] for own in rows.tolist()]
