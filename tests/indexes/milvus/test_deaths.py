"""Writers and servers that die in the middle: nothing is seen by halves, and the same command finishes the job."""

import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from milvus_deaths import Death, changes_of, died, dying_at
from milvus_places import Server, shown, state
from samples import write_jsonl

from indexes.milvus.address import Address
from indexes.milvus.client import Client
from indexes.milvus.connection import Unreachable
from retriever import Document, Retriever
from retriever.errors import Misuse, NotACollection, RetrieverError
from retriever.transfer.copy import copy

PLAIN: dict[str, Any] = {"transform": "center", "precision": "fp32"}
LONG = "A very long story of the sea. " * 2500  # more than a row of Milvus holds
OLD = [
    Document("a", "The cat sleeps. " * 60, "Cats", {"n": 1}),
    Document("b", "Rain over the sea.", metadata={"n": 2}),
    Document("c", "Rain over the sea.", metadata={"n": 3}),
    Document("d", "An owl in the fog.", metadata={"n": 4}),
    Document("long", LONG, metadata={"n": 5}),
]
NEW = [
    Document("a", "The cat is awake. " * 90, "Cats", {"n": 1}),
    Document("b", "Rain over the sea.", metadata={"n": 20}),  # nothing but its metadata has changed
    Document("e", "A dog in the sun.", metadata={"n": 6}),
    Document("long", LONG + "The end.", metadata={"n": 5}),
]
QUERY = "rain over the sea"


def rows(place: str) -> dict[str, int]:
    """How many rows each table of a collection has; of the index the number that it was published by is left out."""
    client = Client(Address.parse(place))
    try:
        own = client.address.name
        tables = [name for name in client.pymilvus.list_collections() if name.startswith(f"{own}_")]
        counts = {re.sub(r"\d{6}$", "index", name.removeprefix(own)): client.count(name) for name in tables}
        assert len(counts) == len(tables), tables
        return counts
    finally:
        client.close()


Job = Callable[[str], None]


def _adds(place: str) -> None:
    with Retriever.open(place) as retriever:
        retriever.add(NEW)


def _deletes(place: str) -> None:
    with Retriever.open(place) as retriever:
        retriever.delete(["a", "c", "long"])


def _rebuilds(place: str) -> None:
    with Retriever.open(place) as retriever:
        retriever.rebuild(transform="standardize")


def _prunes(place: str) -> None:
    Retriever.build([*NEW, OLD[1]], place, prune=True).close()


JOBS: dict[str, Job] = {"add": _adds, "delete": _deletes, "rebuild": _rebuilds, "prune": _prunes}


def texts(place: str) -> dict[str, str]:
    """What a reader finds: every document once, as it was or as it shall be, with what it is searched by."""
    versions: dict[str, list[Document]] = {}
    for document in (*OLD, *NEW):
        versions.setdefault(document.id, []).append(document)
    with Retriever.open(place) as retriever:
        hits = retriever.search(QUERY, 100)
        found = {hit.id: retriever.document(hit.id) for hit in hits}
        assert len(found) == len(hits) == len(retriever), "each once, and none that cannot be found"
        for hit in hits:
            own = found[hit.id]
            assert any((own.text, own.title, own.metadata) == (d.text, d.title, d.metadata) for d in versions[hit.id])
            assert (hit.title, hit.metadata, hit.passage) == (own.title, own.metadata, own.text[hit.start : hit.end])
            by_filter = retriever.search(QUERY, 100, where=[f"n = {own.metadata['n']}"])
            assert hit.id in {one.id for one in by_filter}
        assert {hit.id for hit in retriever.search("sea", mode="lexical")} <= set(found)
        assert retriever.verify().problems == []
        return {id_: own.text for id_, own in found.items()}


def _moments(changes: int, all_: bool) -> list[int]:
    return [*range(changes)] if all_ else random.Random(0).sample(range(changes), 2)


