"""Prepare standard input, output and error for a command, even if the caller has closed one of them."""

import io
import os
import sys


def prepare_streams() -> None:
    """Replace streams that the caller has closed by empty ones, and make every character writable.

    Without this, the next file to be opened, e.g. one of a collection, would get the number of the closed stream, and
    messages would be written into it. A character that the encoding of the output lacks becomes a question mark.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the system gives the lowest free number, which is this one
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for good
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")
