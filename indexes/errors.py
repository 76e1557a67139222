"""The errors that users see: each says what is wrong, where, and what to do.

`exit_code` is the exit code of the command line: 2 when the request itself was wrong, 1 when a valid request failed.
"""

from pathlib import Path

SHOWN = 40


class RetrieverError(Exception):
    """Base class of every error that this project raises on purpose. Its message is written for users."""

    exit_code = 1


class Misuse(RetrieverError):
    """The request cannot be carried out as given: a wrong option, path or value."""

    exit_code = 2


class NotACollection(Misuse):
    """The folder holds no collection, or it holds a collection that this version cannot read."""


class NotReadable(Misuse):
    """This user does not have the permissions to read the collection."""


class Closed(Misuse):
    """The collection was already closed when it was used."""


class BadFilter(Misuse):
    """A filter on metadata cannot be parsed, or names a field that no document has."""

    place: int | None = None
    """The position of the invalid filter in the given list, counted from 0."""


class NoSuchDocument(Misuse):
    """No document has this id."""

    def __init__(self, id_: str, folder: Path | str) -> None:
        super().__init__(f"there is no document {id_!r} in {folder}.")
        self.id = id_


class Locked(RetrieverError):
    """Another process is writing to the collection."""


class Damaged(RetrieverError):
    """A file or row of the collection differs from what was stored."""


class Mismatch(RetrieverError):
    """Encoder, transform, index and table do not belong together."""


class TableGone(RetrieverError):
    """A table of Milvus no longer exists, e.g. because another process has replaced the index."""


def salvage_advice(folder: Path | str) -> str:
    """Return the advice for a database that cannot be repaired in place."""
    return f"save everything that is intact into a new folder: retriever salvage NEW --index {folder}"


def shown(value: object) -> str:
    """Return a value for a message, or its type if it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"a value of the type {type(value).__name__}"


def require_type(name: str, value: object, what: str, *types: type) -> None:
    """Raise `Misuse` if an argument has none of these types. A boolean is no number."""
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise Misuse(f"`{name}` must be {what}, not {shown(value)}.")


def first_line(error: BaseException) -> str:
    """Return the first line of a library's error message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
