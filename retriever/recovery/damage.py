"""Converts errors of SQLite that are caused by damage to `Damaged`, with the first problem that `verify` finds."""

import sqlite3
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from indexes.folder.verify import Report
from indexes.protocol import AnyCollection
from indexes.sqlite.database import is_transient
from retriever.errors import Damaged, first_line

MISUSE = (sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.NotSupportedError)
"""Errors of SQLite that are caused by a wrong call and not by the database."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Verifiable(Protocol):
    """An object that holds a collection and can check it."""

    @property
    def collection(self) -> AnyCollection: ...

    def verify(self) -> Report: ...


Owner = TypeVar("Owner", bound=Verifiable)
Method = Callable[Concatenate[Owner, Given], Result]


def detect_damage(method: Method[Owner, Given, Result]) -> Method[Owner, Given, Result]:
    """Decorate a method so that it raises `Damaged` if SQLite fails because the collection is damaged.

    All other errors are raised unchanged.
    """

    @wraps(method)
    def checked(self: Owner, /, *given: Given.args, **named: Given.kwargs) -> Result:
        store = self.collection.store
        if not store.owner_detects_replacement:  # else a thread would continue on the old file
            store.refuse_if_replaced()
        try:
            return store.consistent_read(lambda: method(self, *given, **named))
        except sqlite3.Error as error:
            if method.__name__ != "verify" and (problem := _explanation(self, error)):
                raise Damaged(
                    f"{problem}; check the collection with: retriever verify --index {self.collection.name}"
                ) from error
            raise

    return checked


def _explanation(owner: Verifiable, error: sqlite3.Error) -> str:
    """Return the problem that explains an error, or an empty string if the error is not caused by damage."""
    if is_transient(error) or isinstance(error, MISUSE):
        return ""
    if type(error) is sqlite3.DatabaseError:
        return f"{owner.collection.name} is damaged: {first_line(error)}"
    report = owner.verify()
    return report.problems[0] if report.problems else ""
