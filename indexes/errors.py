"""The errors people see: each says what is wrong, where, and what to do.

`exit_code` is what the command line returns: 2 when the request itself was wrong, 1 when a right request failed.
"""

from pathlib import Path


class RetrieverError(Exception):
    """Base of every error this project raises on purpose; its message is written for people."""

    exit_code = 1


class Misuse(RetrieverError):
    """The request cannot be carried out as given: a wrong option, path or value."""

    exit_code = 2


class NotACollection(Misuse):
    """The folder holds no collection, or one this version cannot read."""


class NotReadable(Misuse):
    """The collection cannot be read in the place where it lies, by this user."""


class BadFilter(Misuse):
    """A filter over metadata cannot be understood, or names a field that no document has."""

    place: int | None = None
    """Which of the filters it is, counted from 0, where one is at fault."""


class NoSuchDocument(Misuse):
    """No document has this id."""

    def __init__(self, id_: str, folder: Path | str) -> None:
        super().__init__(f"there is no document {id_!r} in {folder}.")
        self.id = id_


class Locked(RetrieverError):
    """Another process is writing to the collection."""


class Damaged(RetrieverError):
    """A file or row of the collection is not what was stored."""


class Mismatch(RetrieverError):
    """Two things that must belong together do not: encoder, transform, index or table."""


# What reading damaged rows and files can provoke beside SQLite's own errors.
DAMAGE = (
    UnicodeError,
    OverflowError,
    MemoryError,
    RecursionError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,
)


def salvage_advice(folder: Path | str) -> str:
    """What to do about a database that cannot be repaired where it is."""
    return f"save all that is sound into a new folder: retriever salvage NEW --index {folder}"


def first_line(error: BaseException) -> str:
    """What a library's error says, short enough for a message of ours."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
