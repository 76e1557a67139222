"""Makes it safe to fork a process whose threads use collections.

A fork waits until these threads are done, and the child gets new locks.

A lock that SQLite, ONNX Runtime or another library holds at the moment of a fork stays locked forever in the child.
Therefore short operations that many threads run, such as a search, are marked `fork_safe`. Long operations, such as
writing, are not marked: if a process forks while one of its threads writes, the child must not use collections.
"""

import concurrent.futures.thread  # noqa: F401 - both modules register fork handlers, which run in
import logging  # noqa: F401 -                    reverse order: theirs must run after the handlers of this module
import os
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

LONGEST_WAIT = 60.0
"""Maximum number of seconds that a fork waits for other threads."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


class _Gate:
    """A gate that threads enter to work. A fork closes the gate and waits until all other threads have left it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._forking = False
        self._own = threading.local()

    def __enter__(self) -> None:
        depth = getattr(self._own, "depth", 0)
        if not depth:
            with self._changed:
                while self._forking:
                    self._changed.wait()
                self._inside += 1
        self._own.depth = depth + 1

    def __exit__(self, *error: object) -> None:
        self._own.depth -= 1
        if not self._own.depth:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def _own_count(self) -> int:
        return int(getattr(self._own, "depth", 0) > 0)

    def before_fork(self) -> None:
        with self._changed:
            while self._forking:  # another thread is forking
                self._changed.wait()
            self._forking = True
            self._changed.wait_for(lambda: self._inside <= self._own_count(), LONGEST_WAIT)

    def after_fork_in_parent(self) -> None:
        with self._changed:
            self._forking = False
            self._changed.notify_all()

    def after_fork_in_child(self) -> None:
        self._changed = threading.Condition()
        self._inside = self._own_count()
        self._forking = False


class Lock:
    """A lock that is free in a forked child, even if the parent held it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        self._lock = threading.Lock()


_gate = _Gate()
_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def fork_safe(work: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a function so that it never runs while another thread forks."""

    @wraps(work)
    def gated(*given: Given.args, **named: Given.kwargs) -> Result:
        with _gate:
            return work(*given, **named)

    return gated


def _after_in_child() -> None:
    _gate.after_fork_in_child()
    for lock in list(_locks):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_gate.before_fork, after_in_parent=_gate.after_fork_in_parent, after_in_child=_after_in_child
    )
