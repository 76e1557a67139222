"""txtai: an `Embeddings` with content. It keeps texts in SQLite and vectors in a FAISS index that it chooses itself.

If vectors are given, its method `external` is used: txtai then calls our function instead of an encoder.
"""

from collections.abc import Sequence

from benchmarks.speed.rivals import Documents, Found, Matrix, Queries, Rival, StoredVectors


class System(Rival):
    def ingest(self, documents: Documents, vectors: StoredVectors | None) -> None:
        from txtai import Embeddings

        if vectors is None:
            embeddings = Embeddings(path=self.model, content=True, gpu=False)
        else:
            given, stored = 0, vectors

            def transform(texts: Sequence[str]) -> Matrix:
                """Return the next given vectors. txtai requests each document once, in their order."""
                nonlocal given
                first, given = given, given + len(texts)
                return stored.rows(first, given)

            embeddings = Embeddings(method="external", transform=transform, content=True)
        embeddings.index((id_, text, None) for id_, text in documents)
        embeddings.config.pop("transform", None)  # a function cannot be saved
        embeddings.save(str(self.folder))
        embeddings.close()

    def open(self) -> None:
        from txtai import Embeddings

        self._embeddings = Embeddings()
        self._embeddings.load(str(self.folder))

    def search(self, queries: Queries, k: int) -> list[list[Found]]:
        def transform(_: Sequence[str]) -> Matrix:
            return self.encoder.vectors_of(queries)

        self._embeddings.model.transform = transform
        hits = self._embeddings.batchsearch(list(queries.texts), k)
        return [[Found(hit["id"], hit["text"]) for hit in own] for own in hits]

    def close(self) -> None:
        self._embeddings.close()
