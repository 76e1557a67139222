"""A separate process that makes the map of a collection: python -m retriever.serve.map_process FOLDER TARGET

The server starts this process, so that making a map does not slow down searches or use the server's memory. The process
prints its progress as lines that start with PROGRESS. It ends when its standard input is closed, and thus when the
server ends.
"""

import os
import sys
import threading
from pathlib import Path

from retriever import Retriever
from retriever.errors import RetrieverError
from retriever.maps.map import save

NICENESS = 10
PROGRESS = "map-progress"
STAGES = {"reading": (0.0, 0.05), "laying out": (0.05, 0.75), "placing": (0.8, 0.15), "naming": (0.95, 0.05)}
"""For each stage, the progress at its start, and its share of the total progress."""


def main(folder: str, target: str) -> int | str:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(NICENESS)

    def progress(stage: str, done: int, total: int | None, detail: str = "") -> None:
        if stage in STAGES:
            begins, share = STAGES[stage]
            print(PROGRESS, round(begins + share * min(done / total if total else 0.0, 1.0), 3), stage, flush=True)

    try:
        with Retriever.open(folder) as retriever:
            save(retriever.map(progress), Path(target))
    except RetrieverError as error:
        return str(error)
    return 0


def _end_with_parent() -> None:
    # Without Python's buffer, whose lock this thread would hold while the interpreter shuts down.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
