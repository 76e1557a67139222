"""What bad requests get: problem details with the field and the reason, and the status that belongs to it."""

import contextlib
import json
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from serving import Running, running

from indexes.folder.collection import Collection
from retriever.serve import settings
from retriever.serve.app import SHUTTING_DOWN
from retriever.serve.models import ProblemDetails
from retriever.serve.settings import MOST_REQUESTS, MOST_REQUESTS_PER_CLIENT

Fresh = Callable[..., Path]


def problem(response: httpx.Response, status: int) -> ProblemDetails:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found = ProblemDetails.model_validate_json(response.content)
    assert found.status == status
    return found


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ({}, "query", "required"),
        ({"query": ""}, "query", "at least 1"),
        ({"query": " \t\n"}, "query", "is empty"),
        ({"query": "x" * 10_001}, "query", "at most 10000"),
        ({"query": 5}, "query", "string"),
        ({"query": "x\ud800"}, "query", "string"),
        ({"query": "x", "k": 0}, "k", "greater than or equal to 1"),
        ({"query": "x", "k": 1001}, "k", "less than or equal to 1000"),
        ({"query": "x", "k": "10"}, "k", "integer"),
        ({"query": "x", "mode": "psychic"}, "mode", "'dense'"),
        ({"query": "x", "space": "outer"}, "space", "'index'"),
        ({"query": "x", "where": "legs = 4"}, "where", "list"),
        ({"query": "x", "where": ["legs = 4"] * 33}, "where", "at most 32"),
        ({"query": "x", "where": ["legs = 4", "legs >"]}, "where.1", "expected a value"),
        (
            {"query": "x", "where": ["legs = 4", "legs > 1", "wings = 2"]},
            "where.2",
            "no document has a metadata field 'wings'",
        ),
        ({"query": "x", "min_score": float("nan")}, "min_score", "finite"),
        ({"query": "x", "min_score": -0.5}, "min_score", "greater than or equal to 0"),
        ({"query": "x", "min_score": 101}, "min_score", "less than or equal to 100"),
        ({"query": "x", "explain": "yes"}, "explain", "boolean"),
        ({"query": "x", "sort": "best"}, "sort", "not permitted"),
        ({"query": "x", "so\ud800rt": 1}, "body", "unicode"),
        ([], "body", "dictionary"),
    ],
    ids=lambda value: json.dumps(value)[:40] if not isinstance(value, str) else "",
)
def test_unprocessable(server: Running, body: Any, field: str, reason: str) -> None:
    response = server.client.post("/v1/search", content=json.dumps(body), headers={"Content-Type": "application/json"})
    (error,) = problem(response, 422).errors
    assert error.field == field
    assert reason in error.reason


def test_what_is_not_json(server: Running) -> None:
    headers = {"Content-Type": "application/json"}
    assert problem(server.client.post("/v1/search", content=b"{", headers=headers), 422).errors[0].field == "body"
    problem(server.client.post("/v1/search", content=b'{"query": "\xff"}', headers=headers), 400)
    problem(server.client.post("/v1/search", content=b"[" * 100_000, headers=headers), 400)
    problem(server.client.post("/v1/search", content=b"query=x", headers={"Content-Type": "text/plain"}), 415)


@pytest.mark.parametrize("queries", [[], ["x"] * 1001, ["x", ""]])
def test_batches_are_limited(server: Running, queries: list[str]) -> None:
    assert problem(server.post("/v1/search/batch", {"queries": queries}), 422).errors[0].field.startswith("queries")


def test_a_batch_with_a_bad_filter_is_refused_before_it_begins(server: Running) -> None:
    problem(server.post("/v1/search/batch", {"queries": ["x"], "where": ["wings = 2"]}), 422)


def test_not_found(server: Running) -> None:
    assert (
        "the collections are: pets, others"
        in problem(server.post("/v1/search", {"query": "x", "collection": "y"}), 404).detail
    )
    assert "'wolf'" in problem(server.get("/v1/documents/wolf"), 404).detail
    assert "'wolf'" in problem(server.post("/v1/similar", {"id": "wolf"}), 404).detail
    assert "/v2" in problem(server.get("/v2"), 404).detail
    for path in ("/v1/fields", "/v1/documents/cat"):
        problem(server.get(path, params={"collection": "nix"}), 404)
    problem(server.get("/v1/collections/"), 404)


