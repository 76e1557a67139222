"""Converts documents and passages to rows of Milvus and back, and checks them against their seals.

A field holds at most 64 kilobytes. If a field of a document is longer, the whole document is written to a record. Its
row then holds only the start of each text, which is enough for search by words.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import content_hash, document_seal, metadata_text, vector_checksum
from indexes.milvus.client import Row
from indexes.milvus.facts import facts_and_bounds
from indexes.milvus.records import Records
from indexes.rows import VECTOR_TYPE, DocumentRow, PassageRow
from indexes.terms import field_terms, id_terms

# Maximum number of bytes of a text in a row. A document with a longer text is stored in a record.
ROW_BYTES = 65_000
DOCUMENT_FIELDS = (
    *("number", "id", "body", "title_length", "metadata", "source"),
    *("content_hash", "seal", "passages", "whole"),
)
PASSAGE_FIELDS = ("document", "position", "start", "end", "vector")

Span = tuple[int, int, int, str]
"""A passage: its start, its end, the number of its vector, and the hash of its text."""


def document_row(number: int, row: DocumentRow, vectors: Mapping[bytes, int], records: Records, language: str) -> Row:
    """Return the row of a document. `language` is that of its terms.

    If the document is too long for a row, also write its record.
    """
    seal = seal_of(row)
    spans = [(start, end, vectors[text_hash], text_hash.hex()) for start, end, text_hash in row.passages]
    metadata = metadata_text(row.metadata)
    body = f"{row.title}\n{row.text}"
    passages = json.dumps(spans)
    texts = (row.id, body, metadata, row.source, passages)
    whole = all(len(text) <= ROW_BYTES and len(text.encode()) <= ROW_BYTES for text in texts)
    if not whole:
        everything = [row.id, row.title, row.text, metadata, row.source, spans]
        records.write(document_record(number, seal), json.dumps(everything, ensure_ascii=False))
    facts, bounds = facts_and_bounds(row.metadata)
    return {
        "number": number,
        "id_hash": id_hash(row.id),
        "id": _truncate(row.id),
        "body": _truncate(body),
        "terms": _truncate(tokens(document_terms(row, language))),
        "title_length": len(row.title) if whole else 0,
        "metadata": metadata if whole else "{}",
        "source": _truncate(row.source),
        "content_hash": row.content_hash.hex(),
        "seal": seal,
        "passages": passages if whole else "[]",
        "last_vector": max((vector for _, _, vector, _ in spans), default=0),
        "whole": whole,
        "facts": facts,
        "bounds": bounds,
    }


def index_rows(
    number: int, row: DocumentRow, vectors: Mapping[bytes, int], mapped: Mapping[int, NDArray[Any]]
) -> list[Row]:
    """Return the passages of a document as rows of the index. `mapped` holds the transformed vectors by number."""
    seal = seal_of(row)
    facts, bounds = facts_and_bounds(row.metadata)
    return [
        {
            "key": f"{number}.{position}.{seal[:16]}",
            "document": number,
            "position": position,
            "start": start,
            "end": end,
            "vector": vectors[text_hash],
            "seal": seal,
            "mapped": mapped[vectors[text_hash]],
            "facts": facts,
            "bounds": bounds,
        }
        for position, (start, end, text_hash) in enumerate(row.passages)
    ]


def document_terms(row: DocumentRow, language: str) -> list[str]:
    """Return the terms by which a document is found. Terms of the title are listed twice, because they count twice."""
    title, text = field_terms(row.title, language), field_terms(row.text, language)
    return [*id_terms(row.id, language), *title, *title, *text]


def tokens(terms: Iterable[str]) -> str:
    """Return terms as a text that every tokenizer of Milvus splits into the same terms.

    Milvus Lite has no tokenizer that only splits at spaces. A term with letters beyond ASCII is therefore hashed.
    """
    return " ".join(term if term.isascii() else blake2b(term.encode(), digest_size=6).hexdigest() for term in terms)


def stored_document(row: Row, records: Records) -> tuple[DocumentRow, list[PassageRow]]:
    """Return the document of a row and its passages.

    Raise ValueError, KeyError or TypeError if the document is damaged.
    """
    if row["whole"]:
        title, text = row["body"][: row["title_length"]], row["body"][row["title_length"] + 1 :]
        id_, metadata, source = row["id"], row["metadata"], row["source"]
        spans = json.loads(row["passages"])
    else:
        id_, title, text, metadata, source, spans = _record(row, records)
    content = bytes.fromhex(row["content_hash"])
    hashed = [(start, end, bytes.fromhex(text_hash)) for start, end, _, text_hash in spans]
    intact = content_hash(title, text, metadata) == content
    if not intact or document_seal(id_, content, source, hashed).hex() != row["seal"]:
        raise ValueError("it does not match its seal")
    document = DocumentRow(id_, title, text, json.loads(metadata), content, source, hashed)
    return document, _passages(row, spans)


def stored_passages(row: Row, records: Records) -> list[PassageRow]:
    """Return the passages of the document in a row. Only `number`, `seal`, `passages` and `whole` are used."""
    return _passages(row, json.loads(row["passages"]) if row["whole"] else _record(row, records)[5])


def stored_metadata(row: Row, records: Records) -> Any:
    """Return the metadata of the document in a row. Only `number`, `seal`, `metadata` and `whole` are used."""
    return json.loads(row["metadata"] if row["whole"] else _record(row, records)[3])


def _passages(row: Row, spans: Sequence[Span]) -> list[PassageRow]:
    number = int(row["number"])
    return [PassageRow(number, position, start, end, vector) for position, (start, end, vector, _) in enumerate(spans)]


def intact_vector(row: Row) -> NDArray[Any] | None:
    """Return the raw vector of a row in half precision, or None if it does not match its checksum."""
    half = np.array(row["raw"], np.float32).astype(VECTOR_TYPE)
    return half if vector_checksum(bytes.fromhex(row["text_hash"]), half.tobytes()) == row["checksum"] else None


def indexed_passage(row: Row) -> PassageRow:
    """Return the passage that a row of the index describes."""
    return PassageRow(*(int(row[name]) for name in PASSAGE_FIELDS))


def seal_of(row: DocumentRow) -> str:
    return document_seal(row.id, row.content_hash, row.source, row.passages).hex()


def hit_fields(row: DocumentRow) -> dict[str, Any]:
    """Return the fields of a document that a search returns."""
    return {"id": row.id, "title": row.title, "text": row.text, "metadata": row.metadata, "source": row.source}


def id_hash(id_: str) -> str:
    return hashlib.sha256(id_.encode("utf-8", "surrogatepass")).hexdigest()


def document_record(number: int, seal: str) -> str:
    """Return the name of the record of a document that is too long for a row."""
    return f"document/{number}/{seal}"


def _record(row: Row, records: Records) -> list[Any]:
    stored = json.loads(records.read(document_record(row["number"], row["seal"])) or "null")
    if not isinstance(stored, list):
        raise ValueError("its record is missing")
    return stored


def _truncate(text: str) -> str:
    return text[:ROW_BYTES].encode()[:ROW_BYTES].decode("utf-8", "ignore")
