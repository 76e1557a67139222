"""Readers who may not write to the folder of a collection, while somebody else does."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bm25 import some_documents

from retriever import Retriever
from retriever.errors import Locked, NotReadable

ROOT = Path(__file__).parents[3]
NOBODY = 65534
READER = f"""
import sys
from pathlib import Path
from retriever import Retriever
folder, warm = sys.argv[1:]
with Retriever.open(warm) as opened:  # another user may read neither the modules nor the encoder
    opened.search("cat", 3, mode="hybrid"), len(opened), opened.verify()
    encoder = opened.encoder()
import retriever.ingest.writer
import os
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
try:
    retriever = Retriever.open(folder)
    retriever._encoder = encoder
    print("opened", len(retriever), flush=True)
    while sys.stdin.readline():
        found = [len(retriever.search("cat dog zebra", 500, mode=mode)) for mode in ("dense", "lexical", "hybrid")]
        print(len(retriever), found[0], found[1], retriever.verify().problems, flush=True)
    retriever.delete(["d1"])
except Exception as error:
    print(type(error).__name__, error, flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    folder = tmp_path_factory.mktemp("read-only") / "c"
    Retriever.build(some_documents(60), folder, encoder=tiny_bert, precision="fp32", transform="none").close()
    return folder


@pytest.fixture
def folder(built: Path) -> Iterator[Path]:
    """Where any user may read, and only this one may write."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(shutil.copytree(built, Path(place) / "c"))


def everybody_may_read(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


class Reader:
    def __init__(self, folder: Path, warm: Path) -> None:
        everybody_may_read(folder)
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER, folder, warm],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def says(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def asked(self) -> str:
        assert self.process.stdin
        print(file=self.process.stdin, flush=True)
        return self.says()

    def leaves(self) -> str:
        return self.process.communicate(timeout=60)[0].strip()


as_another_user = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0, reason="only root can become another user"
)


def changed(folder: Path, retriever: Retriever, number: int) -> None:
    retriever.delete([f"d{id_}" for id_ in range(10 * number, 10 * number + 9)])
    retriever.add([{"id": f"z{number}-{i}", "text": f"a zebra, {number} {i}"} for i in range(4)])


@as_another_user
def test_a_reader_who_may_not_write_sees_what_others_write(folder: Path, built: Path) -> None:
    reader = Reader(folder, built)
    assert reader.says() == "opened 60"
    for number in range(1, 3):  # each opens, writes and closes, and leaves no log
        with Retriever.open(folder) as writer:
            changed(folder, writer, number)
        count = 60 - 5 * number
        assert reader.asked().startswith(f"{count} {count} ") and reader.asked().endswith("[]")
    with Retriever.open(folder) as writer:
        for number in range(3, 5):
            changed(folder, writer, number)
            count = 60 - 5 * number
            assert reader.asked().startswith(f"{count} {count} ") and reader.asked().endswith("[]")
        writer.rebuild(transform="center")
        assert reader.asked().startswith("40 40 ")
    assert reader.asked().startswith("40 40 ") and reader.asked().endswith("[]")
    assert "this user is not allowed to write to" in reader.leaves()


@pytest.mark.heavy
@as_another_user
def test_what_a_killed_process_left_can_be_read_or_is_told(folder: Path, built: Path) -> None:
    killed = folder.with_name("killed")
    with Retriever.open(folder) as writer:
        changed(folder, writer, 1)
        shutil.copytree(folder, killed)
    reader = Reader(killed, built)
    assert reader.says() == "opened 55"
    assert reader.asked().startswith("55 55 ") and reader.asked().endswith("[]")
    reader.leaves()
    (killed / "documents.sqlite-shm").unlink()
    assert Reader(killed, built).says().startswith(f"NotReadable {killed} cannot be read by a user")


@pytest.mark.heavy
def test_it_is_read_anew_when_it_was_written(folder: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For those who run the tests as a user who cannot become another."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with monkeypatch.context() as patch:
        patch.setattr("indexes.sqlite.database.may_write", lambda path: False)
        with Retriever.open(folder) as reader:
            assert len(reader.search("cat", 500)) == 60
            command = [
                sys.executable,
                "-m",
                "retriever",
                "delete",
                *(f"d{id_}" for id_ in range(50)),
                "--index",
                folder,
            ]
            subprocess.run(command, check=True, capture_output=True, env=environment)
            assert len(reader.search("cat", 500)) == len(reader) == 10
            assert reader.verify().clean


def test_a_database_that_never_stands_still_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexes.sqlite.database.may_write", lambda path: False)
    with Retriever.open(folder) as reader:
        documents = reader.collection.store.documents

        def disturbed(*args: Any) -> object:
            os.utime(folder / "documents.sqlite")
            return documents(*args)

        monkeypatch.setattr(reader.collection.store, "documents", disturbed)
        with pytest.raises(Locked, match="written to continuously"):
            reader.search("cat")


def test_a_log_without_its_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = folder.with_name("killed")
    with Retriever.open(folder) as writer:
        changed(folder, writer, 1)
        shutil.copytree(folder, killed, ignore=shutil.ignore_patterns("*-shm"))
    monkeypatch.setattr("indexes.sqlite.database.may_write", lambda path: False)
    with pytest.raises(NotReadable, match="cannot be read by a user"):
        Retriever.open(killed)
