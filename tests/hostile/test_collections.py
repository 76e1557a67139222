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
from pathlib import Path

import pytest
from click.testing import CliRunner
from database_edits import damage_row
from limited import ROOT
from samples import PETS, Run

from retriever import Retriever
from retriever.cli.main import main
from retriever.errors import Damaged


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
    damage_row(
        index, "UPDATE generation_files SET name = ? WHERE rowid = (SELECT min(rowid) FROM generation_files)", name
    )
    faiss_file(index).write_bytes(b"")
    with Retriever.open(index) as retriever:
        with pytest.raises(Damaged, match="not a plain file name"):
            retriever.collection.transform_files()
        retriever.verify(repair=True)
        assert retriever.verify().clean
        assert retriever.search("cats", mode="lexical")


@pytest.mark.parametrize("name", [*NAMES, "../../precious"])
def test_a_generation_that_lies_elsewhere(index: Path, outside: Path, run: Run, name: str) -> None:
    damage_row(index, "UPDATE generations SET folder = ?", name)
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
    damage_row(index, "UPDATE generations SET manifest_sha256 = ?", hashlib.sha256(path.read_bytes()).hexdigest())
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


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
FOREIGN_CODE = {
    "trigger": "CREATE TRIGGER harm AFTER DELETE ON documents BEGIN DELETE FROM documents; END",
    "extension": "CREATE TRIGGER harm AFTER DELETE ON documents BEGIN SELECT load_extension('/tmp/escaped'); END",
    "view": f"CREATE VIEW harm AS {ENDLESS}",
    "virtual table": "CREATE VIRTUAL TABLE harm USING fts5(text)",
    "table": "CREATE TABLE harm (id INTEGER REFERENCES documents(number) ON DELETE CASCADE)",
    "index": "CREATE INDEX harm ON documents(length(text))",
    "changed table": "ALTER TABLE documents ADD boss INTEGER DEFAULT 1 REFERENCES documents(number) ON DELETE CASCADE",
    "computed column": "ALTER TABLE vectors ADD harm AS (zeroblob(1000000000))",
    "changed trigger": "CREATE TRIGGER words_leave BEFORE DELETE ON documents BEGIN DELETE FROM documents; END",
}


@pytest.mark.parametrize("kind", FOREIGN_CODE)
def test_code_of_others_in_the_database(index: Path, run: Run, pets: Path, tmp_path: Path, kind: str) -> None:
    """Tables, triggers and views that retriever did not make are never used, and the documents can be saved."""
    with sqlite3.connect(index / "documents.sqlite") as connection:
        if kind == "changed trigger":
            connection.execute("DROP TRIGGER words_leave")
        connection.execute(FOREIGN_CODE[kind])
    connection.close()
    for args in (
        *(["search", "cats"], ["similar", "cat"], ["info"], ["card"], ["delete", "cat"], ["add", pets], ["rebuild"]),
        *(["index", pets], ["verify"], ["verify", "--repair"], ["export", tmp_path / "out"]),
    ):
        result = run(*args, "--index", index, code=1)
        assert "which retriever did not make" in result.output.replace("\n", " "), args
    run("salvage", tmp_path / "saved", "--index", index)
    with Retriever.open(tmp_path / "saved") as saved:
        assert len(saved) == len(PETS)


def test_a_view_in_place_of_a_table(index: Path, run: Run) -> None:
    with sqlite3.connect(index / "documents.sqlite") as connection:
        connection.execute("DROP TABLE quarantine")
        connection.execute(f"CREATE VIEW quarantine AS {ENDLESS}")
    connection.close()
    for args in (["info"], ["search", "cats"], ["verify"]):
        assert "'quarantine', which retriever did not make" in run(*args, "--index", index, code=1).output


