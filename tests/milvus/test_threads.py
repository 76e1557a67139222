"""Searches in several threads while another writes: each document as it was or as it is, once, and no alarm."""

import threading
from typing import Any

import pytest

from indexes.milvus.collection import MilvusCollection
from retriever import Document, Retriever

PLAIN: dict[str, Any] = {"transform": "none", "precision": "fp32"}


def versions(number: int) -> list[Document]:
    return [Document(f"d{i}", f"thing {i} in version {number}", metadata={"v": number}) for i in range(12)]


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_searches_while_another_thread_adds(lite: str, tiny_bert: str, mode: Any) -> None:
    problems: list[str] = []
    done = threading.Event()
    with Retriever.build(versions(0), lite, encoder=tiny_bert, **PLAIN) as retriever:

        def look() -> None:
            lowest = dict.fromkeys((f"d{i}" for i in range(12)), 0)
            try:
                while not done.is_set():
                    hits = retriever.search("thing in version", 50, mode=mode)
                    if sorted(hit.id for hit in hits) != sorted(lowest):
                        problems.append(f"found {[hit.id for hit in hits]}")
                    for hit in hits:
                        if hit.passage != f"thing {hit.id[1:]} in version {hit.metadata['v']}":
                            problems.append(f"{hit.passage} with {hit.metadata}")
                        if hit.metadata["v"] < lowest[hit.id]:
                            problems.append(f"{hit.id} fell back to {hit.metadata}")
                        lowest[hit.id] = hit.metadata["v"]
            except BaseException as error:
                problems.append(repr(error))

        readers = [threading.Thread(target=look) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            for number in range(1, 9):
                retriever.add(versions(number))
            retriever.rebuild(transform="center")
            retriever.add(versions(9))
        finally:
            done.set()
            for reader in readers:
                reader.join()
        assert problems == []
        assert retriever.verify().clean
        assert {hit.metadata["v"] for hit in retriever.search("thing", 50)} == {9}


def test_vectors_and_documents_are_numbered_by_two_threads(lite: str) -> None:
    """What the encoder's thread stores and what the main thread stores take from the same counters."""
    settings = {"encoder": {"name": "x", "dimension": 4, "pooling": "mean", "max_length": 9, "fingerprint": "0"}}
    with MilvusCollection.create(lite, settings) as collection, collection.writing():
        taken: dict[str, list[int]] = {"vector": [], "document": []}

        def take(kind: str) -> None:
            for _ in range(60):
                taken[kind].append(collection.state.take_numbers(kind, 3))

        threads = [threading.Thread(target=take, args=[kind]) for kind in ("vector", "document", "vector")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken["vector"]) == [1 + 3 * n for n in range(120)]
        assert sorted(taken["document"]) == [1 + 3 * n for n in range(60)]
        assert collection.state.counters()["vector"] == 360