def test_method_not_allowed(server: Running) -> None:
    response = server.get("/v1/similar")
    problem(response, 405)
    assert response.headers["allow"] == "POST"
    assert server.client.put("/v1/documents/cat").headers["allow"] == "GET, DELETE"


def test_not_writable(server: Running) -> None:
    body = {"documents": [{"id": "x", "text": "y"}]}
    assert "--writable" in problem(server.post("/v1/documents", body), 403).detail
    problem(server.client.delete("/v1/documents/cat"), 403)
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
        head = f"POST /v1/documents HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 60000000\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 403 ")  # without waiting for the body
    assert server.get("/v1/documents/cat").status_code == 200


def test_too_large_bodies_however_they_are_sent(server: Running) -> None:
    large = json.dumps({"query": "x", "collection": "y" * (1 << 20)}).encode()
    headers = {"Content-Type": "application/json"}
    assert "1,048,576" in problem(server.client.post("/v1/search", content=large, headers=headers), 413).detail

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(large), 1 << 16):
            yield large[start : start + (1 << 16)]

    problem(server.client.post("/v1/search", content=chunks(), headers=headers), 413)
    documents = {"documents": [{"id": "x", "text": "y" * (1 << 20)}]}
    problem(server.post("/v1/documents", documents), 403)  # these may be larger


@contextmanager
def held_open(url: str, number: int, source: str, length: int = 13) -> Iterator[list[socket.socket]]:
    """Requests that are under way, because their bodies have not come whole."""
    where = urlsplit(url)
    head = f"POST /v1/search HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
    opened = []
    try:
        for _ in range(number):
            connection = socket.create_connection((where.hostname, where.port), source_address=(source, 0))
            connection.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + b'{"query')
            opened.append(connection)
        yield opened
    finally:
        for connection in opened:
            connection.close()


def wait_until_under_way(server: Running, number: int) -> None:
    while f"retriever_requests_under_way {number + 1:.1f}" not in server.get("/metrics").text:
        pass


def test_one_client_with_too_much_under_way(made_collection: Path) -> None:
    with running([made_collection]) as server, held_open(server.url, MOST_REQUESTS_PER_CLIENT, "127.0.0.1") as opened:
        wait_until_under_way(server, MOST_REQUESTS_PER_CLIENT)
        response = server.get("/v1/collections")
        problem(response, 429)
        assert int(response.headers["retry-after"]) > 0
        assert server.get("/health").status_code == 200
        opened[0].sendall(b'":"x"}')
        assert b"200 OK" in opened[0].recv(1000)
        assert server.get("/v1/collections").status_code == 200


def test_the_page_is_there_for_a_client_with_too_much_under_way(made_collection: Path) -> None:
    with running([made_collection]) as server, held_open(server.url, MOST_REQUESTS_PER_CLIENT, "127.0.0.1"):
        wait_until_under_way(server, MOST_REQUESTS_PER_CLIENT)
        assert {server.get(path).status_code for path in ("/", "/health", "/ready", "/openapi.json")} == {200}
        # no client is another because it says so
        problem(server.get("/v1/collections", headers={"X-Forwarded-For": "9.9.9.9"}), 429)


