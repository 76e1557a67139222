"""A document of a corpus, and its conversion from a record such as a JSON object or a row of a table."""

import datetime
import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat, TypeAlias

from indexes.checksums import content_hash, metadata_text

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    Json: TypeAlias = str | int | float | bool | list["Json"] | dict[str, "Json"] | None
    """A value that JSON can hold."""
else:
    Json = Any  # pydantic, which makes the API's answers of hits, cannot resolve a recursive alias


class Numbers(Protocol):
    """A list, a tuple or an array of numbers."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[SupportsFloat]: ...


JSON_NAMES = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}


@dataclass(frozen=True, slots=True)
class Document:
    """A text that can be found by a search, with its id, title and metadata.

    >>> pets.add([Document("fish", "Goldfish swim in a bowl.", metadata={"legs": 0})]).new
    1
    >>> pets.document("fish").metadata
    {'legs': 0}
    """

    id: str
    text: str
    title: str = ""
    metadata: dict[str, Json] = field(default_factory=dict)
    source: str = ""
    """The place that the document was read from, for messages, e.g. `file.jsonl:12`."""
    state: str = field(default="", compare=False)
    """The state of the file, if the file is a single document.

    If the next run finds the same state, it does not read the file.
    """
    vector: "Numbers | None" = field(default=None, compare=False, repr=False)
    """The vector of the whole text, if the caller brings it. The encoder then does not read the text."""

    def content(self) -> tuple[str, str, dict[str, Any]]:
        """Return title, text and metadata."""
        return self.title, self.text, self.metadata

    def content_hash(self) -> bytes:
        """Return the SHA-256 of title, text and metadata. The order of the keys in the metadata does not matter."""
        return content_hash(self.title, self.text, metadata_text(self.metadata))

    def characters(self) -> int:
        """Return the number of characters of id, title, text and metadata (as JSON), to limit the use of memory."""
        of_metadata = len(metadata_text(self.metadata)) if self.metadata else 0
        return len(self.id) + len(self.title) + len(self.text) + of_metadata


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A file that was not read, because it has not changed since its document was stored."""

    id: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line, row or file that could not be read as a document.

    >>> pets.add([{"id": "worm", "text": "Worms dig."}, {"id": "snail"}]).skipped_list[0].reason
    "has no text: 'text' is missing; found: 'id'; the known keys are text, title, _id, id, ID, Id and key"
    """

    where: str
    reason: str
    file: str = field(default="", compare=False)
    """The name of the file or folder that could not be read, or that holds the item.

    Empty if the item is not from a file.
    """
    empty: bool = field(default=False, compare=False)
    """True if the item was read completely and has no text."""


ID_KEYS = ("_id", "id", "ID", "Id", "key")
"""The keys that may hold an id, if the user names none. The first that a record has is used."""


@dataclass(frozen=True)
class Keys:
    """The keys under which a record of a file has its text, title and id.

    >>> from pathlib import Path
    >>> _ = Path("birds.csv").write_text("name,body\\ntit,Tits sing.\\n")
    >>> [document.id for document in Corpus(["birds.csv"], keys=Keys(text="body", id="name"))]
    ['tit']
    """

    text: str = "text"
    title: str = "title"
    id: str | None = None
    """None means the first of `ID_KEYS`."""
    fixed: bool = False
    """If True, the user cannot choose other keys, so messages do not name the arguments for that."""

    def advice(self, argument: str) -> str:
        """Return the end of a message about a missing key, which says what the user can do."""
        return (
            f"the known keys are text, title, {', '.join(ID_KEYS[:-1])} and {ID_KEYS[-1]}"
            if self.fixed
            else f"see `Keys({argument}=...)`"
        )


def text_id(text: str) -> str:
    """Return an id made from the text.

    Use it for a document without an id and without a permanent place, such as a line of standard input.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def content_id(file: str, title: str, text: str, metadata: dict[str, Any]) -> str:
    """Return the id of a row without an id: the name of its file, and a hash of its content.

    The number of the row is not used, because an inserted row changes the numbers of all rows after it.
    """
    return f"{file}#{content_hash(title, text, metadata_text(metadata)).hex()[:16]}"


def document_of(record: Mapping[str, Any], keys: Keys, where: str, file: str = "") -> Document | Skipped:
    """Make a document from a JSON object or a row of a table.

    If the record has no id, the id is made from the content and the name of the file. Without a file, it is made from
    the text alone.

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
        return Skipped(where, f"has no text: {keys.text!r} is empty", empty=True)

    title = rest.pop(keys.title, None)
    title = "" if title is None else _string(title)
    if title is None:
        return Skipped(where, f"its title is {json_name(record[keys.title])}, not a string")

    id_key = keys.id if keys.id is not None else next((key for key in ID_KEYS if key in rest), ID_KEYS[0])
    given_id = rest.pop(id_key, None)
    if given_id is None and keys.id is not None:
        return Skipped(where, f"has no id: {id_key!r} is missing; {listed(record)}; {keys.advice('id')}")
    id = "" if given_id is None else _string(given_id)
    if id is None:
        return Skipped(where, f"its id is {json_name(given_id)}, not a string or an integer")
    if given_id is not None and (not id or id.isspace()):
        if not file or keys.id is not None:
            return Skipped(where, "its id is empty")
        given_id = None
    if "\0" in id:
        return Skipped(where, "its id holds a NUL character")

    if isinstance(rest.get("metadata"), dict):
        rest.update(rest.pop("metadata"))
    title = title.replace("\0", "")
    if given_id is None:
        id = content_id(file, title, text, rest) if file else text_id(text)
    return Document(id, text, title, rest, where)


def _string(value: object) -> str | None:
    """Return a string, or a whole number such as the title 1984 as a string. Return None for anything else.

    A frame with missing values has floats for whole numbers.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else None


def as_array(given: Any) -> "NDArray[Any]":
    """Return numbers as an array. Raise `TypeError` if they are none, or rows of different lengths.

    A tensor of torch may need gradients, be on a GPU, or have a type that numpy lacks.
    """
    import numpy as np

    try:
        if hasattr(given, "detach"):
            given = given.detach().cpu()
            given = given.float() if given.is_floating_point() else given
        array = np.asarray(given)
    except (ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(str(error)) from error
    if array.dtype.kind not in "biufO":
        raise TypeError(f"values of the type {array.dtype} are no numbers")
    return array


def as_numbers(given: Any, dtype: "DTypeLike") -> "NDArray[Any]":
    """Return numbers as an array of this type. A number that is too large for it becomes infinity."""
    import numpy as np

    try:
        with np.errstate(over="ignore"):
            return as_array(given).astype(dtype)
    except (ValueError, OverflowError) as error:
        raise TypeError(str(error)) from error


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


TIMES = (datetime.date, datetime.time, datetime.timedelta)


def jsonable(value: Any) -> Any:
    """Convert a value to one that JSON can hold.

    Times become ISO 8601, and bytes become hex. NaN becomes null, because pandas writes NaN for a missing value.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, TIMES):
        return value.total_seconds() if isinstance(value, datetime.timedelta) else value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
