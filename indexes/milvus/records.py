"""Small texts by name in one table of Milvus, each changed as a whole: settings, state, files, what is too long for a
field.

A text that fits into one row is written there. A longer one is written in parts under a name of its own, and then the
row that tells of them: who reads sees the old text or the new one.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable

from indexes.errors import Damaged
from indexes.milvus.client import Client, Row, among

# Characters; of four bytes each at most, and then within what a field holds.
IN_ONE_ROW = 16_000
PART = "part"


class Records:
    """The table of records of one collection."""

    def __init__(self, client: Client, table: str) -> None:
        self.client = client
        self.table = table

    def read(self, name: str) -> str | None:
        """The text of this name; None where there is none."""
        value = self._value(name)
        while value is not None:
            try:
                return self._text(name, value)
            except Damaged:  # or written anew meanwhile, and its parts are gone
                before, value = value, self._value(name)
                if value == before:
                    raise
        return None

    def _value(self, name: str) -> str | None:
        found = self.client.select(self.table, among("key", [_key(name)]), ["value"])
        return str(found[0]["value"]) if found else None

    def write(self, name: str, text: str) -> None:
        aside = _aside(name) + hashlib.sha256(text.encode()).hexdigest()[:32]
        before = self.client.select(self.table, among("key", [_key(name)]), ["value"])
        if len(text) <= IN_ONE_ROW:
            value = json.dumps({"crc": zlib.crc32(text.encode()), "text": text}, ensure_ascii=False)
        else:
            parts = [text[start : start + IN_ONE_ROW] for start in range(0, len(text), IN_ONE_ROW)]
            self.client.put(self.table, [_row(_part(aside, place), part) for place, part in enumerate(parts)])
            value = json.dumps({"crc": zlib.crc32(text.encode()), "parts": len(parts), "aside": aside})
        self.client.put(self.table, [_row(_key(name), value)])
        if len(text) > IN_ONE_ROW or any("aside" in json.loads(row["value"]) for row in before):
            kept = f' and not (key like "{PART}{aside}%")' if len(text) > IN_ONE_ROW else ""
            self.client.delete(self.table, f'key like "{PART}{_aside(name)}%"{kept}')  # of a writer that died, too

    def delete(self, names: Iterable[str]) -> None:
        keys = [_key(name) for name in names]
        for row in self.client.select_among(self.table, "key", keys, ["value"]):
            self._forget_parts(str(row["value"]))
        self.client.delete_among(self.table, "key", keys)

    def sweep(self, names: Iterable[str]) -> None:
        """Delete these and all parts of theirs: a writer may have died before it wrote the row that tells of them."""
        for name in names:
            self.client.delete(self.table, f'key like "{PART}{_aside(name)}%"')
            self.client.delete_among(self.table, "key", [_key(name)])

    def _text(self, name: str, value: str) -> str:
        try:
            told = json.loads(value)
            text = told.get("text")
            if text is None:
                keys = [_part(told["aside"], place) for place in range(told["parts"])]
                rows = self.client.select_among(self.table, "key", keys, ["key", "value"])
                found = {row["key"]: row["value"] for row in rows}
                text = "".join(found[key] for key in keys)
            if zlib.crc32(text.encode()) != told["crc"]:
                raise ValueError("does not match its checksum")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(
                f"{self.client.address}: the record {name!r} is damaged ({error}); copy the collection anew, or index "
                "it again."
            ) from error
        return str(text)

    def _forget_parts(self, value: str) -> None:
        told = json.loads(value)
        if "aside" in told:
            keys = [_part(told["aside"], place) for place in range(told["parts"])]
            self.client.delete_among(self.table, "key", keys)


def _key(name: str) -> str:
    """A key that can stand in an expression, whatever the name is."""
    return hashlib.sha256(name.encode()).hexdigest()


def _aside(name: str) -> str:
    """What the keys of all parts of a text begin with."""
    return _key(name)[:32]


def _part(aside: str, place: int) -> str:
    return f"{PART}{aside}.{place}"


def _row(key: str, value: str) -> Row:
    return {"key": key, "value": value, "nothing": [0.0, 0.0]}