def test_a_body_that_does_not_come_is_not_waited_for(made_collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SECONDS_FOR_BODY", 0.3)
    with running([made_collection]) as server, held_open(server.url, MOST_REQUESTS_PER_CLIENT, "127.0.0.1") as opened:
        for connection in opened:
            assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")
        assert server.get("/v1/collections").status_code == 200


def test_nor_is_one_that_comes_by_the_byte(made_collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SECONDS_FOR_BODY", 0.3)
    with running([made_collection]) as server, held_open(server.url, 1, "127.0.0.1", 10_000) as opened:
        opened[0].settimeout(0.05)
        found = b""
        while not found:
            with contextlib.suppress(TimeoutError):
                found = opened[0].recv(1000)
            with contextlib.suppress(OSError):
                opened[0].sendall(b"a")
        assert found.startswith(b"HTTP/1.1 408 ")


def test_a_long_answer_is_not_cut_because_nothing_more_is_sent(
    made_collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "SECONDS_FOR_BODY", 0.1)
    with running([made_collection]) as server:
        queries = [f"query number {number}" for number in range(1000)]
        answered = server.post("/v1/search/batch", {"queries": queries, "mode": "hybrid"}).text.splitlines()
        assert len(answered) == 1000


def test_too_much_under_way_in_all(made_collection: Path) -> None:
    from contextlib import ExitStack

    with running([made_collection]) as server, ExitStack() as stack:
        for number in range(MOST_REQUESTS // MOST_REQUESTS_PER_CLIENT):
            stack.enter_context(held_open(server.url, MOST_REQUESTS_PER_CLIENT, f"127.0.0.{number + 2}"))
        wait_until_under_way(server, MOST_REQUESTS)
        response = server.get("/v1/collections")
        problem(response, 503)
        assert int(response.headers["retry-after"]) > 0
        assert server.get("/ready").status_code == 200


def test_nothing_begins_while_it_drains(made_collection: Path) -> None:
    with running([made_collection]) as server:
        server.app.state.unready = SHUTTING_DOWN
        for response in (
            server.get("/ready"),
            server.get("/v1/collections"),
            server.post("/v1/search", {"query": "x"}),
        ):
            assert "shutting down" in problem(response, 503).detail
            assert int(response.headers["retry-after"]) > 0
        assert server.get("/health").status_code == 200


def test_locked_by_another_writer(fresh: Fresh) -> None:
    folder = fresh()
    with running([folder], writable=True) as server:
        with Collection.open(folder) as other, other.writing():
            response = server.post("/v1/documents", {"documents": [{"id": "x", "text": "y"}]})
            assert "writing" in problem(response, 503).detail
            assert int(response.headers["retry-after"]) > 0
            assert server.search("x")["hits"]
        assert server.post("/v1/documents", {"documents": [{"id": "x", "text": "y"}]}).json()["new"] == 1


def test_a_collection_damaged_while_it_is_served(fresh: Fresh) -> None:
    sound, damaged = fresh("sound"), fresh("damaged")
    with running([damaged, sound]) as server:
        assert server.search("cats")["hits"]
        with sqlite3.connect(damaged / "documents.sqlite") as connection:
            # These triggers call functions that only connections of the package have.
            connection.executescript("DROP TRIGGER words_change_begins; DROP TRIGGER words_change_ends")
            connection.execute("UPDATE documents SET text = 'other words'")
        response = server.post("/v1/search", {"query": "cats"})
        assert "retriever verify" in problem(response, 503).detail
        assert str(damaged) not in response.text
        problem(server.get("/v1/documents/cat"), 503)
        assert server.search("cats", collection="sound")["hits"]
        assert server.get("/ready").status_code == 200


def test_a_damaged_collection_is_listed_with_its_problem(fresh: Fresh) -> None:
    sound, damaged = fresh("sound"), fresh("damaged")
    with running([damaged, sound]) as server:
        with sqlite3.connect(damaged / "documents.sqlite") as connection:
            connection.execute("UPDATE settings SET value = 'x' WHERE key = 'encoder'")
        first, second = server.get("/v1/collections").json()["collections"]
        assert "retriever verify" in first["problem"]
        assert (first["documents"], second["problem"]) == (7, None)


def test_a_database_overwritten_while_it_is_served(fresh: Fresh) -> None:
    sound, damaged = fresh("sound"), fresh("damaged")
    with running([damaged, sound]) as server:
        with (damaged / "documents.sqlite").open("r+b") as file:
            file.write(b"\xff" * file.seek(0, 2))
        for path in ("/v1/documents/cat", "/v1/fields", "/v1/documents/dog"):
            assert server.get(path).status_code in (200, 503)  # SQLite may have read it before
        assert server.search("cats", collection="sound")["hits"]


def test_an_unforeseen_error_has_a_reference_and_no_trace(
    made_collection: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running([made_collection]) as server:
        server.app.state.collections = None  # so that the next request fails where nothing expects it
        found = problem(server.get("/v1/collections"), 500)
        assert "Traceback" not in found.detail and "NoneType" not in found.detail
        reference = found.detail.rstrip(".").split()[-1]
        assert reference in caplog.text
