"""The exceptions of this package. The exceptions of collections are defined in `indexes.errors` and imported here."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from indexes.errors import BadFilter as BadFilter
from indexes.errors import Damaged as Damaged
from indexes.errors import Locked as Locked
from indexes.errors import Mismatch as Mismatch
from indexes.errors import Misuse as Misuse
from indexes.errors import NoSuchDocument as NoSuchDocument
from indexes.errors import NotACollection as NotACollection
from indexes.errors import NotReadable as NotReadable
from indexes.errors import RetrieverError as RetrieverError
from indexes.errors import first_line as first_line
from indexes.errors import require_type as require_type
from indexes.errors import salvage_advice as salvage_advice
from indexes.errors import shown as shown


class BadSource(RetrieverError):
    """A file or line of a corpus cannot be read as documents."""


class NoDocuments(Misuse):
    """A source contains no document. `reasons` lists every place that was skipped, with the reason."""

    def __init__(self, message: str, reasons: Sequence[tuple[str, str]]) -> None:
        super().__init__(message)
        self.reasons = reasons


class EncoderUnavailable(RetrieverError):
    """The encoder cannot be found, downloaded or loaded."""


class NoTextEncoder(EncoderUnavailable):
    """The documents of a collection brought their vectors, so nothing can encode a query."""


class TextTooLong(Misuse):
    """A text has more tokens than an input of the encoder. `place` is its number among the given texts."""

    def __init__(self, place: int, tokens: int, most: int) -> None:
        super().__init__(f"it has {tokens:,} tokens, but the encoder accepts at most {most:,}; divide the text.")
        self.place = place


class FitWarning(RuntimeWarning):
    """The fitted transform is not the requested one. The notes of the transform say why."""


class FitFailed(RetrieverError):
    """A transform could not be fitted to the given vectors."""


class MissingExtra(RetrieverError):
    """A package of an optional extra is not installed. The message names the extra."""


@contextmanager
def requires_extra(extra: str, purpose: str) -> Iterator[None]:
    """Turn a failed import of a third-party package into `MissingExtra`, whose message says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("retriever", "indexes"):
            raise
        message = f"{purpose} needs {package}; install it with: pip install 'flow-retriever[{extra}]'"
        raise MissingExtra(message) from error
