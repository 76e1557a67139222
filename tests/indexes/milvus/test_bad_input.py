"""What is not there, does not answer, belongs to somebody else or is held by another: said in words, and in time."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from milvus_places import Server, free_port
from samples import Run

from indexes.milvus.address import Address
from indexes.milvus.client import Client
from indexes.milvus.connection import Unreachable
from indexes.milvus.state import LOCK, STATE, State
from retriever import Document, Retriever
from retriever.errors import Locked, Misuse, NotACollection, RetrieverError

PLAIN: dict[str, Any] = {"transform": "none", "precision": "fp32"}
DOCUMENTS = [Document("a", "one"), Document("b", "two")]


# ---- places ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        *(
            "milvus:",
            "milvus:somewhere",
            "milvus:x.sqlite",
            "milvus:ftp://host",
            "milvus:http://",
            "milvus:http://h/db",
        ),
        *("milvus:x.db#a-b", "milvus:x.db#1a", "milvus:x.db#a b", "milvus:x.db#é", "milvus:x.db#" + "n" * 101),
        *("milvus:http://a b:1", "milvus://host:1", 'milvus:x.db#"; drop'),
    ],
)
def test_what_is_no_place(place: str, run: Run) -> None:
    with pytest.raises(Misuse, match="not a valid Milvus address|not a valid collection name in Milvus"):
        Retriever.open(place)
    assert "Milvus" in run("info", "--index", place, code=2).output


@pytest.mark.parametrize("name", ["pymilvus", "milvus_lite"])
def test_a_package_that_is_missing_is_named_with_its_extra(tmp_path: Path, name: str) -> None:
    (tmp_path / "m.db").mkdir()
    code = (
        "import sys\n"
        f"sys.modules[{name!r}] = None\n"
        "sys.argv = ['retriever', 'info', '--index', sys.argv[1]]\n"
        "from retriever.cli.entry import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code, f"milvus:{tmp_path / 'm.db'}"], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    said = " ".join(done.stderr.split())
    assert name.replace("_", "-") in said and "pip install 'flow-retriever[milvus]'" in said
    assert "Traceback" not in said


def test_nothing_there(lite: str, tmp_path: Path, run: Run) -> None:
    with pytest.raises(NotACollection, match="does not exist; make it with: retriever index SOURCE --index"):
        Retriever.open(lite)
    assert not (tmp_path / "m.db").exists(), "looking makes nothing"
    for command in (["search", "x"], ["similar", "x"], ["delete", "x"], ["info"], ["verify"], ["rebuild"]):
        assert "does not exist" in run(*command, "--index", lite, code=2).output.replace("\n", " ")
    assert not (tmp_path / "m.db").exists()


def test_a_file_or_another_folder_in_its_place(lite: str, tmp_path: Path, tiny_bert: str) -> None:
    (tmp_path / "m.db").write_text("SQLite format 3")
    for job in (lambda: Retriever.open(lite), lambda: Retriever.build(DOCUMENTS, lite, encoder=tiny_bert, **PLAIN)):
        with pytest.raises(NotACollection, match="is a file"):
            job()
    assert (tmp_path / "m.db").read_text() == "SQLite format 3"
    (tmp_path / "file").touch()
    with pytest.raises((RetrieverError, OSError)):
        Retriever.build(DOCUMENTS, f"milvus:{tmp_path / 'file' / 'm.db'}", encoder=tiny_bert, **PLAIN)


# ---- addresses that do not answer --------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexes.milvus.connection.CONNECT_SECONDS", 1.5)
    monkeypatch.setattr("indexes.milvus.client.CALL_SECONDS", 3.0)


@contextmanager
def black_hole() -> Iterator[int]:
    """A port that lets everybody in and never says a word."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        kept: list[socket.socket] = []

        def let_in() -> None:
            while True:
                try:
                    kept.append(listening.accept()[0])
                except OSError:
                    return

        threading.Thread(target=let_in, daemon=True).start()
        yield int(listening.getsockname()[1])
        for one in kept:
            one.close()


@pytest.mark.parametrize("kind", ["nobody listens", "black hole", "no such host"])
def test_an_address_that_does_not_answer(impatient: None, kind: str, tiny_bert: str, run: Run) -> None:
    with black_hole() as hole:
        host = {"nobody listens": f"127.0.0.1:{free_port()}", "black hole": f"127.0.0.1:{hole}"}.get(kind)
        place = f"milvus:http://{host or 'no-such-host.invalid:19530'}"
        with pytest.raises(Unreachable, match=r"tried \d+ times? in \d+ seconds.*run the same command again"):
            Retriever.open(place)
        with pytest.raises(Unreachable, match="Check that the server is running"):
            Retriever.build(DOCUMENTS, place, encoder=tiny_bert, **PLAIN)
        said = " ".join(run("search", "x", "--index", place, code=1).output.split())
        assert "cannot connect to Milvus" in said and place.removeprefix("milvus:") in said and "Traceback" not in said


