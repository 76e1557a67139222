"""Jobs that do what no job should, for the tests of the zygote itself."""

import atexit
import os
import signal
import time
from collections.abc import Callable
from typing import Any


def warm(encoder: str) -> None:
    """Have a process that leaves otherwise than by `os._exit` wait for ever, as ONNX Runtime's destructor did."""
    atexit.register(time.sleep, 600)


class Unspeakable(Exception):
    """Raises again while the zygote writes it down, outside of its `try`."""

    def __str__(self) -> str:
        raise ValueError("this error cannot be told")


def raise_unspeakable() -> None:
    raise Unspeakable


def interrupt_while_telling() -> None:
    class Interrupting(Exception):
        def __str__(self) -> str:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(600)
            return ""

    raise Interrupting


def hang(deaf: bool = False) -> None:
    if deaf:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    time.sleep(600)


def leave_a_process() -> int:
    """A process that outlives the job and keeps what it has open; its number."""
    left = os.fork()
    if not left:
        time.sleep(600)
        os._exit(0)
    return left


JOBS: dict[str, Callable[..., Any]] = {
    "echo": lambda value: value,
    "return what is no JSON": lambda: {1, 2},
    "raise outside of the try": raise_unspeakable,
    "interrupt while telling": interrupt_while_telling,
    "exit": lambda: os._exit(7),
    "quit": lambda: exit(3),
    "kill itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": hang,
    "leave a process": leave_a_process,
}
