"""Requests that no client of good will sends: whatever comes, the server answers without an error of its own."""

import json
import random
import shutil
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from serving import Running, running

PATHS = [
    "/",
    "/v1/search",
    "/v1/search/batch",
    "/v1/similar",
    "/v1/documents",
    "/v1/documents/cat",
    "/v1/documents/%00%ff%2e%2e/..//",
    "/v1/collections",
    "/v1/fields?collection=%ff&collection=pets",
    "/metrics",
    "/ready",
    "//v1//search",
    "/%",
    "*",
    "http://evil.example/v1/collections",
]
METHODS = ["GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW", "get", ""]
SCALARS: list[Any] = [
    None,
    True,
    0,
    -1,
    2**70,
    1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "\0",
    "\ud800",
    "x" * 20_000,
    "a b",
    "'",
    '"',
    "legs = 4",
    "legs in (",
    "<script>",
    "../../etc/passwd",
    "🐈‍⬛",
    "\u202e",
    "AND OR NOT * ( ) NEAR",
]
KEYS = ["query", "queries", "collection", "k", "mode", "where", "space", "highlight", "explain", "min_score", "id"]
KEYS += ["documents", "text", "title", "metadata", "x", "", "\ud800"]
HEADERS = [
    "Content-Type: application/json",
    "Content-Type: application/json; charset=utf-16",
    "Content-Type: text/plain",
    "Content-Encoding: gzip",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Content-Length: 18446744073709551616",
    "Content-Length: -1",
    "Content-Length: x",
    "Expect: 100-continue",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Authorization: Bearer \xff\xfe",
    "Origin: null",
    "Origin: http://[",
    "Host: ",
    "Host: [",
    "Host: a\tb",
    "If-None-Match: *",
    "Range: bytes=0-1,5-2",
    "X-Forwarded-For: nobody, 1.2.3.4",
    "Cookie: " + "a" * 5000,
    "No colon here",
    ": nameless",
]

BODIES = [b"[" * 50_000, b'{"a":' * 5000, b'"' + b"\\u0000" * 100 + b'"', b"9" * 5000, b"\xef\xbb\xbf{}"]


def some_value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.random()
    if depth > 3 or kind < 0.6:
        return chance.choice(SCALARS)
    if kind < 0.8:
        return [some_value(chance, depth + 1) for _ in range(chance.randint(0, 4))]
    return {chance.choice(KEYS): some_value(chance, depth + 1) for _ in range(chance.randint(0, 5))}


def some_body(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.1:
        return chance.randbytes(chance.randint(0, 200))
    if kind < 0.15:
        return chance.choice(
            [b"[" * 50_000, b'{"a":' * 5000, b'"' + b"\\u0000" * 100 + b'"', b"9" * 5000, b"\xef\xbb\xbf{}"]
        )
    body = some_value(chance)
    if kind > 0.4:
        wanted = chance.choice([{"query": "cats"}, {"queries": ["cats"]}, {"id": "cat"}])
        body = {**wanted, **{chance.choice(KEYS): some_value(chance, 2) for _ in range(chance.randint(0, 3))}}
    content = json.dumps(body).encode()
    return content[: chance.randint(0, len(content))] if kind < 0.2 else content


def some_request(chance: random.Random, host: str) -> bytes:
    if chance.random() < 0.05:
        return chance.randbytes(chance.randint(1, 300)) + b"\r\n\r\n"
    body = some_body(chance)
    method = "POST" if chance.random() < 0.6 else chance.choice(METHODS)
    path = chance.choice(PATHS)
    if chance.random() < 0.1:
        path += "".join(chr(chance.randint(33, 255)) for _ in range(20))
    lines = [f"{method} {path} {chance.choice(['HTTP/1.1'] * 9 + ['HTTP/1.0', 'HTTP/9.9', ''])}", f"Host: {host}"]
    if chance.random() < 0.8:
        lines.append("Content-Type: application/json")
    if chance.random() < 0.9:
        lines.append(f"Content-Length: {len(body)}")
    lines += chance.sample(HEADERS, chance.choice([0, 0, 0, 1, 2]))
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def answer_to(request: bytes, connection: socket.socket) -> bytes:
    """What comes until the server has nothing more to say; nothing if it only hangs up."""
    received = b""
    try:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        while b"\r\n\r\n" not in received and (some := connection.recv(65536)):
            received += some
    except OSError:  # cut off, or it waits for the rest of a body that never comes
        pass
    return received


def fuzz(server: Running, requests: int, seed: int) -> None:
    chance = random.Random(seed)
    where = urlsplit(server.url)
    for number in range(requests):
        request = some_request(chance, where.netloc)
        with socket.create_connection((where.hostname, where.port), timeout=10) as connection:
            first_line = answer_to(request, connection).split(b"\r\n")[0]
        assert not first_line or first_line.split()[1][:1] in b"1234", (number, request[:500], first_line)
    assert server.get("/health").status_code == 200
    assert server.search("cats")["hits"]


@pytest.mark.parametrize("writable", [False, True])
def test_a_few_hundred(made_collection: Path, tmp_path: Path, writable: bool) -> None:
    folder = Path(shutil.copytree(made_collection, tmp_path / "pets"))
    with running([folder], writable=writable) as server:
        fuzz(server, 200, seed=writable)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand(server: Running) -> None:
    fuzz(server, 10_000, seed=2)
