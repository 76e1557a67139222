"""The log of `retriever serve`: JSON lines, without the text of queries unless it is asked for."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from samples import Run
from serving_process import served

Fresh = Callable[..., Path]
SECRET = "something very private"


def logged(folder: Path, *options: str) -> list[dict[str, Any]]:
    """The log of a server that was asked a few things."""
    with served(folder, *options) as (process, url, _):
        with httpx.Client(base_url=url, timeout=60) as client:
            client.get("/health")
            client.post("/v1/search", json={"query": SECRET})
            client.get("/v1/search", params={"q": SECRET})
            client.post("/v1/search/batch", json={"queries": [SECRET, "two"]})
            client.post("/v1/embeddings", json={"model": folder.name, "input": SECRET})
            client.get("/v1/documents/none")
            client.post("/v1/search", json={"query": SECRET, "k": -1})
        process.terminate()
        _, errors = process.communicate(timeout=60)
    return [json.loads(line) for line in errors.splitlines()]


def test_every_request_is_a_line_without_the_query(fresh: Fresh) -> None:
    lines = logged(fresh(), "--log-level", "info")
    assert SECRET not in json.dumps(lines)
    asked = [(line["method"], line["path"], line["status"]) for line in lines if line["message"] == "request"]
    assert asked == [
        ("POST", "/v1/search", 200),
        ("GET", "/v1/search", 200),
        ("POST", "/v1/search/batch", 200),
        ("POST", "/v1/embeddings", 200),
        ("GET", "/v1/documents/none", 404),
        ("POST", "/v1/search", 422),
    ]
    first = lines[0]
    assert datetime.fromisoformat(first["time"]).tzinfo and first["level"] == "info"
    assert first["collection"] == "pets" and first["client"] == "127.0.0.1"
    assert first["bytes"] > 0 and first["ms"] > 0


def test_queries_are_logged_if_asked_for(fresh: Fresh) -> None:
    lines = logged(fresh(), "--log-level", "debug", "--log-queries")
    assert [line["queries"] for line in lines if "queries" in line] == [[SECRET], [SECRET], [SECRET, "two"]]
    assert "/health" in [line.get("path") for line in lines]


def test_by_default_requests_are_not_logged(fresh: Fresh) -> None:
    assert logged(fresh()) == []


def test_queries_without_requests_are_refused(fresh: Fresh, run: Run) -> None:
    assert "--log-level info" in run("serve", fresh(), "--log-queries", code=2).output


def test_a_log_that_nobody_reads_blocks_nobody(fresh: Fresh) -> None:
    """A full pipe holds back the log alone: requests are answered, and the server ends as always."""
    with served(fresh(), "--log-level", "info") as (process, url, _):
        with httpx.Client(base_url=url, timeout=60) as client:
            for _ in range(40):  # their lines have 300 KB, and a pipe holds 64
                assert client.get(f"/v1/documents/{'x' * 7_000}").status_code in (404, 422)
            assert client.get("/v1/search", params={"q": "cats"}).json()["hits"]
        process.terminate()
        assert process.wait(60) == 0
        assert process.stderr
        lines = process.stderr.read().splitlines()
        assert [json.loads(line)["message"] for line in lines[:5]] == ["request"] * 5


def test_lines_that_did_not_fit_are_counted(fresh: Fresh) -> None:
    code = "from retriever.serve import logs; logs.MOST_WAITING = 3; from retriever.cli.entry import main; main()"
    with served(fresh(), "--log-level", "info", code=code) as (process, url, _):
        with httpx.Client(base_url=url, timeout=60) as client:
            for _ in range(40):
                client.get(f"/v1/documents/{'x' * 7_000}")
        process.terminate()
        _, errors = process.communicate(timeout=60)
    messages = [json.loads(line)["message"] for line in errors.splitlines()]
    lost = [int(one.split()[0]) for one in messages if "lines of the log were lost, because nobody read them" in one]
    assert messages.count("request") + sum(lost) == 40
    assert sum(lost) > 10
