"""Long requests: they are bounded, nobody waits behind them, and they end with their client or with the server."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Running, running
from serving_process import served

from retriever.retriever import Retriever

LONGEST = {"queries": [f"question number {number}" for number in range(10)], "k": 100, "highlight": True}
"""The longest request that is allowed."""


@pytest.fixture(scope="module")
def long_texts(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection in which a highlight has many sentences to choose from."""
    folder = tmp_path_factory.mktemp("long") / "long"
    sentences = [" ".join(f"It is fact {n} of text {number}." for n in range(12)) for number in range(300)]
    documents = [{"id": str(number), "text": text} for number, text in enumerate(sentences)]
    Retriever.build(documents, folder, encoder=tiny_bert, transform="none", precision="fp32").close()
    return folder


@pytest.fixture(scope="module")
def server(long_texts: Path) -> Iterator[Running]:
    with running([long_texts]) as found:
        yield found


def queries_searched(server: Running) -> int:
    (line,) = (line for line in server.get("/metrics").text.splitlines() if "batch_queries_sum" in line)
    return int(float(line.split()[1]))


def wait_until_idle(server: Running) -> None:
    """Wait until the only request is the one that asks, and no thread searches any more."""
    while "retriever_requests_under_way 1.0" not in server.get("/metrics").text:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("route", "body", "field"),
    [
        ("search/batch", {"queries": ["x"] * 64, "k": 1000, "highlight": True}, "k"),
        ("search/batch", {"queries": ["x"] * 64, "k": 1000}, "queries"),
        ("search/batch", {"queries": ["x"] * 11, "k": 100, "highlight": True}, "queries"),
        ("search", {"query": "x", "k": 101, "highlight": True}, "k"),
    ],
)
def test_too_much_work_is_refused_before_it_begins(
    server: Running, route: str, body: dict[str, Any], field: str
) -> None:
    before = queries_searched(server)
    response = server.post(f"/v1/{route}", body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == field
    assert queries_searched(server) == before


def test_short_calls_do_not_wait_behind_long_ones(server: Running) -> None:
    lines: list[int] = []

    def ask() -> None:
        with httpx.Client(base_url=server.url, timeout=300) as client:
            lines.append(len(client.post("/v1/search/batch", json=LONGEST).text.splitlines()))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    while "retriever_requests_under_way 5.0" not in server.get("/metrics").text:
        pass
    assert server.get("/ready").status_code == 200
    assert server.search("fact 3 of text 8", k=1)["hits"]
    assert server.get("/v1/documents/8").status_code == 200
    assert not lines  # none of the long requests has an answer yet
    for thread in threads:
        thread.join()
    assert lines == [10] * 4


def test_short_calls_do_not_wait_behind_many_highlights(server: Running) -> None:
    """A highlight encodes every sentence of a hit, so even a few of them are long work."""
    done: list[int] = []

    def ask(number: int) -> None:
        body = {"query": f"fact {number} of text {number}", "k": 20, "highlight": True}
        done.append(httpx.post(f"{server.url}v1/search", json=body, timeout=300).status_code)

    threads = [threading.Thread(target=ask, args=[number]) for number in range(30)]
    for thread in threads:
        thread.start()
    while "retriever_requests_under_way 31.0" not in server.get("/metrics").text and not done:
        pass
    assert server.search("fact 3 of text 8", k=1)["hits"]
    assert server.get("/v1/documents/8").status_code == 200
    assert len(done) < 15
    for thread in threads:
        thread.join()
    assert done == [200] * 30


def test_the_work_of_a_client_that_has_gone_ends(server: Running) -> None:
    before = queries_searched(server)
    queries = [f"question number {number}" for number in range(1000)]
    with server.client.stream("POST", "/v1/search/batch", json={"queries": queries, "k": 20}) as response:
        json.loads(next(response.iter_lines()))
    wait_until_idle(server)
    searched = queries_searched(server) - before
    assert searched < 500
    server.search("one more")  # no search is left behind in a queue
    assert queries_searched(server) == before + searched + 1


def test_a_search_that_waits_is_dropped_with_its_client(server: Running) -> None:
    before = queries_searched(server)
    body = {"query": "fact 3", "k": 100, "highlight": True}

    def ask() -> None:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}v1/search", json=body, timeout=httpx.Timeout(60, read=0.3))

    threads = [threading.Thread(target=ask) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until_idle(server)
    assert queries_searched(server) - before < 30


IMPATIENT = """
from retriever.serve import settings
settings.SECONDS_TO_FINISH, settings.SECONDS_TO_CLOSE = 1, 1
from retriever.cli.entry import main
main()
"""


def test_a_signal_ends_the_server_in_time_under_the_heaviest_load(long_texts: Path) -> None:
    with served(long_texts, code=IMPATIENT) as (process, url, _):
        clients = [httpx.Client(base_url=url, timeout=300) for _ in range(8)]

        def ask(client: httpx.Client) -> None:
            with pytest.raises(httpx.TransportError):
                while client.post("/v1/search/batch", json=LONGEST):
                    pass

        threads = [threading.Thread(target=ask, args=[client]) for client in clients]
        for thread in threads:
            thread.start()
        while "retriever_requests_under_way 9.0" not in httpx.get(f"{url}metrics").text:
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        for thread in threads:
            thread.join()
        assert process.stderr and "Traceback" not in process.stderr.read()


STUCK = """
import time
from retriever.serve import settings
settings.SECONDS_TO_FINISH, settings.SECONDS_TO_CLOSE = 0.5, 0.5
from retriever.retriever import Retriever
Retriever.document = lambda self, id_: time.sleep(600)
from retriever.cli.entry import main
main()
"""


@pytest.mark.parametrize("signals", [1, 2])
def test_a_thread_that_does_not_end_cannot_keep_the_server_from_ending(long_texts: Path, signals: int) -> None:
    with served(long_texts, code=STUCK) as (process, url, _):
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{url}v1/documents/1", timeout=httpx.Timeout(60, read=0.5))
        process.send_signal(signal.SIGTERM)
        if signals == 2:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.1)
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == (0 if signals == 1 else 128 + signal.SIGTERM)
        assert process.stderr and "What was stored is kept" in process.stderr.read()
