"""Errors that damage can explain, told as damage: nothing else than a `RetrieverError` leaves a damaged collection."""

import sqlite3
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from indexes.address import in_milvus
from indexes.errors import DAMAGE
from indexes.folder import verify
from indexes.folder.verify import Report
from indexes.protocol import AnyCollection
from indexes.sqlite.documents import is_transient
from retriever.errors import Damaged, first_line

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Verifiable(Protocol):
    """What holds a collection and can check it."""

    @property
    def collection(self) -> AnyCollection: ...

    def verify(self) -> Report: ...


Owner = TypeVar("Owner", bound=Verifiable)
Method = Callable[Concatenate[Owner, Given], Result]


def detect_damage(method: Method[Owner, Given, Result]) -> Method[Owner, Given, Result]:
    """A method that says `Damaged` where it fails and the collection is not as it was stored.

    What it fails with may have another reason: then that is what it raises.
    """

    @wraps(method)
    def told(self: Owner, /, *given: Given.args, **named: Given.kwargs) -> Result:
        store = self.collection.store
        if not store.outlives_replacement:  # a thread with a connection could go on, and another could not begin
            store.refuse_if_replaced()
        try:
            return store.steadily(lambda: method(self, *given, **named))
        except (sqlite3.Error, *DAMAGE) as error:
            if method.__name__ != "verify" and (problem := _explanation(self, error)):
                raise Damaged(f"{problem}; look with: retriever verify --index {self.collection.name}") from error
            raise

    return told


def refuse_broken_log(place: str | Path) -> None:
    """Refuse a folder whose write-ahead log is damaged, before it is opened: opening drops what follows the damage."""
    if not in_milvus(place):
        verify.refuse_broken_log(Path(place))


def _explanation(owner: Verifiable, error: Exception) -> str:
    if isinstance(error, sqlite3.OperationalError) and is_transient(error):
        return ""
    if type(error) is sqlite3.DatabaseError:
        return f"{owner.collection.name} is damaged: {first_line(error)}"
    report = owner.verify()
    return report.problems[0] if report.problems else ""
