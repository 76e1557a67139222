"""Large bodies with documents: checked before they are parsed, parsed beside the event loop, and few at a time."""

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from serving import DOCUMENTS, Running, running

from retriever.corpus.readers import lines
from retriever.corpus.readers.lines import MOST_PARTS, too_many_parts
from retriever.retriever import Retriever
from retriever.serve import bodies
from retriever.serve import settings as limits


@pytest.fixture(scope="module")
def server(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("large") / "large"
    Retriever.build(DOCUMENTS, folder, encoder=tiny_bert, transform="none", precision="fp32").close()
    with running([folder], writable=True) as found:
        yield found
    shutil.rmtree(folder)


def add(server: Running, content: bytes) -> httpx.Response:
    headers = {"Content-Type": "application/json"}
    return httpx.post(f"{server.url}v1/documents", content=content, headers=headers, timeout=120)


def body_of(metadata: bytes) -> bytes:
    return b'{"documents": [{"id": "x", "text": "a text", "metadata": {"m": [' + metadata + b"]}}]}"


@pytest.mark.parametrize("part", [b"[],", b'"",', b"{},", b"0,"])
def test_more_parts_than_a_line_of_a_file_may_have(
    server: Running, part: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part becomes an object in memory of up to sixty times its size, so such a body is not parsed at all."""
    parsed: list[int] = []
    monkeypatch.setattr(bodies, "json", SimpleNamespace(loads=lambda body: parsed.append(len(body))))
    response = add(server, body_of(part * MOST_PARTS + b"0"))
    assert response.status_code == 413, response.text
    assert "2,000,000" in response.json()["detail"]
    assert not parsed
    monkeypatch.undo()
    assert add(server, body_of(b"0," * 1000 + b"0")).status_code == 200


def test_a_large_body_is_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of them, the event loop answers others. Strings and escapes may lie across them."""
    counting = threading.Thread(target=too_many_parts, args=[body_of(b" " * 50_000_000)])
    counting.start()
    turns = 0
    while counting.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 10
    values = ["a,b", 'a"[,', "a\\", '\\"', "\\" * 7, "", {"k,": [1, {}, "[\\"]}]
    body = json.dumps([values] * 9).encode()
    parts = len(re.findall(rb'"(?:[^"\\]|\\.)*"|[,\[{]', body))
    for size in range(2, 70):
        monkeypatch.setattr(lines, "_COUNTED_AT_ONCE", size)
        for most in (parts - 1, parts):
            monkeypatch.setattr(lines, "MOST_PARTS", most)
            assert too_many_parts(body) == (most < parts)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
def test_only_utf8_is_parsed(server: Running, encoding: str) -> None:
    """The bytes of other encodings would hide parts from the count."""
    response = add(server, json.dumps({"documents": [{"id": "x", "text": "é"}]}, ensure_ascii=False).encode(encoding))
    assert response.status_code == 400 and "not valid JSON in UTF-8" in response.json()["detail"]


def test_a_large_body_has_the_problems_of_a_small_one(server: Running) -> None:
    documents = [{"id": "x", "text": 1}, {"id": "", "text": "x"}, {"text": "x", "more": 1}, 7]
    small = server.post("/v1/documents", {"documents": documents})
    large = server.post("/v1/documents", {"documents": [*documents, {"id": "y", "text": "x" * limits.SMALL_BODY}]})
    assert small.status_code == large.status_code == 422
    assert small.json() == large.json() and len(small.json()["errors"]) == 5


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, body_of(b"[" * 5_000_000), b"{", b'{"documents": [' + b" " * 2_000_000]
)
def test_bodies_that_are_not_json(server: Running, content: bytes) -> None:
    assert add(server, content).status_code in (413, 422)
    assert server.get("/ready").status_code == 200


def test_others_are_answered_while_large_bodies_are_parsed(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are parsed and stored at a time. The others wait, and small ones go on."""
    going, inside, most = threading.Event(), [0], [0]
    entered = threading.Semaphore(0)
    loads = json.loads

    def slow(body: bytes) -> Any:
        if len(body) > limits.SMALL_BODY:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            entered.release()
            going.wait(60)
            inside[0] -= 1
        return loads(body)

    monkeypatch.setattr(bodies, "json", SimpleNamespace(loads=slow))
    large = json.dumps({"documents": [{"id": "x", "text": "word " * 400_000}]}).encode()
    statuses: list[int] = []
    threads = [threading.Thread(target=lambda: statuses.append(add(server, large).status_code)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for _ in range(limits.MOST_LARGE_BODIES):
        entered.acquire()
    assert server.get("/ready").status_code == 200
    assert server.search("cats")["hits"]
    assert add(server, body_of(b"1")).status_code == 200
    assert not statuses
    going.set()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 5
    assert most[0] == limits.MOST_LARGE_BODIES


def test_all_bodies_together_have_a_limit(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_BODY_BYTES", 1_000_000)
    large = json.dumps({"documents": [{"id": "y", "text": "a " * 600_000}]}).encode()
    assert add(server, large).status_code == 503
    assert add(server, body_of(b"1")).status_code == 200
    monkeypatch.undo()
    assert add(server, body_of(b"2")).status_code == 200


@pytest.mark.parametrize("path", ["v1/embeddings", "v1/documents", "v1/search"])
def test_many_unknown_fields_are_one_problem(server: Running, path: str) -> None:
    """A problem for each field would take seconds on the event loop, and ten times the bytes of the body."""
    fields = {f"field {number}": 0 for number in range(50_000)}
    response = httpx.post(f"{server.url}{path}", json=fields, timeout=120)
    assert response.status_code == 422
    assert len(response.content) < 2_000
    assert "50,000 unknown fields, e.g. 'field 0'" in response.text


def test_only_the_first_invalid_documents_are_listed(server: Running) -> None:
    response = httpx.post(f"{server.url}v1/documents", json={"documents": [1] * 5_000}, timeout=120)
    problem = response.json()
    assert [one["field"] for one in problem["errors"]] == [f"documents.{number}" for number in range(100)]
    assert "first 100 of 5,000" in problem["detail"]


def test_texts_to_embed_are_parsed_as_documents_are(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the event loop, after a check of their parts."""
    names: list[str] = []

    def loads(body: bytes) -> Any:
        names.append(threading.current_thread().name)
        return json.loads(body)

    monkeypatch.setattr(bodies, "json", SimpleNamespace(loads=loads))
    url, options = f"{server.url}v1/embeddings", {"headers": {"Content-Type": "application/json"}, "timeout": 120}
    parts = b'{"model": "large", "input": [' + b'"",' * 1_100_000 + b'""]}'
    refused = httpx.post(url, content=parts, **options)
    assert refused.status_code == 413 and "2,000,000" in refused.json()["error"]["message"]
    assert not names
    texts = {"model": "large", "input": ["a cat " + " " * 2_000] * 600}
    assert len(httpx.post(url, json=texts, timeout=120).json()["data"]) == 600
    assert names and not any(name.startswith("Thread-") for name in names)  # where the server runs
