"""The entry point: handles Ctrl-C from the start, even while the commands are being imported."""

import os
import signal
from types import FrameType


def main() -> None:
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # if the parent process ignores Ctrl-C, ignore it here too
        signal.signal(signal.SIGINT, _stop)
    from retriever.cli.main import main as command

    signal.signal(signal.SIGINT, before)
    command()


def _stop(number: int, frame: FrameType | None) -> None:
    os.write(2, b"\nInterrupted.\n")
    os._exit(128 + number)
