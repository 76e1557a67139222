"""The connections to one SQLite file: one a thread, and never one that a fork has carried into another process.

SQLite isolates connections from each other, so threads that share a collection see one snapshot each, as processes do.
A connection must not be used, nor even closed, in a child of the process that opened it: the child opens its own.
"""

import contextlib
import ctypes
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import count

from indexes.sqlite.library import Database

_serials = count(1)
_open: "weakref.WeakSet[Connections]" = weakref.WeakSet()


class Connections:
    """Gives every thread its own connection, made by `connect` when the thread first asks for one."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        # By thread and not by its number, which the system gives to another one once it has ended.
        self._of_threads: dict[threading.Thread, tuple[int, Database]] = {}
        self._writing = threading.RLock()
        self._closed = False
        _open.add(self)

    @property
    def mine(self) -> Database:
        """The calling thread's own."""
        return self._entry()[1]

    @property
    def serial(self) -> int:
        """A number that no two connections of this process share."""
        return self._entry()[0]

    def _entry(self) -> tuple[int, Database]:
        thread = threading.current_thread()
        found = self._of_threads.get(thread)
        if found is None:
            if self._closed:
                raise sqlite3.ProgrammingError("the collection is closed.")
            self._close_of_ended_threads()
            found = self._of_threads[thread] = (next(_serials), Database(self._connect()))
        return found

    def _close_of_ended_threads(self) -> None:
        for thread in [thread for thread in list(self._of_threads) if not thread.is_alive()]:
            if ended := self._of_threads.pop(thread, None):
                ended[1].conn.close()

    @contextlib.contextmanager
    def changing(self) -> Iterator[Database]:
        """One transaction that writes, in turn with those of the other threads, which SQLite would refuse."""
        with self._writing:
            database = self.mine
            with database.atomic():
                yield database

    def close_mine(self) -> None:
        """Close the calling thread's own; it gets another when it next asks."""
        found = self._of_threads.pop(threading.current_thread(), None)
        if found:
            found[1].conn.close()

    def close(self) -> None:
        """Close those of all threads; none of them may be in use."""
        self._closed = True
        while self._of_threads:
            self._of_threads.popitem()[1][1].conn.close()

    def abandon(self) -> None:
        """Forget all of them without closing any, in a child that inherited them."""
        for _, database in self._of_threads.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(database.conn))
        self._of_threads = {}
        self._writing = threading.RLock()


def _abandon_all() -> None:
    for connections in list(_open):
        connections.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
