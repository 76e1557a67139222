"""The tables of a collection in Milvus: their fields, and which of these are indexed."""

from typing import Any

from indexes.errors import Misuse
from indexes.faiss.types import AUTO, DEFAULT_RECALL, IndexRequest

LONGEST_TEXT = 65_535
"""Bytes of a text field."""
MOST_FACTS = 4096
"""Elements of an array field."""
LARGEST_JSON = 60_000
"""Bytes of a JSON field: Milvus takes 65,536."""
HASH = 64

INDEXES: dict[str, tuple[str, dict[str, Any]]] = {
    "flat": ("FLAT", {}),
    "ivf": ("IVF_FLAT", {"nlist": 1024}),
    "hnsw": ("HNSW", {"M": 32, "efConstruction": 200}),
    AUTO: ("AUTOINDEX", {}),
}
"""What Milvus makes of the index types that it has."""
EXACT = "FLAT"
SEARCH_SETTINGS: dict[str, dict[str, Any]] = {"IVF_FLAT": {"nprobe": 64}, "HNSW": {"ef": 200}}


def check_index(asked: IndexRequest) -> None:
    """Refuse an index type that Milvus is not asked for here."""
    if asked.type not in INDEXES:
        raise Misuse(
            f"--index-type {asked.type} is FAISS's; in Milvus there are {', '.join(INDEXES)} (auto leaves it to "
            "Milvus)."
        )
    if asked.memory is not None or asked.recall not in (None, DEFAULT_RECALL):
        raise Misuse("--recall and --memory are for FAISS's auto; what Milvus chooses it chooses by itself.")


def settings_table(client: Any) -> tuple[Any, Any]:
    schema = _schema(client)
    schema.add_field("key", _type("VARCHAR"), is_primary=True, max_length=512)
    schema.add_field("value", _type("VARCHAR"), max_length=LONGEST_TEXT)
    schema.add_field("nothing", _type("FLOAT_VECTOR"), dim=2)  # no table may be without a vector
    indexes = client.prepare_index_params()
    indexes.add_index("nothing", index_type="FLAT", metric_type="IP")
    return schema, indexes


def documents_table(client: Any) -> tuple[Any, Any]:
    from pymilvus import Function, FunctionType

    schema = _schema(client)
    schema.add_field("number", _type("INT64"), is_primary=True)
    schema.add_field("id_hash", _type("VARCHAR"), max_length=HASH)
    schema.add_field("id", _type("VARCHAR"), max_length=LONGEST_TEXT)
    schema.add_field("body", _type("VARCHAR"), max_length=LONGEST_TEXT, enable_analyzer=True)
    schema.add_field("title_length", _type("INT64"))
    schema.add_field("metadata", _type("VARCHAR"), max_length=LONGEST_TEXT)
    schema.add_field("source", _type("VARCHAR"), max_length=LONGEST_TEXT)
    schema.add_field("content_hash", _type("VARCHAR"), max_length=HASH)
    schema.add_field("seal", _type("VARCHAR"), max_length=HASH)
    schema.add_field("passages", _type("VARCHAR"), max_length=LONGEST_TEXT)
    schema.add_field("last_vector", _type("INT64"))
    schema.add_field("whole", _type("BOOL"))
    _add_facts(schema)
    schema.add_field("words", _type("SPARSE_FLOAT_VECTOR"))
    schema.add_function(
        Function(name="bm25", function_type=FunctionType.BM25, input_field_names=["body"], output_field_names=["words"])
    )
    indexes = client.prepare_index_params()
    indexes.add_index(
        "words",
        index_type="SPARSE_INVERTED_INDEX",
        metric_type="BM25",
        params={"bm25_k1": 1.2, "bm25_b": 0.75},
    )
    indexes.add_index("id_hash", index_type="INVERTED")
    return schema, indexes


def vectors_table(client: Any, dimension: int) -> tuple[Any, Any]:
    schema = _schema(client)
    schema.add_field("number", _type("INT64"), is_primary=True)
    schema.add_field("text_hash", _type("VARCHAR"), max_length=HASH)
    schema.add_field("raw", _type("FLOAT_VECTOR"), dim=dimension)
    schema.add_field("checksum", _type("INT64"))
    indexes = client.prepare_index_params()
    indexes.add_index("raw", index_type="FLAT", metric_type="COSINE")
    indexes.add_index("text_hash", index_type="INVERTED")
    return schema, indexes


def index_table(client: Any, dimension: int, asked: IndexRequest) -> tuple[Any, Any]:
    schema = _schema(client)
    schema.add_field("key", _type("VARCHAR"), is_primary=True, max_length=HASH)
    for name in ("document", "position", "start", "end", "vector"):
        schema.add_field(name, _type("INT64"))
    schema.add_field("seal", _type("VARCHAR"), max_length=HASH)
    schema.add_field("mapped", _type("FLOAT_VECTOR"), dim=dimension)
    _add_facts(schema)
    kind, parameters = INDEXES[asked.type]
    indexes = client.prepare_index_params()
    indexes.add_index("mapped", index_type=kind, metric_type="IP", params=parameters)
    indexes.add_index("document", index_type="INVERTED")
    indexes.add_index("vector", index_type="INVERTED")
    return schema, indexes


def _add_facts(schema: Any) -> None:
    """What filters ask for (see indexes/milvus/facts.py)."""
    schema.add_field("facts", _type("ARRAY"), element_type=_type("VARCHAR"), max_capacity=MOST_FACTS, max_length=HASH)
    schema.add_field("bounds", _type("JSON"))


def _schema(client: Any) -> Any:
    return client.create_schema(auto_id=False, enable_dynamic_field=False)


def _type(name: str) -> Any:
    from pymilvus import DataType

    return DataType[name]
