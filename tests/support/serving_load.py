"""A server at full load: clients that check every answer, a writer, restarts, and a client that misbehaves.

The misbehaving client takes turns of some seconds, so that the times of the others can be compared with and without it.
"""

import itertools
import json
import multiprocessing
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from crowd import GROUPS, MEMBERS, _report, _write, documents_of, text_of
from serving_process import served

CLIENTS = 4
MISBEHAVING = "127.0.0.2"
"""The address of the client that misbehaves. The limits for a client must not concern the others, at 127.0.0.1."""
LONGEST_END = 45.0
"""Seconds after SIGTERM. The server promises 35."""


@dataclass
class Served:
    """What came of it."""

    searches: int = 0
    restarts: int = 0
    writes: int = 0
    publications: int = 0
    misbehaved: int = 0
    """Requests that no client of good will sends."""
    times: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    """Seconds of each search, without and with the misbehaving client."""
    problems: list[str] = field(default_factory=list)

    def p99(self, misbehaving: bool) -> float:
        times = sorted(self.times[misbehaving])
        return times[len(times) * 99 // 100] if times else 0.0


class _Load:
    """What the threads share."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds, self.turn = folder, seconds, min(30.0, seconds / 4)
        self.found = Served()
        self.url = ""
        self.up = threading.Event()
        self.begun = self.until = float("inf")

    def misbehaving(self) -> bool:
        return self.begun < time.time() and int((time.time() - self.begun) / self.turn) % 2 == 1

    def client(self, number: int) -> None:
        rng = random.Random(number)
        with httpx.Client(timeout=60) as client:
            while time.time() < self.until:
                if not self.up.wait(0.1):
                    continue
                url, misbehaving, began = self.url, self.misbehaving(), time.perf_counter()
                group, mode = rng.randrange(GROUPS), rng.choice(["dense", "lexical", "hybrid"])
                query = text_of(group, rng.randrange(MEMBERS), rng.randrange(4))
                body = {"query": query, "k": 50, "mode": mode, "where": [f"group = {group}"]}
                try:
                    response = client.post(f"{url}/v1/search", json=body)
                except httpx.TransportError as error:
                    if self.up.is_set() and self.url == url:
                        self.found.problems.append(f"a search was not answered: {error!r}")
                    continue
                if response.status_code == 503 and not self.up.is_set():
                    continue  # told to come again, because of the restart
                if misbehaving == self.misbehaving():
                    self.found.times[misbehaving].append(time.perf_counter() - began)
                self.check(response, group)

    def check(self, response: httpx.Response, group: int) -> None:
        if response.status_code != 200:
            self.found.problems.append(f"{response.status_code}: {response.text[:300]}")
            return
        hits = response.json()["hits"]
        self.found.searches += 1
        if sorted(hit["id"] for hit in hits) != sorted(f"{group}-{m}" for m in range(MEMBERS)):
            self.found.problems.append(f"wrong hits: {[hit['id'] for hit in hits]}")
        if len(epochs := {hit["metadata"]["epoch"] for hit in hits}) != 1:
            self.found.problems.append(f"a mix of the epochs {epochs}")

    def misbehave(self) -> None:
        rng = random.Random(0)
        longest = {"queries": [f"question {n}" for n in range(10)], "k": 100, "highlight": True}
        while time.time() < self.until:
            if not self.misbehaving() or not self.up.wait(0.1):
                time.sleep(0.1)
                continue
            where = urlsplit(self.url)
            body = json.dumps(longest).encode()
            head = f"POST /v1/search/batch HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
            whole = head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
            sent = rng.choice(
                [
                    whole,  # and gone before the answer
                    whole[: rng.randrange(len(whole))],  # the rest never comes
                    rng.randbytes(500),
                    head.encode() + b"Content-Length: 99999999999\r\n\r\n",
                    head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + b"[" * 5000,
                    head.encode() + b"Content-Length: 60000\r\n\r\n" + b'{"a":' * 12_000,
                ]
            )
            with suppress(OSError), ExitStack() as opened:
                for _ in range(rng.choice([1, 1, 8, 40])):
                    connection = socket.create_connection(
                        (where.hostname, where.port), timeout=5, source_address=(MISBEHAVING, 0)
                    )
                    opened.enter_context(connection)
                    connection.sendall(sent)
                    self.found.misbehaved += 1
                time.sleep(rng.choice([0, 0.05, 0.5]))

    def serve(self, runs: int, begin: Callable[[float], None]) -> None:
        """Serve, end and serve again, so many times. `begin` is called when the time begins, with its end."""
        for number in itertools.count():
            if time.time() >= self.until:
                return
            with served(self.folder) as (process, url, _):
                self.url = url.rstrip("/")
                while httpx.get(f"{self.url}/ready").status_code != 200:
                    time.sleep(0.05)
                if not number:
                    self.begun, self.until = time.time(), time.time() + self.seconds
                    begin(self.until)
                self.up.set()
                self.found.restarts += bool(number)
                self._wait(min(self.until, time.time() + self.seconds / runs), process)
                self.up.clear()
                self._end(process)

    def _wait(self, until: float, process: "subprocess.Popen[str]") -> None:
        while time.time() < until:
            if process.poll() is not None:
                self.found.problems.append(f"the server ended with {process.returncode}")
                return
            time.sleep(0.2)

    def _end(self, process: "subprocess.Popen[str]") -> None:
        process.send_signal(signal.SIGTERM)
        try:
            _, said = process.communicate(timeout=LONGEST_END)
        except subprocess.TimeoutExpired:
            self.found.problems.append(f"the server did not end {LONGEST_END} s after SIGTERM")
            return
        if "Traceback" in said:
            self.found.problems.append(said[-3000:])


def load(folder: Path, encoder: str, *, seconds: float, runs: int) -> Served:
    """Make a collection, and serve it for so long, in so many runs of the server."""
    from retriever import Retriever

    first = [document for group in range(GROUPS) for document in documents_of(group, 0)]
    Retriever.build(first, folder, encoder=encoder, transform="center", precision="fp32").close()
    spawn = multiprocessing.get_context("spawn")
    told: Queue[tuple[str, Any]] = spawn.Queue()
    made = _Load(folder, seconds)
    writers = []

    def begin(until: float) -> None:
        writers.append(spawn.Process(target=_report, args=(told, _write, str(folder), "", 0, until)))
        writers[0].start()

    clients = [threading.Thread(target=made.client, args=[number]) for number in range(CLIENTS)]
    clients.append(threading.Thread(target=made.misbehave))
    for client in clients:
        client.start()
    try:
        made.serve(runs, begin)
    finally:
        made.until = 0.0
        for client in clients:
            client.join()
    kind, value = told.get(timeout=300)
    writers[0].join()
    if kind == "writes":
        made.found.writes, made.found.publications = value
    else:
        made.found.problems.append(value)
    with Retriever.open(folder) as retriever:
        made.found.problems += [f"verify: {problem}" for problem in retriever.verify().problems]
    return made.found
