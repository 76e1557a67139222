"""Many at once: batches give what each query gives alone, and a publication in the middle fails nobody."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Running, running

from retriever.retriever import Retriever

Fresh = Callable[..., Path]
WORDS = ["cats", "dogs bark", "a bowl of goldfish", "parrots", "fields", "the morning of a horse", "sticks", "night"]


def test_together_as_alone(server: Running) -> None:
    """Different queries in different ways, all at once, each as if nobody else had asked."""
    ways: list[dict[str, Any]] = [
        {"k": 3, "mode": "dense"},
        {"k": 5},
        {"k": 5, "explain": True},
        {"k": 5, "min_score": 20},
        {"k": 2, "mode": "lexical"},
        {"k": 4, "where": ["legs = 4"]},
        {"k": 3, "space": "raw", "highlight": True},
        {"k": 3, "collection": "others"},
    ]
    asked = [{"query": f"{word} {n}", **ways[n % len(ways)]} for n, word in enumerate(WORDS * 6)]
    alone = [server.search(**body) for body in asked]

    def ask(body: dict[str, Any]) -> dict[str, Any]:
        return server.search(**body)

    with ThreadPoolExecutor(24) as pool:
        together = list(pool.map(ask, asked))
    for one, other in zip(alone, together, strict=True):
        assert [hit["id"] for hit in one["hits"]] == [hit["id"] for hit in other["hits"]]
        for hit, same in zip(one["hits"], other["hits"], strict=True):
            assert same["score"] == pytest.approx(hit["score"], abs=1e-5)
            assert same["relevance"] == pytest.approx(hit["relevance"], abs=0.11)
            assert same["highlight"] == hit["highlight"]
            assert (same["explanation"] is None) == (hit["explanation"] is None)


def test_queries_that_wait_are_searched_together(server: Running) -> None:
    def batches() -> tuple[float, float]:
        lines = server.get("/metrics").text.splitlines()
        named = dict(line.rsplit(" ", 1) for line in lines if line.startswith("retriever_batch_queries_"))
        return float(named["retriever_batch_queries_count"]), float(named["retriever_batch_queries_sum"])

    count, queries = batches()
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(server.search, WORDS * 30))
    more, all_queries = batches()
    assert all_queries - queries == len(WORDS) * 30
    assert more - count < all_queries - queries


def test_one_that_fails_does_not_fail_the_others(server: Running) -> None:
    def ask(number: int) -> int:
        where = ["wings = 2"] if number % 3 == 0 else []
        return server.post("/v1/search", {"query": f"cats {number}", "where": where}).status_code

    with ThreadPoolExecutor(24) as pool:
        statuses = list(pool.map(ask, range(120)))
    assert statuses == [422 if number % 3 == 0 else 200 for number in range(120)]


def test_a_publication_in_the_middle_fails_nobody(fresh: Fresh) -> None:
    folder = fresh()
    with running([folder]) as server:
        stop = threading.Event()
        seen: set[int] = set()
        bad: list[str] = []

        def ask(number: int) -> None:
            with httpx.Client(base_url=server.url, timeout=60) as client:
                while not stop.is_set():
                    body = {"query": WORDS[number % len(WORDS)], "highlight": number % 2 == 0}
                    response = client.post("/v1/search", json=body)
                    if response.status_code != 200:
                        bad.append(response.text)
                    else:
                        seen.add(response.json()["generation"])

        threads = [threading.Thread(target=ask, args=[number]) for number in range(8)]
        for thread in threads:
            thread.start()
        try:
            with Retriever.open(folder) as other:
                for number in range(3):
                    other.add([{"id": f"new{number}", "text": f"A newly added animal, number {number}."}])
                    other.rebuild(transform="center" if number % 2 else "whiten")
                    while not stop.is_set() and other.collection.published()[0] not in seen and not bad:  # type: ignore[index]
                        pass
                last = other.collection.published()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert bad == []
        assert last and last[0] in seen and 1 in seen
        assert server.get("/v1/collections").json()["collections"][0]["generation"] == last[0]
        assert server.search("A newly added animal, number 2.", k=1)["hits"][0]["id"] == "new2"
    folders = [path.name for path in (folder / "generations").iterdir()]
    assert len(folders) == 1  # those before were let go of


def test_a_batch_goes_on_over_a_publication(fresh: Fresh) -> None:
    folder = fresh()
    with running([folder]) as server, Retriever.open(folder) as other:
        body = {"queries": [f"{word} {n}" for n in range(100) for word in WORDS], "k": 1}
        with server.client.stream("POST", "/v1/search/batch", json=body) as response:
            lines = response.iter_lines()
            first = json.loads(next(lines))
            other.rebuild(transform="center")
            rest = [json.loads(line) for line in lines]
        assert [first["query"], *(line["query"] for line in rest)] == body["queries"]
