"""LanceDB: a table with text and vector. It is searched by cosine without an index, which is LanceDB's default."""

from collections.abc import Iterator
from typing import Any

from benchmarks.speed.rivals import Documents, Found, Queries, Rival, StoredVectors

NAME = "documents"
TOGETHER = 5000


class System(Rival):
    def ingest(self, documents: Documents, vectors: StoredVectors | None) -> None:
        import lancedb

        database = lancedb.connect(str(self.folder))
        if vectors is not None:
            import pyarrow as pa

            kinds = [("id", pa.string()), ("text", pa.string()), ("vector", pa.list_(pa.float32(), vectors.dimension))]
            reader = pa.RecordBatchReader.from_batches(pa.schema(kinds), _record_batches(documents, vectors))
            database.create_table(NAME, reader)
            return
        table = database.create_table(NAME, schema=_embedded_schema(self.model))
        for ids, texts in documents.batches(TOGETHER):
            table.add([{"id": id_, "text": text} for id_, text in zip(ids, texts, strict=True)])

    def open(self) -> None:
        import lancedb

        self._table = lancedb.connect(str(self.folder)).open_table(NAME)

    def search(self, queries: Queries, k: int) -> list[list[Found]]:
        vectors = self.encoder.vectors_of(queries)
        given = vectors[0] if len(vectors) == 1 else vectors
        rows = self._table.search(given).distance_type("cosine").select(["id", "text", "_distance"]).limit(k).to_list()
        found: list[list[Found]] = [[] for _ in vectors]
        for row in rows:
            found[row.get("query_index", 0)].append(Found(row["id"], row["text"]))
        return found


def _embedded_schema(model: str) -> Any:
    """Return the schema of a table whose texts LanceDB embeds itself, as its guide to embeddings shows."""
    from lancedb.embeddings import get_registry
    from lancedb.pydantic import LanceModel, Vector

    function = get_registry().get("sentence-transformers").create(name=model, device="cpu")
    kinds = {"id": str, "text": str, "vector": Vector(function.ndims())}
    fields = {"text": function.SourceField(), "vector": function.VectorField()}
    return type("Sentence", (LanceModel,), {"__annotations__": kinds, **fields})


def _record_batches(documents: Documents, vectors: StoredVectors) -> Iterator[Any]:
    import pyarrow as pa

    first = 0
    for ids, texts in documents.batches(TOGETHER):
        rows = vectors.rows(first, first + len(ids)).reshape(-1)
        first += len(ids)
        held = pa.FixedSizeListArray.from_arrays(pa.array(rows), vectors.dimension)
        yield pa.record_batch([pa.array(ids), pa.array(texts), held], names=["id", "text", "vector"])
