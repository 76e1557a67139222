"""A separate process that makes the map of a collection: python -m retriever.serve.map_process FOLDER TARGET

The server starts this process, so that making a map does not slow down searches or use the server's memory. The process
prints its progress as lines of JSON. It ends when its standard input is closed, so it also ends when the server ends.
"""

import json
import os
import sys
import threading
from pathlib import Path

from retriever import Retriever
from retriever.errors import RetrieverError
from retriever.maps.map import save

NICENESS = 10


def main(folder: str, target: str) -> int:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(NICENESS)

    def progress(stage: str, done: int, total: int | None, detail: str = "") -> None:
        _print({"what": stage, "done": done / total if total else 0.0})

    try:
        with Retriever.open(folder) as retriever:
            save(retriever.map(progress), Path(target))
    except RetrieverError as error:
        _print({"error": str(error)})
        return 1
    return 0


def _print(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
