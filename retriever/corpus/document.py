"""A document of a corpus, and its conversion from a record such as a JSON object or a row of a table."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from indexes.checksums import content_hash, metadata_text

JSON_NAMES = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}


@dataclass(frozen=True, slots=True)
class Document:
    """A text that can be found by a search, with its id, title and metadata."""

    id: str
    text: str
    title: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    """The place that the document was read from, for messages, e.g. `file.jsonl:12`."""

    def content_hash(self) -> bytes:
        """Return the SHA-256 of title, text and metadata. The order of the keys in the metadata does not matter."""
        return content_hash(self.title, self.text, metadata_text(self.metadata))

    def characters(self) -> int:
        """Return the number of characters of id, title, text and metadata (as JSON), to limit the use of memory."""
        of_metadata = len(metadata_text(self.metadata)) if self.metadata else 0
        return len(self.id) + len(self.title) + len(self.text) + of_metadata


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line, row or file that could not be read as a document."""

    where: str
    reason: str


@dataclass(frozen=True)
class Keys:
    """The keys under which a record has its text, title and id."""

    text: str = "text"
    title: str = "title"
    id: str | None = None
    """None means `_id`, or `id` if there is no `_id`."""
    fixed: bool = False
    """If True, the user cannot choose other keys, so messages do not name the arguments for that."""

    def advice(self, argument: str) -> str:
        """Return the end of a message about a missing key, which says what the user can do."""
        return "the known keys are text, title, _id and id" if self.fixed else f"see `Keys({argument}=...)`"


def text_id(text: str) -> str:
    """Return an id made from the text.

    Use it for a document without an id and without a permanent place, such as a line of standard input.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def document_of(record: Mapping[str, Any], keys: Keys, where: str, *, by_text: bool = False) -> Document | Skipped:
    """Make a document from a JSON object or a row of a table.

    If the record has no id, the id is `where`, or the hash of the text if `by_text` is set.

    All other keys become metadata. They are merged with the object under the key `metadata`; if a key is in both, the
    value in `metadata` is used. NUL characters are removed from text and title, because they are invisible and C code
    stops at them.
    """
    rest = dict(record)

    text = rest.pop(keys.text, None)
    if text is None:
        given = "is null" if keys.text in record else f"is missing; {listed(rest)}; {keys.advice('text')}"
        return Skipped(where, f"has no text: {keys.text!r} {given}")
    if not isinstance(text, str):
        return Skipped(where, f"has no text: {keys.text!r} is {json_name(text)}, not a string")
    text = text.replace("\0", "")
    if not text or text.isspace():
        return Skipped(where, f"has no text: {keys.text!r} is empty")

    title = rest.pop(keys.title, None)
    title = "" if title is None else _string(title)
    if title is None:
        return Skipped(where, f"its title is {json_name(record[keys.title])}, not a string")

    id_key = keys.id if keys.id is not None else ("_id" if "_id" in rest else "id")
    given_id = rest.pop(id_key, None)
    if given_id is None and keys.id is not None:
        return Skipped(where, f"has no id: {id_key!r} is missing; {listed(record)}; {keys.advice('id')}")
    default_id = text_id(text) if by_text else where
    id = default_id if given_id is None else _string(given_id)
    if id is None:
        return Skipped(where, f"its id is {json_name(given_id)}, not a string or an integer")
    if not id or id.isspace():
        return Skipped(where, "its id is empty")
    if "\0" in id:
        return Skipped(where, "its id holds a NUL character")

    if isinstance(rest.get("metadata"), dict):
        rest.update(rest.pop("metadata"))
    return Document(id, text, title.replace("\0", ""), rest, where)


def _string(value: object) -> str | None:
    """Return a string, or an integer such as the title 1984 as a string. Return None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else None


def json_name(value: object) -> str:
    """Return the JSON name of the type of a value, for messages."""
    return JSON_NAMES.get(type(value)) or ("an object" if isinstance(value, dict) else type(value).__name__)


def listed(names: Mapping[str, Any]) -> str:
    """Return a list of the first ten keys of a record, for messages."""
    shown = [shortened(name) for name in islice(names, 10)]
    return f"found: {', '.join(shown)}{', …' if len(names) > 10 else ''}" if shown else "found no others"


def shortened(name: str) -> str:
    """Return a name from a file, shortened for messages, because it may be megabytes long."""
    return repr(name if len(name) <= 100 else name[:99] + "…")
