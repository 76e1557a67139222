"""Collections in Milvus for tests: Milvus Lite in this process, or a server of its own that can be killed."""

import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from retriever import Retriever
from retriever.hits import Hits

SERVE = "import sys; from milvus_lite.cmdline import main; sys.exit(main(sys.argv[1:]))"


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Server:
    """`milvus-lite server` as a process; killed and started again it has the same data and port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def place(self) -> str:
        return f"milvus:http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start it and wait until it listens."""
        command = [sys.executable, "-c", SERVE, "server", "--data-dir", str(self.folder), "--port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while self.process.poll() is None:
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.05)
        raise RuntimeError("milvus-lite server did not start")

    def kill(self) -> None:
        """End it as a power failure would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def shown(hits: Hits) -> list[tuple[Any, ...]]:
    """All that a search tells, the scores as far as two machines agree on them."""
    return [(hit.id, round(hit.score, 5), hit.title, hit.passage, hit.start, hit.end, hit.metadata) for hit in hits]


def told(error: BaseException, place: str | Path) -> tuple[str, str]:
    """The kind and words of an error, whatever the place is called."""
    return type(error).__name__, str(error).replace(str(place), "PLACE")


def state(place: str | Path, *queries: str) -> dict[str, Any]:
    """What a reader sees of a collection: its documents and what some searches find."""
    with Retriever.open(place) as retriever:
        found = {query: shown(retriever.search(query, 1000, mode="dense")) for query in queries}
        info = retriever.info()
        kept = ("documents", "passages", "transform", "fitted_on", "encoder", "dimension")
        return {"hits": found, "clean": retriever.verify().problems, **{key: info[key] for key in kept}}
