"""Chroma: a collection of a persistent client, by cosine in its HNSW index, with its telemetry off."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.rivals.base import Documents, Found, Matrix, Queries, SentenceTransformersEncoder, StoredVectors

NAME = "documents"


class System:
    """A collection that is filled in batches as large as Chroma takes."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.model = folder, model
        self.encoder = SentenceTransformersEncoder(model)

    def _client(self) -> Any:
        import chromadb
        from chromadb.config import Settings

        return chromadb.PersistentClient(str(self.folder), settings=Settings(anonymized_telemetry=False))

    def ingest(self, documents: Documents, vectors: StoredVectors | None) -> None:
        client, function = self._client(), None
        if vectors is None:
            from chromadb.utils.embedding_functions import SentenceTransformerEmbeddingFunction

            function = SentenceTransformerEmbeddingFunction(model_name=self.model, device="cpu")
        space = {"hnsw": {"space": "cosine"}}
        collection = client.create_collection(NAME, configuration=space, embedding_function=function)
        first = 0
        for ids, texts in documents.batches(client.get_max_batch_size()):
            if vectors is None:
                collection.add(ids=ids, documents=texts)
            else:
                collection.add(ids=ids, documents=texts, embeddings=vectors.rows(first, first + len(ids)))
            first += len(ids)

    def open(self) -> None:
        self._collection = self._client().get_collection(NAME, embedding_function=None)

    def search(self, queries: Queries, k: int) -> list[list[Found]]:
        found = self._collection.query(query_embeddings=self.encoder.vectors_of(queries), n_results=k)
        return [
            [Found(id_, text) for id_, text in zip(ids, texts, strict=True)]
            for ids, texts in zip(found["ids"], found["documents"], strict=True)
        ]

    def encode(self, texts: Sequence[str]) -> Matrix:
        return self.encoder.encode(texts)

    def close(self) -> None:
        self._collection = None
