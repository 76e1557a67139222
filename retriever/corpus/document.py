"""What a corpus is made of: a document, or the reason why there is none at some place of a file."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from indexes.checksums import content_hash, metadata_text


@dataclass(frozen=True, slots=True)
class Document:
    """One text to be found, with what is known about it."""

    id: str
    text: str
    title: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    """Where it was read, for messages: `file.jsonl:12`."""

    def content_hash(self) -> bytes:
        """SHA-256 of title, text and metadata: equal exactly if all three are (key order aside)."""
        return content_hash(self.title, self.text, metadata_text(self.metadata))

    def characters(self) -> int:
        """How many characters it holds, its metadata as JSON: by that, memory is bounded."""
        of_metadata = len(metadata_text(self.metadata)) if self.metadata else 0
        return len(self.id) + len(self.title) + len(self.text) + of_metadata


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line, row or file that gave no document."""

    where: str
    reason: str


@dataclass(frozen=True)
class Keys:
    """The names under which a record holds its text, title and id."""

    text: str = "text"
    title: str = "title"
    id: str | None = None
    """None: `_id` or `id`, whichever is there."""
    fixed: bool = False
    """Whether the user cannot name others, so that messages must not say how."""

    def advice(self, option: str) -> str:
        """What to do about a key that is not there, for the end of a message."""
        return "the keys understood are text, title, _id and id" if self.fixed else f"see {option}"


def text_id(text: str) -> str:
    """The id of a document that has none of its own and comes from no place that could name it."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def document_of(record: Mapping[str, Any], keys: Keys, where: str, *, by_text: bool = False) -> Document | Skipped:
    """The document a JSON object or a table's row holds.

    Without an id of its own it goes by `where`, or by the hash of its text if `by_text`: a line of standard
    input is another one in the next run.

    Everything under other keys becomes metadata, joined with the object under `metadata`, which wins where
    both hold a key. NUL characters are removed from text and title: nobody sees them, and C code stops there.
    """
    rest = dict(record)

    text = rest.pop(keys.text, None)
    if text is None:
        given = "is null" if keys.text in record else f"is not there, but {listed(rest)}; {keys.advice('--text-key')}"
        return Skipped(where, f"has no text: {keys.text!r} {given}")
    if not isinstance(text, str):
        return Skipped(where, f"has no text: {keys.text!r} is {kind(text)}, not a string")
    text = text.replace("\0", "")
    if not text or text.isspace():
        return Skipped(where, f"has no text: {keys.text!r} is empty")

    title = rest.pop(keys.title, None)
    title = "" if title is None else _string(title)
    if title is None:
        return Skipped(where, f"its title is {kind(record[keys.title])}, not a string")

    id_key = keys.id if keys.id is not None else ("_id" if "_id" in rest else "id")
    given_id = rest.pop(id_key, None)
    if given_id is None and keys.id is not None:
        return Skipped(where, f"has no id: {id_key!r} is not there, but {listed(record)}; {keys.advice('--id-key')}")
    default_id = text_id(text) if by_text else where
    id = default_id if given_id is None else _string(given_id)
    if id is None:
        return Skipped(where, f"its id is {kind(given_id)}, not a string or an integer")
    if not id or id.isspace():
        return Skipped(where, "its id is empty")
    if "\0" in id:
        return Skipped(where, "its id holds a NUL character")

    if isinstance(rest.get("metadata"), dict):
        own = rest.pop("metadata")
        rest.update(own)
    return Document(id, text, title.replace("\0", ""), rest, where)


def _string(value: object) -> str | None:
    """A string, or an integer as one (ids and titles such as 1984); None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return None


def kind(value: object) -> str:
    """What a value is called in JSON."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}
    return names.get(type(value)) or ("an object" if isinstance(value, dict) else f"{type(value).__name__}")


def listed(names: Mapping[str, Any]) -> str:
    """The keys there are, for a message; not more than a reader wants to see."""
    shown = [short(name) for name in islice(names, 10)]
    return f"there are {', '.join(shown)}{', …' if len(names) > 10 else ''}" if shown else "nothing else is"


def short(name: str) -> str:
    """A name from a file, for a message; it may be made of megabytes."""
    return repr(name if len(name) <= 100 else name[:99] + "…")
