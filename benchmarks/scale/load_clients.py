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
from importlib import import_module
from importlib.util import find_spec
from statistics import quantiles
from typing import Any

GENERATION = re.compile(rb'"generation":(\d+)')
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Load:
    """The requests of all clients, and what was answered. The status 0 is a lost connection."""

    def __init__(self, host: str, port: int, path: str, bodies: list[Any], seconds: float) -> None:
        self.host, self.port = host, port
        head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\nContent-Length: "
        contents = [json.dumps(body).encode() for body in bodies]
        self.requests = [f"{head}{len(content)}\r\n\r\n".encode() + content for content in contents]
        self.until = time.perf_counter() + seconds
        self.milliseconds: list[float] = []
        self.statuses: Counter[int] = Counter()
        self.generations: set[int] = set()

    async def client(self, number: int) -> None:
        """Send requests over one connection until the time is over."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        with contextlib.closing(writer):
            while True:
                began = time.perf_counter()
                writer.write(self.requests[number % len(self.requests)])
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = LENGTH.search(head)
                    body = await reader.readexactly(int(length[1]) if length else 0)
                except (asyncio.IncompleteReadError, ConnectionError):
                    self.statuses[0] += 1
                    return
                now = time.perf_counter()
                self.milliseconds.append((now - began) * 1000)
                self.statuses[int(head[9:12])] += 1
                if found := GENERATION.search(body, max(0, len(body) - 100)):
                    self.generations.add(int(found[1]))
                if now >= self.until:
                    return
                number += 1


async def load(clients: int, seconds: float, **server: Any) -> dict[str, Any]:
    """Run the clients for the given seconds and return their figures."""
    began, own = time.perf_counter(), Load(seconds=seconds, **server)
    await asyncio.gather(*(own.client(number * len(own.requests) // clients) for number in range(clients)))
    took = own.milliseconds
    cuts = quantiles(took if len(took) > 1 else [*took, 0.0, 0.0], n=100, method="inclusive")
    return {
        "clients": clients,
        "requests": own.statuses[200],
        "errors": own.statuses.total() - own.statuses[200],
        "seconds": time.perf_counter() - began,
        **{f"p{share}_ms": cuts[share - 1] for share in (50, 95, 99)},
        "client_cpu_seconds": time.process_time(),
        "generations": sorted(own.generations),
    }


def main() -> None:
    run = import_module("uvloop").run if find_spec("uvloop") else asyncio.run
    json.dump(run(load(**json.load(sys.stdin))), sys.stdout)


if __name__ == "__main__":
    main()
