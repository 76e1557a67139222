"""Workers for a Ray cluster that say which batches they begin, and take their time over them."""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retriever.ingest.engines.ray.worker import Worker


def noting_worker(folder: Path, seconds: float = 0.0) -> type[Worker]:
    """A worker that notes every batch before it is embedded; made here, so that Ray sends it by value."""

    class NotingWorker(Worker):
        def encode(self, tokens: list[list[int]], half: bool) -> Any:
            digest = hashlib.sha256(json.dumps(tokens).encode()).hexdigest()
            with (folder / f"{os.getpid()}.begun").open("a") as file:
                file.write(digest + "\n")
            time.sleep(seconds)
            return super().encode(tokens, half)

    return NotingWorker


def begun(folder: Path) -> dict[int, list[str]]:
    """The batches that each process has begun."""
    return {int(path.stem): path.read_text().split() for path in folder.glob("*.begun")}


def begun_again(folder: Path) -> int:
    """How many batches were begun more than once."""
    every = [digest for own in begun(folder).values() for digest in own]
    return len(every) - len(set(every))


def processes(words: Sequence[str]) -> list[int]:
    """The processes of this machine whose command has any of the words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if any(word in command for word in words):
                found.append(int(path.parent.name))
    return found
