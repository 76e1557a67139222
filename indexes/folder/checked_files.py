"""Remembers that the files of a generation had the right hashes, so that opening it again need not read them all.

A small file of the collection remembers each file's size, times of change and inode. Any write through the file system
changes the ctime, which no program can set back: a file that was changed since is hashed again.
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "checked.json"
# File systems count time in ticks of some milliseconds; a file this young might be changed again within its tick.
TOO_YOUNG_NS = 100_000_000

State = dict[str, Any]


def state_of(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> State | None:
    """What tells these files, whose hashes are to be right, from changed ones; None where one is missing."""
    try:
        stats = {name: (folder / name).stat() for name in files}
    except OSError:
        return None
    seen = {
        name: [files[name]["sha256"], s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev]
        for name, s in stats.items()
    }
    return {"folder": str(folder.resolve()), "files": seen}


def is_remembered(collection: Path, state: State | None) -> bool:
    """Whether the files are the very ones whose hashes were right when they were last computed."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return state is not None and bool(json.loads((collection / NAME).read_bytes()) == state)
    return False


def remember(collection: Path, state: State) -> None:
    """Note the state that files had before their hashes were computed; nothing where that cannot be written."""
    if time.time_ns() - max(seen[3] for seen in state["files"].values()) < TOO_YOUNG_NS:
        return
    aside = collection / f"{NAME}.{os.getpid()}"
    with contextlib.suppress(OSError):
        aside.unlink(missing_ok=True)  # of a collection that another made, it may be a link to anywhere
        aside.write_text(json.dumps(state), encoding="utf-8")
        aside.replace(collection / NAME)
