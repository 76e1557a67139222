"""Measure a server: HTTP compared with the Python API, one client with sixteen, and a long full load.

`retriever serve` runs in its own process over a copy of the collection. In the middle of the full load, the collection
is published again. The clients run in another process (`benchmarks.scale.load_clients`). The measurements alternate, so
that other work on the machine affects all of them equally.
"""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from rich.table import Table

from benchmarks.speed.process import cpu_seconds_of, status_of
from retriever.errors import RetrieverError
from retriever.evaluate.report.tables import text_table
from retriever.progress import Progress, silent
from retriever.retriever import Retriever

ROUNDS = 5
ROUND_SECONDS = 3.0
API_QUERIES = 150
QUERIES = 500
QUERY_WORDS = 10
MANY_CLIENTS = 16
SECONDS_TO_START = 120


@dataclass(frozen=True)
class Load:
    """Answers and latencies of a number of clients."""

    clients: int
    requests: int
    errors: int
    seconds: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    client_cpu_seconds: float
    server_cpu_seconds: float
    generations: list[int]

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


@dataclass
class Figures:
    documents: int
    api_p50_ms: list[float] = field(default_factory=list)
    """The median latency of the Python API, once per round."""
    one: list[Load] = field(default_factory=list)
    many: list[Load] = field(default_factory=list)
    soak: Load | None = None
    memory_mb: dict[str, float] = field(default_factory=dict)
    """The memory of the server at the start, middle and end of the full load."""
    exit_code: int | None = None
    """The exit code of the server after SIGTERM."""

    @property
    def beyond_api_ms(self) -> float:
        """Return how many milliseconds HTTP takes longer than the Python API: the median over rounds."""
        pairs = zip(self.one, self.api_p50_ms, strict=True)
        return float(np.median([load.p50_ms - api for load, api in pairs]))

    @property
    def ratio(self) -> float:
        """Return the throughput of many clients divided by that of one client: the median over rounds."""
        return float(np.median([b.per_second / a.per_second for a, b in zip(self.one, self.many, strict=True)]))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "beyond_api_ms": self.beyond_api_ms, "ratio": self.ratio}

    def table(self) -> Table:
        table = text_table(f"Serving {self.documents:,} documents", ["", "figure", ""], 3)
        loads = {1: self.one, MANY_CLIENTS: self.many}
        table.add_row("Python API, p50", f"{np.median(self.api_p50_ms):.1f} ms", "")
        for clients, own in loads.items():
            whose = f"{clients} client{'s' if clients > 1 else ''}"
            cpu = sum(load.server_cpu_seconds for load in own) / max(1, sum(load.requests for load in own))
            each = f"{cpu * 1000:.1f} ms of server CPU per answer" if cpu else ""
            table.add_row(f"HTTP, {whose}, p50", f"{np.median([load.p50_ms for load in own]):.1f} ms", "")
            table.add_row(
                f"HTTP, {whose}, per second", f"{np.median([load.per_second for load in own]):.0f} answers", each
            )
        table.add_row("HTTP minus Python API, p50", f"{self.beyond_api_ms:+.1f} ms", "")
        table.add_row(f"throughput of {MANY_CLIENTS} clients compared with 1", f"{self.ratio:.2f} x", "")
        if self.soak:
            soak = self.soak
            table.add_row(
                f"full load, {soak.seconds:.0f} s",
                f"{soak.requests:,} answers, {soak.errors} errors",
                f"p50 {soak.p50_ms:.0f} ms, p99 {soak.p99_ms:.0f} ms, generations {soak.generations}",
            )
            memory = ", ".join(f"{when} {size:.0f} MB" for when, size in self.memory_mb.items())
            table.add_row("memory of the server", memory, "")
        table.add_row("exit code after SIGTERM", str(self.exit_code), "")
        return table


