"""What clients can do to a connection before, and beside, asking for something: large and slow heads, slow bodies."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from serving import Running, running

from retriever.serve import settings

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@contextmanager
def connected(server: Running) -> Iterator[socket.socket]:
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
        yield connection


def answer(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def padded(start: bytes, size: int) -> bytes:
    return start + b"X: " + b"a" * (size - len(start) - 3)


def test_a_head_of_the_largest_size_is_answered(server: Running) -> None:
    with connected(server) as connection:
        close = b"\r\nConnection: close\r\n\r\n"
        connection.sendall(padded(HEAD, settings.LARGEST_HEAD - len(close) - 1) + close)
        assert answer(connection).startswith(b"HTTP/1.1 200 OK")


def test_an_endless_header_is_cut_off(server: Running) -> None:
    with connected(server) as connection:
        connection.sendall(padded(HEAD, settings.LARGEST_HEAD))
        found = answer(connection)
        assert found.startswith(b"HTTP/1.1 431 ") and b"application/problem+json" in found
    assert server.get("/health").status_code == 200


def test_so_is_one_in_small_parts_on_a_connection_that_was_used(server: Running) -> None:
    with connected(server) as connection:
        connection.sendall(HEAD + b"\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
        connection.sendall(HEAD)
        with pytest.raises(OSError):
            for _ in range(10_000):
                connection.sendall(b"X: " + b"a" * 1000 + b"\r\n")
                time.sleep(0)


@pytest.mark.parametrize("tail", [b"0\r\nX: ", b"1; x="], ids=["trailer", "chunk extension"])
def test_endless_lines_around_the_parts_of_a_body_are_cut_off(server: Running, tail: bytes) -> None:
    with connected(server) as connection, pytest.raises(OSError):
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n" + tail)
        for _ in range(10_000):
            connection.sendall(b"a" * 10_000)
            time.sleep(0)


def test_large_bodies_pass_as_they_did(server: Running) -> None:
    queries = [f"{number} {'word ' * 900}" for number in range(150)]
    response = server.post("/v1/search/batch", {"queries": queries, "k": 1, "mode": "lexical"})
    assert response.status_code == 200 and len(response.text.splitlines()) == 150


@pytest.mark.parametrize(
    ("sent", "told"),
    [(b"", b""), (b"GET /hea", b"HTTP/1.1 408 "), (HEAD, b"HTTP/1.1 408 ")],
    ids=["nothing", "part of a line", "a header"],
)
def test_a_head_that_does_not_come_is_waited_for_no_longer_than_that(
    made_collection: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes, told: bytes
) -> None:
    monkeypatch.setattr(settings, "SECONDS_FOR_HEAD", 0.2)
    with running([made_collection]) as server, connected(server) as connection:
        connection.sendall(sent)
        found = answer(connection)
        assert found.startswith(told) and bool(found) == bool(told)