def test_the_token_is_in_no_message(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILVUS_TOKEN", "root:very-secret")
    with pytest.raises(Unreachable) as raised:
        Retriever.open(f"milvus:http://127.0.0.1:{free_port()}")
    assert "very-secret" not in str(raised.value) + repr(Address.parse("milvus:http://h:1"))


# ---- somebody else's ---------------------------------------------------------------------------------------------


def other_table(place: str, table: str, dimension: int = 8) -> None:
    """A table of the same name that another program has made."""
    client = Client(Address.parse(place), create=True)
    client.pymilvus.create_collection(table, dimension=dimension)
    client.pymilvus.insert(table, [{"id": 1, "vector": [0.5] * dimension}])
    client.close()


@pytest.mark.parametrize("table", ["retriever_settings", "retriever_documents", "retriever_vectors"])
def test_tables_of_another_program_are_left_alone(lite: str, tiny_bert: str, table: str) -> None:
    other_table(lite, table)
    with pytest.raises(NotACollection, match=f"the table {table} was made by another program.*#NAME"):
        Retriever.build(DOCUMENTS, lite, encoder=tiny_bert, **PLAIN)
    with pytest.raises(NotACollection):
        Retriever.open(lite)
    client = Client(Address.parse(lite))
    assert client.count(table) == 1
    client.close()
    Retriever.build(DOCUMENTS, f"{lite}#mine", encoder=tiny_bert, **PLAIN).close()


def test_vectors_of_another_length_are_left_alone(lite: str, tiny_bert: str) -> None:
    """A table of the right fields that is not empty, for vectors of another encoder, without a collection around it."""
    from indexes.milvus import schema

    client = Client(Address.parse(lite), create=True)
    client.create("retriever_vectors", *schema.vectors_table(client.pymilvus, 8))
    client.put("retriever_vectors", [{"number": 1, "text_hash": "0", "raw": [0.5] * 8, "checksum": 0}])
    client.close()
    with pytest.raises(NotACollection, match="vectors of 8 dimensions, and the encoder gives 32"):
        Retriever.build(DOCUMENTS, lite, encoder=tiny_bert, **PLAIN)


def test_a_table_that_is_missing(lite: str, tiny_bert: str) -> None:
    Retriever.build(DOCUMENTS, lite, encoder=tiny_bert, **PLAIN).close()
    client = Client(Address.parse(lite))
    client.drop("retriever_vectors")
    client.close()
    with pytest.raises(NotACollection, match="is incomplete: it has no table retriever_vectors"):
        Retriever.open(lite)


@contextmanager
def state_of(place: str) -> Iterator[State]:
    client = Client(Address.parse(place))
    try:
        yield State(client)
    finally:
        client.close()


def test_a_format_of_another_version_and_a_damaged_state(lite: str, tiny_bert: str) -> None:
    Retriever.build(DOCUMENTS, lite, encoder=tiny_bert, **PLAIN).close()
    with state_of(lite) as state:
        told = json.loads(state.records.read(STATE) or "")
        state.records.write(STATE, json.dumps({**told, "format": 99}))
    for job in (lambda: Retriever.open(lite), lambda: Retriever.build(DOCUMENTS, lite, encoder=tiny_bert)):
        with pytest.raises(NotACollection, match=r"its format is 99, this one reads 1\); upgrade"):
            job()
    with state_of(lite) as state:
        state.records.write(STATE, json.dumps(told))
        row = state.client.select(state.records.table, "", ["key", "value", "unused"])
        for one in row:
            if '"format' in one["value"]:
                state.client.put(state.records.table, [{**one, "value": one["value"].replace("center", "c")[:-9]}])
    with pytest.raises(RetrieverError, match="damaged"):
        Retriever.open(lite)


def test_settings_of_another_encoder_than_the_index(lite: str, tiny_bert: str) -> None:
    Retriever.build(DOCUMENTS, lite, encoder=tiny_bert, **PLAIN).close()
    with state_of(lite) as state:
        encoder = state.read().settings["encoder"]
        state.change(settings={"encoder": {**encoder, "pooling": "cls"}})
    with Retriever.open(lite) as retriever:
        for job in (lambda: retriever.add(["x"]), lambda: retriever.delete(["a"]), retriever.rebuild):
            with pytest.raises(RetrieverError, match="another encoder|encoder"):
                job()


# ---- who holds it ------------------------------------------------------------------------------------------------


def test_another_process_that_has_the_file_open(lite: str, tiny_bert: str, run: Run) -> None:
    Retriever.build(DOCUMENTS, lite, encoder=tiny_bert, **PLAIN).close()
    code = (
        "import sys\nfrom indexes.milvus.collection import MilvusCollection\n"
        "opened = MilvusCollection.open(sys.argv[1])\nprint('open', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, lite], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "open\n"
        with pytest.raises(Locked, match="open in another process, and Milvus Lite allows one at a time"):
            Retriever.open(lite)
        assert "milvus-lite server" in run("info", "--index", lite, code=1).output.replace("\n", " ")
        other.communicate("")
    with Retriever.open(lite) as retriever:
        assert len(retriever) == 2


def write_lock(place: str, **told: Any) -> None:
    with state_of(place) as state:
        usual = {"token": "other", "host": socket.gethostname(), "pid": os.getpid(), "since": "2020-01-01T00:00:00"}
        state.records.write(LOCK, json.dumps({**usual, "until": time.time() + 100, **told}))


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    ("told", "free"),
    [
        ({"pid": os.getppid()}, False),
        ({"host": "another.machine"}, False),
        ({"host": "another.machine", "until": 0.0}, True),
        ({"pid": 0}, True),
    ],
    ids=["alive", "on another host", "on another host and run out", "dead"],
)
def test_a_lock_that_another_left(lite: str, tiny_bert: str, told: dict[str, Any], free: bool) -> None:
    Retriever.build(DOCUMENTS, lite, encoder=tiny_bert, **PLAIN).close()
    told = {**told, "pid": dead_process()} if told.get("pid") == 0 else told
    write_lock(lite, **told)
    with Retriever.open(lite) as retriever:
        assert len(retriever.search("one")) == 2, "who reads needs no lock"
        if free:
            retriever.add(["x"])
        else:
            with pytest.raises(Locked, match=r"process \d+ on .* has been writing to .* since 2020-01-01"):
                retriever.add(["x"])
            assert len(retriever) == 2


def test_two_writers_in_one_process(lite: str, tiny_bert: str) -> None:
    Retriever.build(DOCUMENTS, lite, encoder=tiny_bert, **PLAIN).close()
    with Retriever.open(lite) as one, Retriever.open(lite) as other:
        with one.collection.writing(), pytest.raises(Locked):
            other.add(["x"])
        other.add(["x"])
        assert len(one) == 3


@pytest.mark.parametrize("done", [False, True], ids=["still writes", "is done"])
def test_a_lock_that_was_lost_is_not_written_under(
    lite: str, tiny_bert: str, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was not heard of for too long finds that another came in between, and does not give out its numbers."""
    monkeypatch.setattr("indexes.milvus.state.RENEW_SECONDS", 0.0)
    Retriever.build(DOCUMENTS, lite, encoder=tiny_bert, **PLAIN).close()
    with Retriever.open(lite) as slow, Retriever.open(lite) as quick:
        with pytest.raises(Locked, match="run the same command again|has been writing to"), slow.collection.writing():
            write_lock(lite, until=0.0, host="elsewhere") if done else None
            with state_of(lite) as state:
                state.records.delete([LOCK])
            if done:
                quick.add(["between"])
            else:
                write_lock(lite, host="elsewhere")
            slow.collection.store.put_documents([])
            slow.collection.state.take_numbers("document", 1)
        with state_of(lite) as state:
            assert (state.records.read(LOCK) is None) == done, "another's lock is left to it"
        assert slow.verify().clean


def test_a_server_is_told_apart_from_a_file(tmp_path: Path, tiny_bert: str) -> None:
    with Server(tmp_path / "served") as server:
        Retriever.build(DOCUMENTS, f"{server.place}#one", encoder=tiny_bert, **PLAIN).close()
        with Retriever.open(f"{server.place}#one") as reader, Retriever.open(f"{server.place}/#one") as other:
            assert len(reader.search("one")) == len(other.search("one")) == 2
            assert reader.info()["bytes"] == {}
        with pytest.raises(NotACollection, match="holds no collection; make one with"):
            Retriever.open(f"{server.place}#two")