def journal_that_names(victim: Path, database: Path) -> bytes:
    """Return a rollback journal of SQLite that belongs to a transaction over several files, led by `victim`."""
    magic, name = bytes.fromhex("d9d505f920a163d7"), os.fsencode(victim)
    header = magic + struct.pack(">IIIII", 0, 123, database.stat().st_size // 4096, 512, 4096)
    return header.ljust(512, b"\0") + struct.pack(">I", 0) + name + struct.pack(">II", len(name), sum(name)) + magic


def test_a_journal_that_names_a_file_to_delete(index: Path, outside: Path, run: Run, pets: Path) -> None:
    """SQLite deletes the file that such a journal names when it opens the database."""
    database = index / "documents.sqlite"
    journal = database.with_name("documents.sqlite-journal")
    content = journal_that_names(outside / "letter.txt", database)
    for args in (
        *(["search", "cats"], ["similar", "cat"], ["info"], ["card"], ["delete", "cat"], ["add", pets], ["rebuild"]),
        *(["index", pets], ["verify"], ["verify", "--repair"], ["export", outside.parent.parent / "out"]),
        *(["serve", "--port", "0"], ["mcp"], ["evaluate", pets]),
    ):
        journal.write_bytes(content)
        message = run(*args, "--index", index, code=1).output.replace("\n", " ")
        assert "names a file that SQLite would delete" in message, args
        assert (outside / "letter.txt").exists(), args
    database.write_bytes(b"")  # as a first run that was killed leaves it
    journal.write_bytes(content)
    assert run("index", pets, "--index", index, code=1).output
    assert (outside / "letter.txt").exists()
    journal.write_bytes(content[:100])  # SQLite ignores what has no such end


@pytest.mark.parametrize("name", ["", "manifest.json", "numbers.npy", "vectors.faiss", "transform.safetensors"])
def test_links_in_the_index(index: Path, tmp_path: Path, run: Run, name: str) -> None:
    """A link to the very same bytes elsewhere is refused, found by `verify`, and repaired."""
    (folder,) = index.glob("generations/*")
    path, elsewhere = folder / name, tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere, target_is_directory=not name)
    before = {path.name: path.read_bytes() for path in elsewhere.rglob("*")} if not name else elsewhere.read_bytes()
    for args in (["search", "cats"], ["search", "cats", "--mode", "dense"], ["verify"]):
        assert "is a symbolic link" in run(*args, "--index", index, code=1).output
    run("verify", "--repair", "--index", index)
    run("verify", "--index", index)
    assert run("search", "cats", "--index", index).output
    assert before == (
        {path.name: path.read_bytes() for path in elsewhere.rglob("*")} if not name else elsewhere.read_bytes()
    )


@pytest.mark.parametrize("name", ["generations/*/manifest.json", "generations/*/numbers.npy", "checked.json"])
def test_pipes_in_a_collection(index: Path, run: Run, name: str) -> None:
    """Opening a pipe for reading would never end."""
    path = next(index.glob(name), index / name)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert "is not a regular file" in run("search", "cats", "--index", index, code=1).output


def test_an_index_whose_manifest_leaves_files_out(index: Path, run: Run) -> None:
    """What the manifest does not name would not be hashed."""
    (path,) = index.glob("generations/*/manifest.json")
    manifest = json.loads(path.read_text())
    del manifest["files"]["numbers.npy"]
    path.write_text(json.dumps(manifest))
    damage_row(index, "UPDATE generations SET manifest_sha256 = ?", hashlib.sha256(path.read_bytes()).hexdigest())
    assert "is not a valid manifest" in run("search", "cats", "--index", index, code=1).output


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 5000, "", "nul", "\x00", '{"dimension": 1e999}'])
@pytest.mark.parametrize("place", ["settings SET value", "documents SET metadata"])
def test_json_made_to_do_harm(index: Path, text: str, place: str) -> None:
    damage_row(index, f"UPDATE {place} = ?", text)
    for args in (["search", "cats"], ["info"], ["verify"], ["search", "cats", "--where", "legs = 0"]):
        result = CliRunner().invoke(main, [*args, "--index", str(index)])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
