"""An OpenAI-compatible endpoint on loopback that embeds with a small function, and misbehaves on request."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LETTERS = "abcdefghiklmnoprstuvw"


def letters(texts: list[str]) -> list[list[float]]:
    """How often each letter is in each text."""
    return [[float(text.lower().count(letter)) for letter in LETTERS] for text in texts]


def anagrams(texts: list[str]) -> list[list[float]]:
    """The same letters in the opposite order: another model of the same dimension."""
    return [row[::-1] for row in letters(texts)]


Answer = Callable[[list[str]], Any]


@dataclass
class Served:
    """The address of the endpoint, what it answers, and what it was asked."""

    url: str
    embed: Answer = letters
    status: list[int] = field(default_factory=list)
    """The status of the next answers. When the list is used up, requests succeed."""
    raw: bytes | None = None
    """The body of every answer, in place of vectors."""
    seconds: float = 0.0
    """How long an answer takes before it begins."""
    drip: float = 0.0
    """How long each byte of an answer takes."""
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    @property
    def encoder(self) -> str:
        return f"openai:{self.url}#letters"


@contextmanager
def endpoint() -> Iterator[Served]:
    served = Served("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            served.requests.append(asked)
            served.keys.append(self.headers.get("Authorization"))
            assert self.path == "/v1/embeddings"
            time.sleep(served.seconds)
            status = served.status.pop(0) if served.status else 200
            if status != 200:
                body = json.dumps({"error": {"message": "not now"}}).encode()
            elif served.raw is not None:
                body = served.raw
            else:
                rows = [{"index": n, "embedding": row} for n, row in enumerate(served.embed(asked["input"]))]
                body = json.dumps({"object": "list", "data": rows[::-1], "model": asked["model"]}).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **served.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):
                for byte in body if served.drip else ():
                    self.wfile.write(bytes([byte]))
                    time.sleep(served.drip)
                if not served.drip:
                    self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
