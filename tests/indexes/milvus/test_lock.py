"""Writers that begin at the same moment: at most one gets the lock. And servers that are too old."""

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from milvus_places import Server

from indexes.errors import Locked
from indexes.milvus.client import Client
from indexes.milvus.collection import MilvusCollection
from indexes.milvus.state import LOCK, State
from retriever.errors import RetrieverError

SETTINGS: dict[str, Any] = {"encoder": {"dimension": 4}, "transform": "none", "index_type": "flat"}


@pytest.fixture
def made(lite: str) -> str:
    MilvusCollection.create(lite, SETTINGS).close()
    return lite


def test_a_writer_that_stalls_before_it_writes_anything(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has seen that the lock is free, then another takes the lock: it must notice, however long it stalled."""
    call, looked, taken, outcomes = Client._call, threading.Event(), threading.Event(), list[str]()

    def stalling(client: Client, name: str, table: str, **arguments: Any) -> Any:
        if threading.current_thread().name == "stalls" and name == "upsert" and not taken.is_set():
            looked.set()
            taken.wait(60)
        return call(client, name, table, **arguments)

    def second() -> None:
        try:
            with slow.state.locked():
                outcomes.append("got the lock")
        except Locked:
            outcomes.append("refused")

    monkeypatch.setattr(Client, "_call", stalling)
    with MilvusCollection.open(made) as quick, MilvusCollection.open(made) as slow:
        thread = threading.Thread(target=second, name="stalls")
        thread.start()
        looked.wait(60)
        with quick.state.locked():
            taken.set()
            thread.join()
            quick.state.records.write("mine", "1")
            assert outcomes == ["refused"]
        assert quick.state.records.read(LOCK) is None
        with slow.state.locked():
            pass


@pytest.mark.parametrize("tries", [20, pytest.param(1000, marks=pytest.mark.torture)])
def test_writers_that_begin_together(made: str, tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three writers, each delayed at random before each call to Milvus, by up to as long as taking the lock takes."""
    call = Client._call
    inside = most = got = 0
    counting = threading.Lock()

    def delayed(client: Client, name: str, table: str, **arguments: Any) -> Any:
        time.sleep(random.random() ** 4 * 0.1)
        return call(client, name, table, **arguments)

    def write(state: State) -> None:
        nonlocal inside, most, got
        try:
            with state.locked():
                with counting:
                    inside, got = inside + 1, got + 1
                    most = max(most, inside)
                time.sleep(0.01)
                with counting:
                    inside -= 1
        except Locked:
            pass

    monkeypatch.setattr(Client, "_call", delayed)
    writers = [MilvusCollection.open(made) for _ in range(3)]
    for number in range(tries):
        random.seed(number)
        threads = [threading.Thread(target=write, args=[writer.state]) for writer in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == 1, f"two had the lock at once in try {number}"
    assert got >= tries  # in every try at least one
    for writer in writers:
        writer.close()


def test_a_server_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pymilvus

    with Server(tmp_path / "data") as server:
        for told in ("2.3.5", "v2.4.17-lite"):
            monkeypatch.setattr(pymilvus.MilvusClient, "get_server_version", lambda self, told=told: told)
            with pytest.raises(RetrieverError, match=f"Milvus 2.5 or newer is needed, .* is {told}"):
                MilvusCollection.create(server.place, SETTINGS)
        monkeypatch.setattr(pymilvus.MilvusClient, "get_server_version", lambda self: "v2.5.0")
        MilvusCollection.create(server.place, SETTINGS).close()


@pytest.mark.timeout(1800)  # the server unpacks itself first
def test_a_real_server_that_is_too_old(tmp_path: Path) -> None:
    """The package `milvus` on PyPI holds a whole server of version 2.3.5. CONTRIBUTING.md says how to run this test."""
    milvus = pytest.importorskip("milvus", reason="needs a real old server; CONTRIBUTING.md says how to install it")
    server = milvus.MilvusServer()
    server.set_base_dir(str(tmp_path / "milvus"))
    try:
        server.start()
        with pytest.raises(RetrieverError, match=r"Milvus 2\.5 or newer is needed, .* is v?2\.3"):
            MilvusCollection.create(f"milvus:http://127.0.0.1:{server.listen_port}", SETTINGS)
    finally:
        server.stop()