def measure(folder: Path, seconds: float, *, rounds: int = ROUNDS, progress: Progress = silent) -> Figures:
    with TemporaryDirectory(prefix="retriever-serving-") as temporary:
        copy = Path(temporary) / folder.resolve().name
        shutil.copytree(folder, copy)
        with Retriever.open(copy) as retriever:
            queries = own_queries(retriever, QUERIES)
            figures = Figures(len(retriever))
            with _server(copy) as (process, url):
                bodies = [{"query": query} for query in queries]
                _load(process, url, bodies, 1, 1.0)
                _load(process, url, bodies, MANY_CLIENTS, 1.0)
                for number in range(rounds):
                    progress("measuring", number, rounds)
                    figures.api_p50_ms.append(_api_p50(retriever, queries))
                    figures.one.append(_load(process, url, bodies, 1, ROUND_SECONDS))
                    figures.many.append(_load(process, url, bodies, MANY_CLIENTS, ROUND_SECONDS))
                spec = retriever.info()["transform"]["spec"]
                if seconds:
                    progress("full load", 0, None)
                    figures.soak = _soak(process, url, bodies, seconds, copy, spec, figures.memory_mb)
                process.send_signal(signal.SIGTERM)
                figures.exit_code = process.wait(60)
    return figures


def _soak(
    process: "subprocess.Popen[str]",
    url: str,
    bodies: Sequence[Any],
    seconds: float,
    folder: Path,
    transform: str,
    memory: dict[str, float],
) -> Load:
    """Put the server under full load. Publish the index again in the middle."""

    def publish() -> None:
        time.sleep(seconds * 0.1)
        memory["begin"] = status_of(process.pid, "VmRSS") / 1000
        time.sleep(seconds * 0.35)
        memory["middle"] = status_of(process.pid, "VmRSS") / 1000
        command = [sys.executable, "-m", "retriever", "rebuild", "--index", str(folder), "--transform", transform]
        published.append(subprocess.run(command, capture_output=True, text=True, check=False))

    published: list[subprocess.CompletedProcess[str]] = []
    thread = threading.Thread(target=publish)
    thread.start()
    load = _load(process, url, bodies, MANY_CLIENTS, seconds)
    memory["end"] = status_of(process.pid, "VmRSS") / 1000
    thread.join()
    if published[0].returncode:
        raise RetrieverError(f"the collection could not be published again: {published[0].stderr.strip()}")
    return load


def own_queries(retriever: Retriever, most: int) -> list[str]:
    """Return the first words of documents drawn at random from the whole collection."""
    numbers = [row[0] for row in retriever.local.store.db.conn.execute("SELECT number FROM documents")]
    if not numbers:
        raise RetrieverError(f"{retriever.local.folder} has no documents to make queries from.")
    some = np.random.default_rng(0).choice(numbers, min(most, len(numbers)), replace=False).tolist()
    texts = [document["text"] for document in retriever.local.store.documents(some).values()]
    return [" ".join(text.split()[:QUERY_WORDS])[:1000] for text in texts]


def _api_p50(retriever: Retriever, queries: Sequence[str]) -> float:
    took = []
    for query in queries[:API_QUERIES]:
        began = time.perf_counter()
        retriever.answer_many([query])
        took.append((time.perf_counter() - began) * 1000)
    return float(np.median(took))


@contextmanager
def _server(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start `retriever serve` in its own process. Yield the process and its address when it is ready."""
    command = [sys.executable, "-m", "retriever", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            for line in process.stdout:
                if line.startswith("Serving at "):
                    yield process, line.split()[2]
                    break
            else:
                raise RetrieverError("the server ended before it was ready; its message is above.")
        finally:
            if process.poll() is None:
                process.kill()


def _load(process: "subprocess.Popen[str]", url: str, bodies: Sequence[Any], clients: int, seconds: float) -> Load:
    where = urlsplit(url)
    task: dict[str, Any] = {"host": where.hostname, "port": where.port, "path": "/v1/search", "bodies": list(bodies)}
    task |= {"clients": clients, "seconds": seconds}
    before = cpu_seconds_of(process.pid)
    command, patience = [sys.executable, "-m", "benchmarks.scale.load_clients"], seconds + SECONDS_TO_START
    done = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, timeout=patience)
    if done.returncode:
        raise RetrieverError(f"the clients failed: {done.stderr.strip().splitlines()[-1]}")
    return Load(**json.loads(done.stdout), server_cpu_seconds=cpu_seconds_of(process.pid) - before)
