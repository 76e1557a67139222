"""Collections that were damaged, or made by somebody else to do harm: refused with a reason, and nothing written
outside of them."""

import hashlib
import json
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from limited import ROOT
from samples import PETS, Run

from retriever import Retriever
from retriever.cli.main import main
from retriever.errors import Damaged, RetrieverError


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    folder = tmp_path_factory.mktemp("built") / "index"
    Retriever.build(PETS, folder, encoder=tiny_bert, transform="whiten").close()
    return folder


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "outer" / "index"))


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder beside the collection, in which nothing may change."""
    folder = tmp_path / "outer" / "precious"
    folder.mkdir(parents=True)
    (folder / "letter.txt").write_text("dear")
    yield folder
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("letter.txt", "dear")]
    assert {path.name for path in folder.parent.iterdir()} <= {"precious", "index"}
    assert not (tmp_path / "escaped").exists()


def execute(index: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(index / "documents.sqlite")) as connection, connection:
        connection.execute(statement, values)


def faiss_file(index: Path) -> Path:
    (path,) = index.glob("generations/*/vectors.faiss")
    return path


def command(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from retriever.cli.main import main; main()", *map(str, args)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def lie_about_size(data: bytearray) -> None:
    data[33:41] = struct.pack("<Q", 2**61)


def change_the_type(data: bytearray) -> None:
    data[:4] = b"IwPQ"


def noise(data: bytearray) -> None:
    data[:] = random.Random(0).randbytes(len(data))


def cut(data: bytearray) -> None:
    del data[40:]


@pytest.mark.parametrize("harm", [lie_about_size, change_the_type, noise, cut])
def test_a_damaged_index_never_reaches_faiss(index: Path, harm: Callable[[bytearray], None]) -> None:
    path = faiss_file(index)
    data = bytearray(path.read_bytes())
    harm(data)
    path.write_bytes(data)
    done = command("search", "cats", "--index", index)
    assert done.returncode == 1, done.stderr
    assert str(path) in done.stderr.replace("\n", "")
    assert "verify --repair" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


NAMES = ["../../../escaped", "../escaped", "/tmp/escaped", "a/b", "a\\b", "..", ".", "", "C:x"]


@pytest.mark.parametrize("name", NAMES)
def test_kept_files_with_names_that_lead_elsewhere(index: Path, outside: Path, run: Run, name: str) -> None:
    execute(index, "UPDATE generation_files SET name = ? WHERE rowid = (SELECT min(rowid) FROM generation_files)", name)
    faiss_file(index).write_bytes(b"")
    with Retriever.open(index) as retriever:
        with pytest.raises(Damaged, match="not a plain file name"):
            retriever.collection.transform_files()
        retriever.verify(repair=True)
        assert retriever.verify().clean
        assert retriever.search("cats", mode="lexical")


@pytest.mark.parametrize("name", [*NAMES, "../../precious"])
def test_a_generation_that_lies_elsewhere(index: Path, outside: Path, run: Run, name: str) -> None:
    execute(index, "UPDATE generations SET folder = ?", name)
    for args in (["search", "cats"], ["verify"], ["verify", "--repair"], ["info"]):
        result = run(*args, "--index", index, code=1)
        assert "not a plain file name" in result.output
    run("rebuild", "--index", index)  # needs nothing of the old generation
    run("verify", "--index", index)


@pytest.mark.parametrize(
    "content", [{"files": {"../../../escaped": {"bytes": 1, "sha256": ""}}}, {}, [], 7, "[" * 9999]
)
def test_a_manifest_made_to_do_harm(index: Path, outside: Path, run: Run, content: object) -> None:
    (path,) = index.glob("generations/*/manifest.json")
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    execute(index, "UPDATE generations SET manifest_sha256 = ?", hashlib.sha256(path.read_bytes()).hexdigest())
    assert "manifest" in run("search", "cats", "--index", index, code=1).output


@pytest.mark.parametrize("name", ["generations", "quarantine", "writer.lock", "checked.json", "documents.sqlite"])
def test_links_to_elsewhere(index: Path, outside: Path, run: Run, name: str, pets: Path) -> None:
    path = index / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    is_folder = name in ("generations", "quarantine")
    path.symlink_to(outside if is_folder else outside / "letter.txt")
    for args in (["search", "cats"], ["add", pets], ["rebuild"], ["verify", "--repair"]):
        assert "is a symbolic link" in run(*args, "--index", index, code=1).output


def test_a_new_collection_in_a_folder_prepared_with_links(tmp_path: Path, outside: Path, run: Run, pets: Path) -> None:
    index = outside.parent / "index"
    index.mkdir()
    (index / "writer.lock").symlink_to(outside / "letter.txt")
    assert "is a symbolic link" in run("index", pets, "--index", index, code=1).output


def test_a_trigger_of_anothers(index: Path) -> None:
    """Nothing in the tables can call what is not SQL's own."""
    execute(index, "CREATE TRIGGER harm AFTER DELETE ON documents BEGIN SELECT load_extension('/tmp/escaped'); END")
    with Retriever.open(index) as retriever, pytest.raises((RetrieverError, sqlite3.Error)):
        retriever.delete(["cat"])


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 5000, "", "nul", "\x00", '{"dimension": 1e999}'])
@pytest.mark.parametrize("place", ["settings SET value", "documents SET metadata"])
def test_json_made_to_do_harm(index: Path, text: str, place: str) -> None:
    execute(index, f"UPDATE {place} = ?", text)
    for args in (["search", "cats"], ["info"], ["verify"], ["search", "cats", "--where", "legs = 0"]):
        result = CliRunner().invoke(main, [*args, "--index", str(index)])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
