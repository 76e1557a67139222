"""`retriever serve` in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def served(
    *arguments: object, code: str = "", **environment: str
) -> Iterator[tuple["subprocess.Popen[str]", str, list[str]]]:
    """The command in a process of its own, once it is ready: the process, its address, and what it said.

    `code` starts the command in place of `python -m retriever`.
    """
    program = ["-c", code] if code else ["-m", "retriever"]
    command = [sys.executable, *program, "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout and process.stderr
    said: list[str] = []
    try:
        for line in process.stdout:
            said.append(line)
            if line.startswith("Serving at "):
                break
        else:
            pytest.fail(f"it ended: {process.stderr.read()}")
        yield process, said[-1].split()[2], said
    finally:
        process.kill()
        process.communicate()
