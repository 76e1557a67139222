"""The tables of a collection in Milvus: their fields and indexes."""

from typing import Any

from indexes.errors import Misuse, NotACollection, TableGone
from indexes.faiss.types import AUTO, DEFAULT_RECALL, IndexRequest
from indexes.milvus.client import Client

# Limits of Milvus: the bytes of a text field, the elements of an array field, and the bytes of a JSON field. The last
# limit is 65,536, and some bytes are kept in reserve.
TEXT_BYTES = 65_535
MAX_FACTS = 4096
JSON_BYTES = 60_000
HASH_LENGTH = 64

INDEXES: dict[str, tuple[str, dict[str, Any]]] = {
    "flat": ("FLAT", {}),
    "ivf": ("IVF_FLAT", {"nlist": 1024}),
    "hnsw": ("HNSW", {"M": 32, "efConstruction": 200}),
    AUTO: ("AUTOINDEX", {}),
}
"""The index types that are available in Milvus, with their names and parameters there."""
EXACT = "FLAT"
SEARCH_SETTINGS: dict[str, dict[str, Any]] = {"IVF_FLAT": {"nprobe": 64}, "HNSW": {"ef": 200}}

Table = tuple[Any, Any]
"""The schema and the index parameters of a table, as pymilvus expects them."""


def check_index(request: IndexRequest) -> None:
    """Refuse an index type or option that Milvus does not support."""
    if request.type not in INDEXES:
        raise Misuse(
            f'`index_type="{request.type}"` exists only in FAISS; in Milvus use {", ".join(INDEXES)} (auto lets Milvus '
            "choose)."
        )
    if request.memory is not None or request.recall not in (None, DEFAULT_RECALL):
        raise Misuse("`recall` and `memory` apply to FAISS only; Milvus has no such options.")


def settings_table(client: Any) -> Table:
    schema = _schema(client, "VARCHAR", "key")
    schema.add_field("value", _type("VARCHAR"), max_length=TEXT_BYTES)
    schema.add_field("unused", _type("FLOAT_VECTOR"), dim=2)  # Milvus requires a vector in every table
    return schema, _indexes(client, unused={"index_type": "FLAT", "metric_type": "IP"})


def documents_table(client: Any) -> Table:
    from pymilvus import Function, FunctionType

    schema = _schema(client, "INT64", "number")
    schema.add_field("body", _type("VARCHAR"), max_length=TEXT_BYTES, enable_analyzer=True)
    for name in ("id", "metadata", "source", "passages"):
        schema.add_field(name, _type("VARCHAR"), max_length=TEXT_BYTES)
    for name in ("id_hash", "content_hash", "seal"):
        schema.add_field(name, _type("VARCHAR"), max_length=HASH_LENGTH)
    for name in ("title_length", "last_vector"):
        schema.add_field(name, _type("INT64"))
    schema.add_field("whole", _type("BOOL"))
    add_filter_fields(schema)
    schema.add_field("words", _type("SPARSE_FLOAT_VECTOR"))
    schema.add_function(
        Function(name="bm25", function_type=FunctionType.BM25, input_field_names=["body"], output_field_names=["words"])
    )
    bm25 = {"bm25_k1": 1.2, "bm25_b": 0.75}
    words = {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25", "params": bm25}
    return schema, _indexes(client, words=words, id_hash={"index_type": "INVERTED"})


def vectors_table(client: Any, dimension: int) -> Table:
    schema = _schema(client, "INT64", "number")
    schema.add_field("text_hash", _type("VARCHAR"), max_length=HASH_LENGTH)
    schema.add_field("raw", _type("FLOAT_VECTOR"), dim=dimension)
    schema.add_field("checksum", _type("INT64"))
    raw = {"index_type": "FLAT", "metric_type": "COSINE"}
    return schema, _indexes(client, raw=raw, text_hash={"index_type": "INVERTED"})


def index_table(client: Any, dimension: int, request: IndexRequest) -> Table:
    schema = _schema(client, "VARCHAR", "key")
    for name in ("document", "position", "start", "end", "vector"):
        schema.add_field(name, _type("INT64"))
    schema.add_field("seal", _type("VARCHAR"), max_length=HASH_LENGTH)
    schema.add_field("mapped", _type("FLOAT_VECTOR"), dim=dimension)
    add_filter_fields(schema)
    kind, parameters = INDEXES[request.type]
    mapped = {"index_type": kind, "metric_type": "IP", "params": parameters}
    inverted = {"index_type": "INVERTED"}
    return schema, _indexes(client, mapped=mapped, document=inverted, vector=inverted)


def check_tables(client: Client, tables: dict[str, Table], *, complete: bool = True) -> None:
    """Refuse tables of another program. If `complete`, also refuse a collection that lacks a table."""
    for table, (expected, _) in tables.items():
        try:
            fields = set(client.fields(table))
        except TableGone as error:
            if not complete:
                continue
            raise NotACollection(
                f"{client.address} is incomplete: it has no table {table}. If its creation was interrupted, run the "
                "same command again. Otherwise choose another name (#NAME) for the new collection."
            ) from error
        if differing := {field.name for field in expected.fields} ^ fields:
            raise NotACollection(
                f"{client.address}: the table {table} was made by another program or version (its fields differ in "
                f"{', '.join(sorted(differing))}); choose another name: {client.address}#NAME"
            )


def check_dimension(client: Client, table: str, dimension: int) -> None:
    """Refuse a table with vectors of another dimension. If that table is empty, create it again instead."""
    existing = int(client.fields(table)["raw"]["params"]["dim"])
    if existing == dimension:
        return
    if client.count(table):
        raise NotACollection(
            f"{client.address}: the table {table} holds vectors of {existing} dimensions, and the encoder gives "
            f"{dimension}; choose another name: {client.address}#NAME"
        )
    client.drop(table)
    client.create(table, *vectors_table(client.pymilvus, dimension))


def add_filter_fields(schema: Any) -> None:
    """Add the fields that filters test (indexes/milvus/facts.py)."""
    text = _type("VARCHAR")
    schema.add_field("facts", _type("ARRAY"), element_type=text, max_capacity=MAX_FACTS, max_length=HASH_LENGTH)
    schema.add_field("bounds", _type("JSON"))


def _schema(client: Any, key_type: str, key: str) -> Any:
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    length = {"max_length": 512} if key_type == "VARCHAR" else {}
    schema.add_field(key, _type(key_type), is_primary=True, **length)
    return schema


def _indexes(client: Any, **indexes: dict[str, Any]) -> Any:
    parameters = client.prepare_index_params()
    for field, settings in indexes.items():
        parameters.add_index(field, **settings)
    return parameters


def _type(name: str) -> Any:
    from pymilvus import DataType

    return DataType[name]
