"""Chroma: a collection of a persistent client with its HNSW index by cosine. Telemetry is off."""

from typing import Any

from benchmarks.speed.rivals import Documents, Found, Queries, Rival, StoredVectors

NAME = "documents"


class System(Rival):
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
        both = zip(found["ids"], found["documents"], strict=True)
        return [list(map(Found, ids, texts)) for ids, texts in both]
