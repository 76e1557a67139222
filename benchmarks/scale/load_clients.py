"""Run clients of a server in their own process. Each client waits for an answer before its next request.

The clients share the machine with the server. To save CPU time, requests are made beforehand, and only the status, the
length and the generation of an answer are parsed. The task is read from standard input and the figures are printed,
both as JSON.
"""

import asyncio
import contextlib
import json
import re
import sys
import time
from collections import Counter
from statistics import quantiles
from typing import Any, cast

GENERATION = re.compile(rb'"generation":(\d+)')
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Client(asyncio.Protocol):
    """One connection that sends requests until the time is over."""

    def __init__(self, requests: list[bytes], first: int, until: float, done: "asyncio.Future[None]") -> None:
        self._requests = requests
        self._next = first
        self._until = until
        self._done = done
        self._received = b""
        self._began = 0.0
        self._expected = -1
        self.milliseconds: list[float] = []
        self.statuses: Counter[int] = Counter()
        self.generations: set[int] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        self._received, self._expected = b"", -1
        self._began = time.perf_counter()
        self._transport.write(self._requests[self._next % len(self._requests)])
        self._next += 1

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._expected < 0:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            length = LENGTH.search(self._received, 0, end)
            self._expected = end + 4 + int(length[1] if length else 0)
        if len(self._received) < self._expected:
            return
        now = time.perf_counter()
        self.milliseconds.append((now - self._began) * 1000)
        self.statuses[int(self._received[9:12])] += 1
        if found := GENERATION.search(self._received, max(0, len(self._received) - 100)):
            self.generations.add(int(found[1]))
        if now < self._until:
            self._ask()
        else:
            self._finish()
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self.statuses[0] += 1  # the connection was lost before the answer was complete
        self._finish()

    def _finish(self) -> None:
        if not self._done.done():
            self._done.set_result(None)


def requests_of(host: str, path: str, bodies: list[Any]) -> list[bytes]:
    made = []
    for body in bodies:
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        made.append(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return made


async def load(host: str, port: int, path: str, bodies: list[Any], clients: int, seconds: float) -> dict[str, Any]:
    """Run the clients for the given seconds and return their figures."""
    loop = asyncio.get_running_loop()
    requests = requests_of(f"{host}:{port}", path, bodies)
    began = time.perf_counter()
    running = []
    for number in range(clients):
        done = loop.create_future()
        client = Client(requests, number * len(requests) // clients, began + seconds, done)
        await loop.create_connection(lambda client=client: client, host, port)  # type: ignore[misc]
        running.append((client, done))
    await asyncio.gather(*(done for _, done in running))
    lasted = time.perf_counter() - began
    spent = time.process_time()
    statuses = sum((client.statuses for client, _ in running), Counter[int]())
    took = [one for client, _ in running for one in client.milliseconds]
    cuts = quantiles(took if len(took) > 1 else [*took, 0.0, 0.0], n=100, method="inclusive")
    return {
        "clients": clients,
        "requests": statuses[200],
        "errors": statuses.total() - statuses[200],
        "seconds": lasted,
        **{f"p{share}_ms": cuts[share - 1] for share in (50, 95, 99)},
        "client_cpu_seconds": spent,
        "generations": sorted({number for client, _ in running for number in client.generations}),
    }


def main() -> None:
    task = json.load(sys.stdin)
    with contextlib.suppress(ImportError):
        import uvloop

        json.dump(uvloop.run(load(**task)), sys.stdout)
        return
    json.dump(asyncio.run(load(**task)), sys.stdout)


if __name__ == "__main__":
    main()