@pytest.mark.parametrize("all_", [False, pytest.param(True, marks=pytest.mark.torture)], ids=["some", "all"])
@pytest.mark.parametrize(
    "name", ["add", *(pytest.param(name, marks=pytest.mark.slow) for name in ("delete", "rebuild", "prune"))]
)
@pytest.mark.timeout(1200)
def test_a_writer_that_dies_at_any_change(tmp_path: Path, tiny_bert: str, name: str, all_: bool) -> None:
    job = JOBS[name]
    place = f"milvus:{tmp_path / 'm.db'}#"
    keeper = Retriever.build(OLD, f"{place}undisturbed", encoder=tiny_bert, **PLAIN)  # keeps Milvus Lite running
    changes = changes_of(lambda: job(f"{place}undisturbed"))
    expected, tables = state(f"{place}undisturbed", QUERY), rows(f"{place}undisturbed")
    old_ids = {document.id for document in OLD}
    for moment in _moments(len(changes), all_):
        own = f"{place}m{moment}"
        Retriever.build(OLD, own, encoder=tiny_bert, **PLAIN).close()
        with suppress(Death), dying_at(moment):  # the threads of a run do not always make as many
            job(own)
        found = texts(own)
        if name in ("add", "rebuild"):
            assert old_ids <= set(found), "what is replaced is never away"
        with died():
            job(own)
        assert state(own, QUERY) == expected, changes[:moment]
        assert rows(own) == tables, changes[:moment]
    keeper.close()


@pytest.mark.parametrize("all_", [False, pytest.param(True, marks=pytest.mark.torture)], ids=["some", "all"])
@pytest.mark.timeout(1200)
def test_a_first_run_that_dies_at_any_change(tmp_path: Path, tiny_bert: str, all_: bool) -> None:
    place = f"milvus:{tmp_path / 'm.db'}#"

    def job(place: str) -> None:
        Retriever.build(OLD, place, encoder=tiny_bert, **PLAIN).close()

    changes = changes_of(lambda: job(f"{place}undisturbed"))
    expected, tables = state(f"{place}undisturbed", QUERY), rows(f"{place}undisturbed")
    for moment in _moments(len(changes), all_):
        own = f"{place}m{moment}"
        with suppress(Death), dying_at(moment):  # the threads of a run do not always make as many
            job(own)
        try:
            assert set(texts(own)) == {document.id for document in OLD}
        except NotACollection as error:
            assert any(words in str(error) for words in ("no index yet", "is incomplete", "holds no collection"))
        with died():
            job(own)
        assert state(own, QUERY) == expected, changes[:moment]
        assert rows(own) == tables, changes[:moment]


@pytest.mark.parametrize("all_", [False, pytest.param(True, marks=pytest.mark.torture)], ids=["some", "all"])
@pytest.mark.timeout(1200)
def test_a_copy_that_dies_at_any_change(
    tmp_path: Path, tiny_bert: str, all_: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexes.folder.transfer.BATCH_ROWS", 2)
    Retriever.build(OLD, tmp_path / "c", encoder=tiny_bert, **PLAIN).close()
    place = f"milvus:{tmp_path / 'm.db'}#"
    changes = changes_of(lambda: copy(tmp_path / "c", f"{place}undisturbed"))
    expected, tables = state(tmp_path / "c", QUERY), rows(f"{place}undisturbed")
    for moment in _moments(len(changes), all_):
        own = f"{place}m{moment}"
        with suppress(Death), dying_at(moment):  # the threads of a run do not always make as many
            copy(tmp_path / "c", own)
        try:
            assert set(texts(own)) == {document.id for document in OLD}, "searched only when it is whole"
        except NotACollection as error:
            assert any(words in str(error) for words in ("no index yet", "is incomplete", "holds no collection"))
        with died():
            try:
                copy(tmp_path / "c", own)
            except Misuse as error:  # it died when all was done but some tidying up, which the next writer does
                assert "already holds a collection" in str(error) and moment >= len(changes) - 2
                with Retriever.open(own) as retriever:
                    retriever.rebuild()
        assert state(own, QUERY) == expected, changes[:moment]
        assert rows(own) == tables, changes[:moment]
        with Retriever.open(own) as retriever:
            retriever.add(NEW)


# ---- processes and servers ---------------------------------------------------------------------------------------

INDEX = (
    "import sys\n"
    "from retriever import Corpus, Retriever\n"
    "Retriever.build(Corpus([sys.argv[1]]), sys.argv[2], encoder=sys.argv[3], transform='center', precision='fp32',"
    " batch_tokens=64).close()"
)
COPY = "import sys\nfrom retriever.transfer.copy import copy\ncopy(sys.argv[1], sys.argv[2])"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "served") as server:
        yield server


def facts_about(count: int) -> list[dict[str, Any]]:
    return [{"id": str(n), "text": f"Fact number {n} about {'x' * (n % 40)}.", "n": n} for n in range(count)]


