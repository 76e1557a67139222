"""The errors of text, encoders and transforms, beside those of the collection."""

from indexes.errors import (
    BadFilter,
    Damaged,
    DamageWarning,
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
    "DamageWarning",
    "Damaged",
    "EncoderUnavailable",
    "FitFailed",
    "FitWarning",
    "Locked",
    "Mismatch",
    "Misuse",
    "NoSuchDocument",
    "NotACollection",
    "NotReadable",
    "RetrieverError",
    "first_line",
    "salvage_advice",
]


class BadSource(RetrieverError):
    """A file or line of a corpus cannot be read as documents."""


class EncoderUnavailable(RetrieverError):
    """The encoder cannot be found, downloaded or loaded."""


class FitWarning(RuntimeWarning):
    """A transform other than the one asked for was fitted; its notes say why."""


class FitFailed(RetrieverError):
    """A transform could not be fitted to the vectors it was given."""
