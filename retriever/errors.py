"""The errors of text, encoders and transforms, beside those of the collection."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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
    "MissingExtra",
    "Misuse",
    "NoDocuments",
    "NoSuchDocument",
    "NotACollection",
    "NotReadable",
    "RetrieverError",
    "first_line",
    "requires_extra",
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


class MissingExtra(RetrieverError):
    """A package of an optional extra is not installed; the message names the extra."""


@contextmanager
def requires_extra(extra: str, purpose: str) -> Iterator[None]:
    """Turn a failed import of another project's package into `MissingExtra`, which says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("retriever", "indexes"):
            raise
        message = f"{purpose} needs {package}; install it with: pip install 'flow-retriever[{extra}]'"
        raise MissingExtra(message) from error
