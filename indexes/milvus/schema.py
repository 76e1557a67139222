"""The tables of a collection in Milvus: their fields and indexes."""

from collections.abc import Mapping
from typing import Any

from indexes.errors import Misuse, NotACollection, TableGone
from indexes.faiss.types import AUTO, DEFAULT_RECALL, IndexRequest, is_scanned_fast
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
Field = tuple[str, dict[str, Any]]
"""The type of a field, and its options."""
NUMBER: Field = ("INT64", {})
KEY: Field = ("VARCHAR", {"max_length": 512})
HASH: Field = ("VARCHAR", {"max_length": HASH_LENGTH})
TEXT: Field = ("VARCHAR", {"max_length": TEXT_BYTES})
TERMS: Field = ("VARCHAR", {**TEXT[1], "enable_analyzer": True, "analyzer_params": {"tokenizer": "standard"}})
FACTS: Field = ("ARRAY", {"element_type": "VARCHAR", "max_capacity": MAX_FACTS, "max_length": HASH_LENGTH})
FILTERS: dict[str, Field] = {"facts": FACTS, "bounds": ("JSON", {})}
"""The fields that filters test (indexes/milvus/facts.py)."""
INVERTED = {"index_type": "INVERTED"}


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
    fields = {"key": KEY, "value": TEXT, "unused": _vector(2)}  # Milvus requires a vector in every table
    return table(client, fields, unused={"index_type": "FLAT", "metric_type": "IP"})


def documents_table(client: Any) -> Table:
    from pymilvus import Function, FunctionType

    fields = {
        "number": NUMBER,
        **dict.fromkeys(("id", "body", "metadata", "source", "passages"), TEXT),
        **dict.fromkeys(("id_hash", "content_hash", "seal"), HASH),
        **dict.fromkeys(("title_length", "last_vector"), NUMBER),
        "terms": TERMS,
        "whole": ("BOOL", {}),
        **FILTERS,
        "words": ("SPARSE_FLOAT_VECTOR", {}),
    }
    bm25 = {"bm25_k1": 1.2, "bm25_b": 0.75}
    words = {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25", "params": bm25}
    schema, indexes = table(client, fields, words=words, id_hash=INVERTED)
    schema.add_function(Function("bm25", FunctionType.BM25, input_field_names=["terms"], output_field_names=["words"]))
    return schema, indexes


def vectors_table(client: Any, dimension: int) -> Table:
    fields = {"number": NUMBER, "text_hash": HASH, "raw": _vector(dimension), "checksum": NUMBER}
    return table(client, fields, raw={"index_type": "FLAT", "metric_type": "COSINE"}, text_hash=INVERTED)


def index_kind(index_type: str, count: int, dimension: int) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters of an index in Milvus. `auto` is exact while that is fast."""
    return INDEXES["flat" if index_type == AUTO and is_scanned_fast(count, dimension) else index_type]


def index_table(client: Any, dimension: int, kind: tuple[str, dict[str, Any]]) -> Table:
    numbers = dict.fromkeys(("document", "position", "start", "end", "vector"), NUMBER)
    fields = {"key": KEY, **numbers, "seal": HASH, "mapped": _vector(dimension), **FILTERS}
    mapped = {"index_type": kind[0], "metric_type": "IP", "params": kind[1]}
    return table(client, fields, mapped=mapped, document=INVERTED, vector=INVERTED)


def table(client: Any, fields: Mapping[str, Field], **indexes: dict[str, Any]) -> Table:
    """Return a table with these fields, of which the first is the primary key, and with indexes of some of them."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    for name, (kind, options) in fields.items():
        if "element_type" in options:
            options = {**options, "element_type": DataType[options["element_type"]]}
        schema.add_field(name, DataType[kind], is_primary=not schema.fields, **options)
    parameters = client.prepare_index_params()
    for name, settings in indexes.items():
        parameters.add_index(name, **settings)
    return schema, parameters


def _vector(dimension: int) -> Field:
    return "FLOAT_VECTOR", {"dim": dimension}


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
