"""Measure a server: HTTP compared with the Python API, one client with sixteen, embeddings, and a long full load.

`retriever serve` and the clients run in their own processes. In the middle of the full load, the collection, which is a
copy, is published again. The measurements alternate, so that other work on the machine affects all of them equally.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from rich.table import Table

from benchmarks.options import Figures
from benchmarks.speed.process import cpu_seconds_of, status_of
from retriever.errors import RetrieverError
from retriever.evaluate.report.tables import text_table
from retriever.progress import Progress
from retriever.retriever import Retriever

ROUND_SECONDS = 3.0
API_QUERIES = 150
QUERIES = 500
QUERY_WORDS = 10
MANY_CLIENTS = 16
EMBEDDED = 384
"""Number of texts that are embedded for a figure of the encoder alone."""
TEXTS_OF_REQUEST = 32
CHARACTERS = 400
"""Length of a text to embed."""
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
class ServingFigures(Figures):
    derived = ("beyond_api_ms", "ratio", "embedding_ratio", "single_embedding_ratio")
    documents: int
    api_p50_ms: list[float] = field(default_factory=list)
    """The median latency of the Python API, once per round."""
    one: list[Load] = field(default_factory=list)
    many: list[Load] = field(default_factory=list)
    encoder_per_second: list[float] = field(default_factory=list)
    """Texts that the encoder embeds per second without a server, in batches of its own choice, once per round."""
    encoder_cpu_ms: list[float] = field(default_factory=list)
    """CPU time of the encoder alone per text, once per round. Other work on the machine hardly changes it."""
    embeddings: list[Load] = field(default_factory=list)
    """Requests for the vectors of `TEXTS_OF_REQUEST` texts, from many clients."""
    single_embeddings: list[Load] = field(default_factory=list)
    """Requests for the vector of one text, from many clients."""
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

    @property
    def embedding_ratio(self) -> float:
        """Return the texts embedded per second over HTTP, divided by those of the encoder alone: the median."""
        return self._embedding_ratio(self.embeddings, TEXTS_OF_REQUEST)

    @property
    def single_embedding_ratio(self) -> float:
        return self._embedding_ratio(self.single_embeddings, 1)

    def _embedding_ratio(self, loads: list[Load], texts: int) -> float:
        pairs = zip(loads, self.encoder_per_second, strict=True)
        return float(np.median([load.per_second * texts / alone for load, alone in pairs]))

    def table(self) -> Table:
        table = text_table(f"Serving {self.documents:,} documents", ["", "figure", ""], 3)
        loads = {1: self.one, MANY_CLIENTS: self.many}
        table.add_row("Python API, p50", f"{np.median(self.api_p50_ms):.1f} ms", "")
        for clients, own in loads.items():
            whose = f"{clients} client{'s' if clients > 1 else ''}"
            cpu = sum(load.server_cpu_seconds for load in own) / max(1, sum(load.requests for load in own))
            each = f"{cpu * 1000:.1f} ms of server CPU per answer" if cpu else ""
            table.add_row(f"HTTP, {whose}, p50", f"{np.median([load.p50_ms for load in own]):.1f} ms", "")
            answers = f"{np.median([load.per_second for load in own]):.0f} answers"
            table.add_row(f"HTTP, {whose}, per second", answers, each)
        table.add_row("HTTP minus Python API, p50", f"{self.beyond_api_ms:+.1f} ms", "")
        table.add_row(f"throughput of {MANY_CLIENTS} clients compared with 1", f"{self.ratio:.2f} x", "")
        speed, cpu = np.median(self.encoder_per_second), np.median(self.encoder_cpu_ms)
        table.add_row("encoder alone, per second", f"{speed:.0f} texts", f"{cpu:.1f} ms of CPU per text")
        shares = {TEXTS_OF_REQUEST: (self.embeddings, self.embedding_ratio)}
        for texts, (own, share) in (shares | {1: (self.single_embeddings, self.single_embedding_ratio)}).items():
            speeds = f"{np.median([load.per_second * texts for load in own]):.0f} texts, {share:.0%} of the encoder"
            served = np.median([load.server_cpu_seconds * 1000 / max(1, load.requests * texts) for load in own])
            each = f"{served:.1f} ms of server CPU per text, {sum(load.errors for load in own)} errors"
            table.add_row(f"embeddings, {MANY_CLIENTS} clients, {texts} a request, per second", speeds, each)
        if self.soak:
            soak = self.soak
            took = f"p50 {soak.p50_ms:.0f} ms, p99 {soak.p99_ms:.0f} ms, generations {soak.generations}"
            answers = f"{soak.requests:,} answers, {soak.errors} errors"
            table.add_row(f"full load, {soak.seconds:.0f} s", answers, took)
            memory = ", ".join(f"{when} {size:.0f} MB" for when, size in self.memory_mb.items())
            table.add_row("memory of the server", memory, "")
        table.add_row("exit code after SIGTERM", str(self.exit_code), "")
        return table


def measure(folder: Path, seconds: float, *, rounds: int, progress: Progress) -> ServingFigures:
    with TemporaryDirectory(prefix="retriever-serving-") as temporary:
        copy = Path(temporary) / folder.resolve().name
        shutil.copytree(folder, copy)
        with Retriever.open(copy) as retriever:
            queries, texts = own_queries(retriever, QUERIES), own_texts(retriever, EMBEDDED)
            figures = ServingFigures(len(retriever))
            with _serving(copy, queries) as server:
                for clients in (1, MANY_CLIENTS):  # a warm-up
                    server.load(clients, 1.0)
                for number in range(rounds):
                    progress("measuring", number, rounds)
                    figures.api_p50_ms.append(_api_p50(retriever, queries))
                    figures.one.append(server.load(1, ROUND_SECONDS))
                    figures.many.append(server.load(MANY_CLIENTS, ROUND_SECONDS))
                    speed, cpu_ms = _encoder_alone(retriever, texts)
                    figures.encoder_per_second.append(speed)
                    figures.encoder_cpu_ms.append(cpu_ms)
                    figures.embeddings.append(server.embedding(texts, TEXTS_OF_REQUEST))
                    figures.single_embeddings.append(server.embedding(texts, 1))
                if seconds:
                    progress("full load", 0, None)
                    info: Any = retriever.info()
                    rebuild = ["--index", str(copy), "--transform", info["transform"]["spec"]]
                    figures.soak = _soak(server, seconds, rebuild, figures.memory_mb)
                server.process.send_signal(signal.SIGTERM)
                figures.exit_code = server.process.wait(60)
    return figures


@dataclass(frozen=True)
class _Server:
    """A running `retriever serve`, its address, and the queries for it."""

    process: "subprocess.Popen[str]"
    url: str
    name: str
    queries: Sequence[str]

    def memory_mb(self) -> float:
        return status_of(self.process.pid, "VmRSS") / 1000

    def load(self, clients: int, seconds: float) -> Load:
        return self._load("/v1/search", [{"query": query} for query in self.queries], clients, seconds)

    def embedding(self, texts: Sequence[str], at_once: int) -> Load:
        parts = [texts[begin : begin + at_once] for begin in range(0, len(texts) - at_once + 1, at_once)]
        bodies = [{"model": self.name, "input": part, "encoding_format": "base64"} for part in parts]
        return self._load("/v1/embeddings", bodies, MANY_CLIENTS, 2 * ROUND_SECONDS)

    def _load(self, path: str, bodies: list[dict[str, Any]], clients: int, seconds: float) -> Load:
        where = urlsplit(self.url)
        task: dict[str, Any] = {"host": where.hostname, "port": where.port, "path": path, "bodies": bodies}
        task |= {"clients": clients, "seconds": seconds}
        before = cpu_seconds_of(self.process.pid)
        command, patience = [sys.executable, "-m", "benchmarks.scale.load_clients"], seconds + SECONDS_TO_START
        done = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, timeout=patience)
        if done.returncode:
            raise RetrieverError(f"the clients failed: {done.stderr.strip().splitlines()[-1]}")
        return Load(**json.loads(done.stdout), server_cpu_seconds=cpu_seconds_of(self.process.pid) - before)


def _soak(server: _Server, seconds: float, rebuild: list[str], memory: dict[str, float]) -> Load:
    """Put the server under full load. Publish the index again in the middle."""

    def publish() -> "subprocess.CompletedProcess[str]":
        time.sleep(seconds * 0.1)
        memory["begin"] = server.memory_mb()
        time.sleep(seconds * 0.35)
        memory["middle"] = server.memory_mb()
        command = [sys.executable, "-m", "retriever", "rebuild", *rebuild]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(1) as pool:
        published = pool.submit(publish)
        load = server.load(MANY_CLIENTS, seconds)
        memory["end"] = server.memory_mb()
    if published.result().returncode:
        raise RetrieverError(f"the collection could not be published again: {published.result().stderr.strip()}")
    return load


def own_queries(retriever: Retriever, most: int) -> list[str]:
    """Return the first words of documents drawn at random from the whole collection."""
    return [" ".join(text.split()[:QUERY_WORDS])[:1000] for text in _some_texts(retriever, most)]


def own_texts(retriever: Retriever, most: int) -> list[str]:
    """Return the beginnings of documents drawn at random, each short enough for any encoder."""
    texts = [text[:CHARACTERS] for text in _some_texts(retriever, most) if text.strip()]
    return (texts * -(-TEXTS_OF_REQUEST // len(texts)))[: max(len(texts), TEXTS_OF_REQUEST)]


def _some_texts(retriever: Retriever, most: int) -> list[str]:
    numbers = [row[0] for row in retriever.local.store.db.conn.execute("SELECT number FROM documents")]
    if not numbers:
        raise RetrieverError(f"{retriever.local.folder} has no documents to make queries from.")
    some = np.random.default_rng(0).choice(numbers, min(most, len(numbers)), replace=False).tolist()
    return [document["text"] for document in retriever.local.store.documents(some).values()]


def _encoder_alone(retriever: Retriever, texts: Sequence[str]) -> tuple[float, float]:
    """Return the texts that the encoder embeds per second, and its CPU time per text in milliseconds."""
    began, cpu, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < 2 * ROUND_SECONDS:
        retriever.encoder().encode(texts)
        count += len(texts)
    return count / (time.perf_counter() - began), (time.process_time() - cpu) * 1000 / count


def _api_p50(retriever: Retriever, queries: Sequence[str]) -> float:
    took = []
    for query in queries[:API_QUERIES]:
        began = time.perf_counter()
        retriever.answer_many([query])
        took.append((time.perf_counter() - began) * 1000)
    return float(np.median(took))


@contextmanager
def _serving(folder: Path, queries: Sequence[str]) -> Iterator[_Server]:
    """Start `retriever serve` in its own process, and yield it when it is ready."""
    command = [sys.executable, "-m", "retriever", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            ready = next((line for line in process.stdout if line.startswith("Serving at ")), None)
            if ready is None:
                raise RetrieverError("the server ended before it was ready; its message is above.")
            yield _Server(process, ready.split()[2], folder.name, queries)
        finally:
            if process.poll() is None:
                process.kill()
