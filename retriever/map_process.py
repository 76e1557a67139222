"""Makes the map of a collection in a process of its own: python -m retriever.map_process FOLDER TARGET

A server starts it, so that neither its searches nor its memory suffer. It says how far it is on standard output, a line
of JSON each, and ends when its standard input does: with the process that started it.
"""

import json
import os
import sys
import threading
from pathlib import Path

from retriever import Retriever
from retriever.errors import RetrieverError
from retriever.map_files import save

GENTLY = 10


def main(folder: str, target: str) -> int:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(GENTLY)

    def progress(stage: str, done: int, total: int | None, detail: str = "") -> None:
        _say({"what": stage, "done": done / total if total else 0.0})

    try:
        with Retriever.open(folder) as retriever:
            save(retriever.map(progress), Path(target))
    except RetrieverError as error:
        _say({"error": str(error)})
        return 1
    return 0


def _say(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
