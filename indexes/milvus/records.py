"""Records: named texts in one table of Milvus. Each record is replaced as a whole.

Records hold the state, the lock, the files of the transform, and documents that are too long for a row. A short text is
written into one row. For a longer text, first its parts are written under new keys, and then one row that lists the
parts. Readers therefore see either the old or the new text.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from indexes.errors import Damaged
from indexes.milvus.client import Client, Row, in_list

# A character has up to four bytes, and a field holds at most 65,535 bytes.
ROW_CHARACTERS = 16_000
PART = "part"


@dataclass(frozen=True)
class Records:
    """The table of records of one collection."""

    client: Client
    table: str

    def read(self, name: str) -> str | None:
        """Return the text of the record with this name, or None if there is no such record."""
        value = self._value(name)
        while value is not None:
            try:
                return self._text(name, value)
            except Damaged:  # damaged, or a writer replaced the text and deleted its parts
                before, value = value, self._value(name)
                if value == before:
                    raise
        return None

    def _value(self, name: str) -> str | None:
        found = self.client.select(self.table, in_list("key", [_key(name)]), ["value"])
        return str(found[0]["value"]) if found else None

    def write(self, name: str, text: str) -> None:
        before = self._value(name)
        head = {"crc": zlib.crc32(text.encode())}
        prefix = ""
        if len(text) <= ROW_CHARACTERS:
            value = json.dumps({**head, "text": text}, ensure_ascii=False)
        else:
            prefix = _parts_prefix(_key(name)) + hashlib.sha256(text.encode()).hexdigest()[:32]
            parts = [text[start : start + ROW_CHARACTERS] for start in range(0, len(text), ROW_CHARACTERS)]
            self.client.put(self.table, [row(f"{prefix}.{place}", part) for place, part in enumerate(parts)])
            value = json.dumps({**head, "parts": len(parts), "prefix": prefix})
        self.client.put(self.table, [row(_key(name), value)])
        if prefix or (before is not None and _has_parts(before)):
            self._delete_parts(_key(name), keep=prefix)  # including the parts that a dead writer left behind

    def delete(self, names: Iterable[str], *, orphans: bool = False) -> None:
        """Delete records.

        If `orphans`, also delete parts whose writer died before it wrote the row that lists them.
        """
        keys = with_parts = [_key(name) for name in names]
        if not orphans:
            rows = self.client.select_in(self.table, "key", keys, ["key", "value"])
            with_parts = [row["key"] for row in rows if _has_parts(row["value"])]
        for key in with_parts:
            self._delete_parts(key)
        self.client.delete_in(self.table, "key", keys)

    def _delete_parts(self, key: str, keep: str = "") -> None:
        kept = f' and not (key like "{keep}%")' if keep else ""
        self.client.delete(self.table, f'key like "{_parts_prefix(key)}%"{kept}')

    def _text(self, name: str, value: str) -> str:
        try:
            head = json.loads(value)
            text = head.get("text")
            if text is None:
                keys = [f"{head['prefix']}.{place}" for place in range(head["parts"])]
                rows = self.client.select_in(self.table, "key", keys, ["key", "value"])
                parts = {row["key"]: row["value"] for row in rows}
                text = "".join(parts[key] for key in keys)
            if zlib.crc32(text.encode()) != head["crc"]:
                raise ValueError("does not match its checksum")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(
                f"{self.client.address}: the record {name!r} is damaged ({error}); copy the collection again, or index "
                "it again."
            ) from error
        return str(text)


def _key(name: str) -> str:
    """Return the key of a record. It needs no escaping in an expression."""
    return hashlib.sha256(name.encode()).hexdigest()


def _parts_prefix(key: str) -> str:
    """Return the common prefix of the keys of all parts of a record."""
    return PART + key[:32]


def _has_parts(value: str) -> bool:
    return "parts" in json.loads(value)


def row(key: str, value: str) -> Row:
    """Return a row of the table of records."""
    return {"key": key, "value": value, "unused": [0.0, 0.0]}
