"""Ctrl-C, SIGTERM and a terminal that closes: the first asks for a clean end, the second ends the process at once.

A clean end is a KeyboardInterrupt: the batches in the encoder are finished and stored, what is half written is removed.
Ending at once loses no more than those batches, as a collection can be killed anywhere.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

STOPPING = "\nStopping; what is in hand is stored first. Once more stops at once.\n"
SHOW_CURSOR = "\x1b[?25h"

_held_back: list[int] = []
"""While it holds anything, signals are noted here."""


class Interrupted(KeyboardInterrupt):
    """The first signal, and which it was."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextlib.contextmanager
def graceful_shutdown() -> Iterator[None]:
    """While this lasts, the first signal raises `Interrupted` and the second ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            _say(SHOW_CURSOR if sys.stderr.isatty() else "")
            os._exit(128 + number)
        asked = True
        _say(STOPPING)
        if _held_back:
            _held_back.append(number)
        else:
            raise Interrupted(number)

    before = {number: signal.getsignal(number) for number in _stopping_signals()}
    try:
        for number in before:
            signal.signal(number, stop)
        yield
    finally:
        if not asked:  # else the process is on its way to its end, and a second signal may still come
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)


def exit_immediately() -> None:
    """For a process that only reads: from now on the first signal ends it, without a word."""

    def end(number: int, frame: FrameType | None) -> None:
        os._exit(128 + number)

    for number in _stopping_signals():
        signal.signal(number, end)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Let a signal that comes now interrupt only afterwards: for a few lines that must be done whole or not at all."""
    _held_back.append(0)
    try:
        yield
    finally:
        number = max(_held_back)
        _held_back.clear()
    if number:
        raise Interrupted(number)


def _stopping_signals() -> list[signal.Signals]:
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP


def _say(text: str) -> None:
    """Past all buffers: the signal may have come in the middle of writing one."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
