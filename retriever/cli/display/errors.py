"""The messages of errors, in the terms of the command line."""

import contextlib
import errno
import io
import os
import re
import shlex
import sqlite3
import sys
from pathlib import Path

import click

KEPT = "What was stored is kept. Run the same command again to continue."
CONTINUABLE = ("index", "add", "demo", "copy", "bench", "tune")
"""Commands that continue where they stopped if they are run again."""


class Failure(click.ClickException):
    """An error message with its exit code."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        from retriever.terminal import lines

        super().__init__(lines(message))
        self.exit_code = exit_code  # type: ignore[misc]


def with_flags(message: str, command: click.Command | None) -> str:
    """Replace arguments in backticks by flags of the command.

    E.g. `device="cpu"` becomes --device cpu, `include=["*.py"]` --include '*.py', and `Keys(text=...)` --text-key.
    """
    commands = command.commands.values() if isinstance(command, click.Group) else (command,) if command else ()
    given = [one for each in commands for one in each.params if isinstance(one, click.Option)]
    flags = {name: one.opts[0] for one in given for name in (one.name, one.opts[0][2:].replace("-", "_"))}
    without_value = {one.name for one in given if one.is_flag}

    def flag(match: re.Match[str]) -> str:
        key, name, value = match.groups()
        name = f"{key}_key" if key else name
        if name not in flags:
            return match[0]
        return f"{flags[name]} {shlex.quote(value)}" if value and name not in without_value else flags[name]

    return re.sub(r'`(?:Keys\((\w+)=\.\.\.\)|(\w+)(?:=\[?"?([^`"]*)"?\]?)?)`', flag, message)


def discard_output(*, probe: bool = False) -> bool:
    """Discard buffered output that cannot be written. Return whether writing the output had failed.

    Otherwise Python would try to write it again at exit. Long output is not buffered; with `probe`, a line break is
    written to find out whether the output can be written at all.
    """
    descriptor = None
    with contextlib.suppress(io.UnsupportedOperation):
        descriptor = sys.stdout.fileno()
    try:
        sys.stdout.flush()
        if probe and descriptor is not None:
            os.write(descriptor, b"\n")
    except OSError:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return True
    return False


def database_message(error: sqlite3.DatabaseError, command: str | None) -> str:
    text = str(error)
    # SQLite enlarges its shared-memory file even for reading. If that fails, it raises the error code below.
    if "full" in text or getattr(error, "sqlite_errorname", "") == "SQLITE_IOERR_SHMSIZE":
        return _disk_full(None, command, "even reading a collection needs a little free space beside it")
    salvage = "Save everything that is undamaged with: retriever salvage NEW --index DIR"
    if "malformed" in text or "not a database" in text or "decode" in text:
        return f"the collection's database is damaged ({text}). Check it with: retriever verify --index DIR. {salvage}"
    if "disk I/O" in text:
        kept = f" {KEPT}" if command in CONTINUABLE else ""
        return (
            f"the disk failed while the collection's database was read or written.{kept} If it fails again, read the "
            f"system's log. {salvage}"
        )
    return f"SQLite: {text}"


def os_message(error: OSError, command: str | None) -> str:
    if error.errno == errno.ENOSPC:
        return _disk_full(error.filename, command, "so the output could not be written")
    return f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}"


def _disk_full(path: str | None, command: str | None, consequence: str) -> str:
    what = f"the disk is full{f' ({path})' if path else ''}"
    if command in (*CONTINUABLE, "rebuild"):
        return f"{what}. What was stored is kept. Make room and run the same command again to continue."
    return f"{what}, {consequence}. Make room and run the same command again."
