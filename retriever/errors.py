"""The errors of text, encoders and transforms, beside those of the collection."""

from collections.abc import Sequence

from indexes.errors import (
    BadFilter,
    Damaged,
    Locked,
    Mismatch,
    Misuse,
    NoSuchDocument,
    NotACollection,
    NotReadable,
    RetrieverError,
    first_line,
    salvage_advice,
)

__all__ = [
    "BadFilter",
    "BadSource",
    "Damaged",
    "EncoderUnavailable",
    "FitFailed",
    "FitWarning",
    "Locked",
    "Mismatch",
    "Misuse",
    "NoDocuments",
    "NoSuchDocument",
    "NotACollection",
    "NotReadable",
    "RetrieverError",
    "first_line",
    "salvage_advice",
]


class BadSource(RetrieverError):
    """A file or line of a corpus cannot be read as documents."""


class NoDocuments(Misuse):
    """A source has no document; `reasons` says of each place in it that should have been one why it is none."""

    def __init__(self, message: str, reasons: Sequence[tuple[str, str]]) -> None:
        super().__init__(message)
        self.reasons = reasons


class EncoderUnavailable(RetrieverError):
    """The encoder cannot be found, downloaded or loaded."""


class FitWarning(RuntimeWarning):
    """A transform other than the one asked for was fitted; its notes say why."""


class FitFailed(RetrieverError):
    """A transform could not be fitted to the vectors it was given."""
