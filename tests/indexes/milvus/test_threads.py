"""Searches in several threads while another writes: each document as it was or as it is, once, and no alarm."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from indexes.milvus.collection import MilvusCollection
from retriever import Document, Retriever
from retriever.hits import Hits

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
            for number in range(1, 6):
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


def test_a_transform_is_read_while_another_thread_fetches_it(
    lite: str, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, seen = Path.write_bytes, list[bool]()

    def halfway(path: Path, data: bytes) -> int:
        write(path, b"")  # what a thread sees that looks between opening and writing
        seen.append(all((first.folder / name).read_bytes() == before for name, before in files.items()))
        return write(path, data)

    Retriever.build(versions(0), lite, encoder=tiny_bert, **PLAIN | {"transform": "center"}).close()
    with MilvusCollection.open(lite) as collection:
        first = collection.with_generation(lambda found: found)
        assert first is not None
        files = {name: (first.folder / name).read_bytes() for name in first.manifest["files"]}
        monkeypatch.setattr(Path, "write_bytes", halfway)
        assert collection.with_generation(lambda found: found, fresh=True) is not None
    assert seen and all(seen)


SLOW = pytest.mark.torture


@pytest.mark.parametrize(
    "kind", ["replaced", *(pytest.param(k, marks=SLOW) for k in ("metadata", "deleted", "rebuilt"))]
)
@pytest.mark.parametrize("after", ["Client.search", "MilvusStore.seals", "MilvusStore.rows"])
@pytest.mark.parametrize(
    "ask", ["dense", "raw", *(pytest.param(a, marks=SLOW) for a in ("hybrid", "lexical", "similar", "filtered"))]
)
def test_a_change_in_the_middle_of_a_search(
    lite: str, tiny_bert: str, monkeypatch: pytest.MonkeyPatch, kind: str, after: str, ask: str
) -> None:
    """Right after Milvus was asked for one thing, and before the next: the document is found as it was or as it is."""
    from indexes.milvus.client import Client
    from indexes.milvus.store import MilvusStore

    owner, name = {"Client": Client, "MilvusStore": MilvusStore}[after.split(".")[0]], after.split(".")[1]
    asked = getattr(owner, name)
    changed = threading.Event()

    def meddled(self: Any, *given: Any, **named: Any) -> Any:
        found = asked(self, *given, **named)
        found = list(found) if name == "rows" else found
        if not changed.is_set():
            changed.set()
            new = "the third is new" if kind == "replaced" else "thing 3 in version 0"
            if kind in ("replaced", "metadata"):
                writer.add([Document("d3", new, metadata={"v": 1})])
            elif kind == "deleted":
                writer.delete(["d3"])
            else:
                writer.rebuild(transform="standardize")
        return found

    with Retriever.build(versions(0), lite, encoder=tiny_bert, **PLAIN) as retriever, Retriever.open(lite) as writer:
        monkeypatch.setattr(owner, name, meddled)
        searches: dict[str, Callable[[], Hits]] = {
            "dense": lambda: retriever.search("thing", 50),
            "raw": lambda: retriever.search("thing", 50, space="raw"),
            "hybrid": lambda: retriever.search("thing", 50, mode="hybrid"),
            "lexical": lambda: retriever.search("thing third", 50, mode="lexical"),
            "similar": lambda: retriever.similar("d1", 50),
            "filtered": lambda: retriever.search("thing", 50, where=["v in (0, 1)"]),
        }
        hits = {hit.id: hit for hit in searches[ask]()}
        others = {f"d{i}" for i in range(12)} - {"d3"} - ({"d1"} if ask == "similar" else set())
        assert set(hits) - {"d3"} == others
        if kind != "deleted":
            assert "d3" in hits
        if "d3" in hits:
            seen = (hits["d3"].passage, hits["d3"].metadata["v"])
            new = ("the third is new" if kind == "replaced" else "thing 3 in version 0", 1)
            assert seen in (("thing 3 in version 0", 0), new)


@pytest.mark.parametrize("kind", ["replaced", "rebuilt"])
def test_a_change_in_the_middle_of_verify_is_no_damage(
    lite: str, tiny_bert: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from indexes.milvus.verify import _Check

    sound, times = _Check._intact_passages, 0

    def meddled(self: _Check, rows: list[Any]) -> Any:
        nonlocal times
        times += 1
        found = sound(self, rows)
        if times == 1 and kind == "replaced":
            writer.add(versions(1))
        elif times == 1:
            writer.rebuild(transform="whiten:dimension=8")
        return found

    with Retriever.build(versions(0), lite, encoder=tiny_bert, **PLAIN) as retriever, Retriever.open(lite) as writer:
        monkeypatch.setattr(_Check, "_intact_passages", meddled)
        report = retriever.verify()
    assert (report.problems, report.documents, times) == ([], 12, 2)


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
