"""Handle Ctrl-C, SIGTERM and SIGHUP: the first signal stops cleanly, the second ends the process immediately.

A clean stop raises a KeyboardInterrupt. The batches in the encoder are finished and stored, and partial files are
removed. An immediate end loses at most the batches in the encoder. The collection stays intact, because it survives
being killed at any point.
"""

import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

STOPPING = "\nStopping after storing the current batches. Interrupt again to stop immediately.\n"
SHOW_CURSOR = "\x1b[?25h"

_deferred: list[int] = []
"""Empty unless `defer_signals` is active. Then it holds a 0, followed by the signals that have arrived since."""


class Interrupted(KeyboardInterrupt):
    """A clean stop was requested by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextlib.contextmanager
def graceful_shutdown() -> Iterator[None]:
    """Within this context, raise `Interrupted` at the first signal and end the process at the second."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        if stopping:
            _write(SHOW_CURSOR if sys.stderr.isatty() else "")
            os._exit(128 + number)
        stopping = True
        _write(STOPPING)
        if _deferred:
            _deferred.append(number)
        else:
            raise Interrupted(number)

    before = {number: signal.getsignal(number) for number in _stopping_signals()}
    try:
        for number in before:
            signal.signal(number, stop)
        yield
    finally:
        if not stopping:  # while the process stops, a second signal must still end it
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)


def exit_immediately() -> None:
    """From now on, end the process silently at the first signal. Use this only in a process that writes nothing.

    A thread ends the process. A Python signal handler could not do it reliably: it runs in the main thread, and a
    signal that arrives just before that thread starts to wait for an event does not wake it.
    """
    stopping = _stopping_signals()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)  # set_wakeup_fd requires it

    def end() -> None:
        while (number := os.read(reading, 1)[0]) not in stopping:
            pass
        os._exit(128 + number)

    threading.Thread(target=end, name="exit at a signal", daemon=True).start()
    signal.set_wakeup_fd(writing)
    for number in stopping:
        signal.signal(number, lambda number, frame: None)


class Flag:
    """A flag that one thread sets and that others wait for.

    `threading.Event` and `threading.Semaphore` are written in Python. An exception of a signal handler can come between
    two of their statements and leave their lock locked, and the thread that sets the event then waits for ever. A
    SimpleQueue is written in C: a signal comes before or after it.
    """

    def __init__(self) -> None:
        self._set = False
        self._waking: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        self._set = True
        self._waking.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the flag is set, but not longer than this. Return whether it is set."""
        if not self._set:
            with contextlib.suppress(queue.Empty):
                self._waking.get(timeout=seconds)
                self._waking.put(None)  # for others that wait
        return self._set


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Delay signals until the block ends. The block should be a few statements that must not be interrupted."""
    _deferred.append(0)
    try:
        yield
    finally:
        number = max(_deferred)
        _deferred.clear()
    if number:
        raise Interrupted(number)


def _stopping_signals() -> list[signal.Signals]:
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP


def _write(text: str) -> None:
    """Write to stderr without a buffer, because the signal may have interrupted a write to the buffer."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
