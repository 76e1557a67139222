"""Documents as rows of Milvus and back, held against their seals.

A field holds 64 kilobytes: a document of which something is longer is written whole into a record, and its row has the
beginnings, for searches by words.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import content_hash, document_seal, metadata_text, vector_checksum
from indexes.milvus.client import Row
from indexes.milvus.facts import facts_and_bounds
from indexes.milvus.records import Records
from indexes.rows import VECTOR_TYPE, DocumentRow, PassageRow

# Bytes that every text of a row may take; what is longer lies in records.
LONGEST_IN_ROW = 65_000
DOCUMENT_FIELDS = (
    *("number", "id", "body", "title_length", "metadata", "source"),
    *("content_hash", "seal", "passages", "whole"),
)

Place = tuple[int, int, int, str]
"""Where a passage starts and ends, the number of its vector, and the hash of its text."""


def document_row(number: int, row: DocumentRow, vectors: Mapping[bytes, int], records: Records) -> Row:
    """A document as the table of documents has it; what is too long is written to the records."""
    seal = seal_of(row)
    places = [(start, end, vectors[text_hash], text_hash.hex()) for start, end, text_hash in row.passages]
    metadata = metadata_text(row.metadata)
    body = f"{row.title}\n{row.text}"
    written = json.dumps(places)
    whole = all(_fits(text) for text in (row.id, body, metadata, row.source, written))
    if not whole:
        everything = [row.id, row.title, row.text, metadata, row.source, places]
        records.write(long_name(number, seal), json.dumps(everything, ensure_ascii=False))
    known, bounds = facts_and_bounds(row.metadata)
    return {
        "number": number,
        "id_hash": id_hash(row.id),
        "id": _cut(row.id),
        "body": _cut(body),
        "title_length": len(row.title) if whole else 0,
        "metadata": metadata if whole else "{}",
        "source": _cut(row.source),
        "content_hash": row.content_hash.hex(),
        "seal": seal,
        "passages": written if whole else "[]",
        "last_vector": max(vector for _, _, vector, _ in places) if places else 0,
        "whole": whole,
        "facts": known,
        "bounds": bounds,
    }


def index_rows(
    number: int, row: DocumentRow, vectors: Mapping[bytes, int], mapped: Mapping[int, NDArray[Any]]
) -> list[Row]:
    """The passages of a document as the index has them, each by the mapped vector of its number."""
    seal = seal_of(row)
    known, bounds = facts_and_bounds(row.metadata)
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
            "facts": known,
            "bounds": bounds,
        }
        for position, (start, end, text_hash) in enumerate(row.passages)
    ]


def stored_document(row: Row, records: Records) -> tuple[DocumentRow, list[PassageRow]]:
    """The document of a row, with its passages; a ValueError, KeyError or TypeError where it is not as stored."""
    if row["whole"]:
        title, text = row["body"][: row["title_length"]], row["body"][row["title_length"] + 1 :]
        id_, metadata, source = row["id"], row["metadata"], row["source"]
        places = json.loads(row["passages"])
    else:
        id_, title, text, metadata, source, places = _written(row, records)
    expected = bytes.fromhex(row["content_hash"])
    hashed = [(start, end, bytes.fromhex(text_hash)) for start, end, _, text_hash in places]
    sound = content_hash(title, text, metadata) == expected
    if not sound or document_seal(id_, expected, source, hashed).hex() != row["seal"]:
        raise ValueError("its seal is broken")
    document = DocumentRow(id_, title, text, json.loads(metadata), expected, source, hashed)
    return document, passages_in(int(row["number"]), places)


def places_in(row: Row, records: Records) -> list[Place]:
    """The places of a document's passages, from `number`, `seal`, `passages` and `whole` alone."""
    places: list[Place] = json.loads(row["passages"]) if row["whole"] else _written(row, records)[5]
    return places


def metadata_in(row: Row, records: Records) -> Any:
    """A document's metadata, from `number`, `seal`, `metadata` and `whole` alone."""
    return json.loads(row["metadata"] if row["whole"] else _written(row, records)[3])


def passages_in(number: int, places: Sequence[Place]) -> list[PassageRow]:
    return [PassageRow(number, position, start, end, vector) for position, (start, end, vector, _) in enumerate(places)]


def sound_half(row: Row) -> NDArray[Any] | None:
    """The raw vector of a row as it is stored elsewhere, in halves; None where it does not match its checksum."""
    half = np.array(row["raw"], np.float32).astype(VECTOR_TYPE)
    return half if vector_checksum(bytes.fromhex(row["text_hash"]), half.tobytes()) == row["checksum"] else None


def passage_of(row: Row) -> PassageRow:
    """The passage of a row of the index."""
    return PassageRow(*(int(row[name]) for name in ("document", "position", "start", "end", "vector")))


def seal_of(row: DocumentRow) -> str:
    return document_seal(row.id, row.content_hash, row.source, row.passages).hex()


def fields_of(row: DocumentRow) -> dict[str, Any]:
    """What a search tells of a document."""
    return {"id": row.id, "title": row.title, "text": row.text, "metadata": row.metadata}


def id_hash(id_: str) -> str:
    return hashlib.sha256(id_.encode("utf-8", "surrogatepass")).hexdigest()


def long_name(number: int, seal: str) -> str:
    """The record of a document that does not fit into a row."""
    return f"document/{number}/{seal}"


def _written(row: Row, records: Records) -> list[Any]:
    written = json.loads(records.read(long_name(row["number"], row["seal"])) or "null")
    if not isinstance(written, list):
        raise ValueError("the record of what it says is gone")
    return written


def _fits(text: str) -> bool:
    return len(text) <= LONGEST_IN_ROW and len(text.encode()) <= LONGEST_IN_ROW


def _cut(text: str) -> str:
    """The beginning of a text, as much as a field holds."""
    return text[:LONGEST_IN_ROW].encode()[:LONGEST_IN_ROW].decode("utf-8", "ignore")