def test_a_server_is_asked_as_milvus_lite_is(server: Server, tmp_path: Path, tiny_bert: str) -> None:
    Retriever.build(OLD, tmp_path / "c", encoder=tiny_bert, **PLAIN).close()
    Retriever.build(OLD, server.place, encoder=tiny_bert, **PLAIN).close()
    assert state(server.place, QUERY) == state(tmp_path / "c", QUERY)
    _adds(server.place)
    _adds(str(tmp_path / "c"))
    assert state(server.place, QUERY) == state(tmp_path / "c", QUERY)
    server.kill()
    server.start()
    assert state(server.place, QUERY) == state(tmp_path / "c", QUERY), "what was acknowledged is there"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("kind", "times"),
    [("index", 2), *(pytest.param(kind, 4, marks=pytest.mark.torture) for kind in ("index", "copy"))],
)
def test_a_server_that_is_killed_again_and_again(
    server: Server, tmp_path: Path, tiny_bert: str, kind: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends with words that tell what to do, and the same command goes on once the server is back."""
    monkeypatch.setattr("indexes.milvus.client.CALL_SECONDS", 5.0)
    monkeypatch.setattr("indexes.milvus.connection.CONNECT_SECONDS", 2.0)
    monkeypatch.setattr("indexes.milvus.state.LEASE_SECONDS", 3.0)
    source = write_jsonl(tmp_path / "facts.jsonl", facts_about(3000))
    from retriever import Corpus

    def index(place: str | Path) -> None:
        Retriever.build(
            Corpus([source]), place, encoder=tiny_bert, transform="center", precision="fp32", batch_tokens=64
        ).close()

    index(tmp_path / "c")
    expected = state(tmp_path / "c", "fact number 77", "x")
    rng, deaths = random.Random(1), 0
    while True:
        killer = threading.Timer(0.5 + 6 * rng.random(), server.kill)
        if deaths < times:
            killer.start()
        try:
            index(server.place) if kind == "index" else copy(tmp_path / "c", server.place)
        except RetrieverError as error:
            assert isinstance(error, Unreachable), error
            assert "run the same command" in str(error)
            killer.join()
            deaths += 1
            server.start()
            try:
                seen = state(server.place, "x")
                assert seen["hits"]["x"] == expected["hits"]["x"]
            except NotACollection as unfinished:
                assert "no index yet" in str(unfinished) or "collection" in str(unfinished)
            time.sleep(3.1)  # until the lock of the one that lost its server runs out
            continue
        killer.cancel()
        break
    assert deaths
    if server.process is not None and server.process.poll() is not None:
        server.start()
    assert state(server.place, "fact number 77", "x") == expected


@pytest.mark.torture
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["index", "copy"])
def test_a_process_that_is_killed_again_and_again(tmp_path: Path, tiny_bert: str, kind: str) -> None:
    source = write_jsonl(tmp_path / "facts.jsonl", facts_about(3000))
    subprocess.run([sys.executable, "-c", INDEX, source, tmp_path / "c", tiny_bert], check=True)
    place = f"milvus:{tmp_path / 'm.db'}"
    command = [sys.executable, "-c", COPY, str(tmp_path / "c"), place]
    if kind == "index":
        command = [sys.executable, "-c", INDEX, str(source), place, tiny_bert]
    rng, kills = random.Random(2), 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            process.wait(timeout=5 + 5 * rng.random() if kills < 5 else None)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        assert process.returncode == 0, process.stderr.read().decode() if process.stderr else ""
        break
    assert state(place, "fact number 77", "x") == state(tmp_path / "c", "fact number 77", "x")


def test_a_server_that_goes_away_while_it_is_searched(
    server: Server, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexes.milvus.connection.CONNECT_SECONDS", 1.0)
    with Retriever.build(OLD, server.place, encoder=tiny_bert, **PLAIN) as retriever:
        before = shown(retriever.search(QUERY))
        server.kill()
        for ask in (lambda: retriever.search(QUERY), lambda: retriever.delete(["a"]), lambda: retriever.verify()):
            with pytest.raises(Unreachable, match=r"tried \d+ times in \d+ seconds.*run the same command"):
                ask()
        server.start()
        monkeypatch.setattr("indexes.milvus.connection.CONNECT_SECONDS", 30.0)
        assert shown(retriever.search(QUERY)) == before, "the same reader goes on when it is back"
