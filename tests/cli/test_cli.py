"""The command line as a user meets it: the whole path, and what bad input gets."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from samples import PETS, Run, make_bert, make_cross_encoder, write_jsonl

import retriever.cli.main as cli
from indexes.faiss import auto, types
from retriever.cli.display.errors import with_flags


@pytest.fixture
def collection(run: Run, pets: Path, tmp_path: Path, tiny_bert: str) -> Path:
    run("index", pets, "--index", tmp_path / "c", "--encoder", tiny_bert, "--transform", "center")
    return tmp_path / "c"


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that call it, those of groups within groups too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def test_every_command_has_help(run: Run) -> None:
    for path, command in commands(cli.main):
        name = " ".join(path)
        assert command.help, name
        assert "Usage:" in run(*path, "--help").output
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, f"{name} {option.name}"


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["index", "--help"],
        ["search", "--help"],
        ["plan", "--help"],
        ["bench", "sts", "--help"],
        ["--version"],
    ],
)
def test_help_is_instant(args: list[str]) -> None:
    code = (
        "import sys; from retriever.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'faiss', 'numpy', 'sqlite_utils', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code, *args], check=True, capture_output=True)


def test_opening_a_collection_needs_no_torch(collection: Path) -> None:
    code = (
        "import sys\n"
        "from retriever import Retriever\n"
        "Retriever.open(sys.argv[1]).info()\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(collection)], check=True)


def test_from_a_file_to_hits(run: Run, collection: Path) -> None:
    lines = run("search", "Cats purr when they are content", "--index", collection, "--json", "-k", 3).output
    hits = [json.loads(line) for line in lines.splitlines()]
    assert [hit["rank"] for hit in hits] == [1, 2, 3]
    assert hits[0]["score"] >= hits[1]["score"] >= hits[2]["score"]
    assert {"id", "title", "passage", "metadata", "highlight", "query"} <= hits[0].keys()
    assert "metadata" not in hits[0]["metadata"]

    shown = run("search", "swim in a bowl", "--index", collection).output
    assert all(pet["id"] in shown for pet in PETS)
    assert "Goldfish swim round and round in a bowl." in shown


def test_add_delete_info_rebuild(run: Run, collection: Path, tmp_path: Path) -> None:
    more = write_jsonl(tmp_path / "more.jsonl", [{"id": "whale", "text": "Whales sing in the deep sea."}])
    assert "1 new document" in run("add", more, "--index", collection).output
    found = run("search", "Whales sing in the deep sea.", "--index", collection, "--json", "-k", 1).output
    assert json.loads(found)["id"] == "whale"
    assert "Deleted 1 document; 5 left" in run("delete", "whale", "--index", collection).output
    assert "whale" not in run("search", "Whales sing", "--index", collection, "--json", "-k", 6).stdout
    assert "not in the collection: whale" in run("delete", "whale", "--index", collection, code=1).output

    run("rebuild", "--transform", "whiten:dimension=4", "--index-type", "hnsw", "--index", collection)
    info = json.loads(run("info", "--index", collection, "--json").output)
    assert (info["transform"]["family"], info["transform"]["dimension_out"]) == ("whiten", 4)
    assert (info["index"]["factory"], info["index"]["vectors"]) == ("HNSW32", 5)
    assert info["index"]["not_yet_in_it"] == info["index"]["no_longer_used"] == 0
    assert "whiten" in run("info", "--index", collection).output


def test_updates_embed_only_what_is_new(run: Run, collection: Path, pets: Path) -> None:
    output = run("index", pets, "--index", collection, "-v").output
    assert "No new documents, 5 unchanged; 5 in " in output and "0 embedded, 0 reused" in output
    records = [dict(pet) for pet in PETS[1:]]
    records[0]["text"] = "Dogs wag their tails."
    records.append({"id": "kitten", "title": "Cats", "text": PETS[0]["text"]})
    write_jsonl(pets, records)
    output = run("index", pets, "--index", collection, "-v").output
    assert "1 new document, 1 changed, 3 unchanged; 6 in " in output and "1 embedded, 1 reused" in output
    assert json.loads(run("info", "--index", collection, "--json").output)["documents"] == 6
    assert "1 pruned" in run("index", pets, "--index", collection, "--prune").output
    assert json.loads(run("info", "--index", collection, "--json").output)["documents"] == 5


def test_stdin(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    text = "".join(json.dumps(pet) + "\n" for pet in PETS)
    run("index", "-", "--index", tmp_path / "c", "--encoder", tiny_bert, "--transform", "none", input=text)
    assert json.loads(run("info", "--index", tmp_path / "c", "--json").output)["documents"] == 5


def test_query_files_and_trec_runs(run: Run, collection: Path, tmp_path: Path) -> None:
    queries = write_jsonl(tmp_path / "q.jsonl", [{"_id": "q1", "text": "cats"}, {"_id": "q2", "text": "dogs"}])
    run("search", "--queries", queries, "--trec", tmp_path / "run.txt", "-k", 2, "--index", collection)
    rows = [line.split() for line in (tmp_path / "run.txt").read_text().splitlines()]
    assert [(row[0], row[1], row[3], row[5]) for row in rows] == [
        (q, "Q0", r, "retriever") for q in ("q1", "q2") for r in ("1", "2")
    ]
    plain = tmp_path / "q.txt"
    plain.write_text("cats\ndogs\n")
    lines = run("search", "--queries", plain, "--json", "-k", 1, "--index", collection).output.splitlines()
    assert [json.loads(line)["query_id"] for line in lines] == ["1", "2"]
    assert [json.loads(line)["id"] for line in lines] == [rows[0][2], rows[2][2]]


def test_min_score_and_more_than_there_are(run: Run, collection: Path) -> None:
    assert "only 5 documents" in run("search", "cats", "--index", collection, "-k", 100).output
    assert "Nothing found" in run("search", "cats", "--index", collection, "--min-score", 100).output


def test_only_a_number_of_hits_that_was_asked_for_is_missed(run: Run, collection: Path) -> None:
    assert "has only" not in run("search", "cats", "--index", collection).output


def test_queries_from_standard_input(run: Run, collection: Path) -> None:
    for given in ("cats\ndogs\n", '{"text": "cats"}\n{"text": "dogs"}\n'):
        output = run("search", "--queries", "-", "--json", "-k", 1, "--index", collection, input=given).output
        assert [json.loads(line)["query_id"] for line in output.splitlines()] == ["1", "2"]


def test_a_run_that_fails_leaves_the_old_run_alone(run: Run, collection: Path, tmp_path: Path) -> None:
    target = tmp_path / "runs" / "run.txt"
    target.parent.mkdir()
    target.write_text("the old run\n")
    spaced = write_jsonl(tmp_path / "q.jsonl", [{"_id": "q1", "text": "cats"}, {"_id": "q 2", "text": "dogs"}])
    where = ("--trec", target, "--index", collection)
    assert "has white space" in run("search", "--queries", spaced, *where, code=2).output
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    assert "has no queries" in run("search", "--queries", empty, *where, code=2).output
    assert "standard input has no queries" in run("search", "--queries", "-", *where, code=2, input="").output
    assert target.read_text() == "the old run\n"
    good = write_jsonl(tmp_path / "q.jsonl", [{"_id": "q1", "text": "cats"}])
    run("search", "--queries", good, *where)
    assert target.read_text().startswith("q1 Q0 ")
    assert [path.name for path in target.parent.iterdir()] == ["run.txt"]
    output = run("search", "--queries", good, "--trec", tmp_path / "no" / "run", "--index", collection, code=2).output
    assert "there is no folder" in output


@pytest.mark.parametrize(("name", "content"), [("q.csv", "body\nx\n"), ("q.jsonl", '{"body": "x"}\n')])
def test_query_files_are_told_the_keys_understood(
    run: Run, collection: Path, tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    code = 2 if name == "q.csv" else 1
    output = run("search", "--queries", tmp_path / name, "--index", collection, code=code).output
    assert "the known keys are text, title, _id, id, ID, Id and key" in output and "--text-key" not in output


def test_names_mean_nothing_to_the_terminal(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    source = write_jsonl(
        tmp_path / "a\x1b[2J.jsonl", [{"id": "e\x1b[2J\nf", "text": "[/red] x."}, {"id": "b", "text": ""}]
    )
    index = tmp_path / "ix[/] :cat:"
    output = run("index", source, "--index", index, "--encoder", tiny_bert, "--transform", "none").output
    assert f"Search: retriever search -i '{index}'" in output
    output += run("search", "x", "--index", index).output + run("info", "--index", index).output
    output += run("delete", "g\x1b", "--index", index, code=1).output
    queries = write_jsonl(tmp_path / "q.jsonl", [{"id": "q\x1b", "text": "[/] what\x1b[2J"}])
    output += run("search", "--queries", queries, "--index", index).output
    trec = ("--trec", tmp_path / "r[bold]", "--min-score", 100)
    output += run("search", "--queries", queries, *trec, "--index", index).output
    run("verify", "--index", index)
    assert "\x1b" not in output
    assert (
        "not in the collection: g\ufffd" in output and "q\ufffd: [/] what\ufffd[2J" in output and "r[bold]." in output
    )
    assert "[/red] x." in output and "ix[/] :cat:" in output


def test_a_folder_with_an_unrelated_table(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "prices.csv").write_text("item,price\nx,1\n")
    (tmp_path / "docs" / "zoo.txt").write_text("A note.")
    where = ("--index", tmp_path / "c", "--encoder", tiny_bert, "--transform", "none")
    output = run("index", tmp_path / "docs", *where, "--on-error", "stop", code=1).output
    assert "prices.csv: no column 'text'" in output and not (tmp_path / "c").exists()
    output = run("index", tmp_path / "docs", *where).output
    assert "1 new document" in output and "skipped prices.csv: no column 'text'" in output
    assert "see --text-key" in output and "Not read: 1 file, named as skipped." in output
    assert output.count("prices.csv") == 1, "no file is named twice"
    (tmp_path / "run.py").write_text("pass")
    assert "give --include '*.py'" in run("index", tmp_path / "run.py", *where, code=2).output


def test_what_repair_leaves_is_a_failure(run: Run, collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from indexes.folder.verify import Report
    from retriever import Retriever

    assert "no damage found" in run("verify", "--repair", "--index", collection).output
    stubborn = Report(problems=["a row is lost"], left=["a row is lost"])
    monkeypatch.setattr(Retriever, "verify", lambda self, repair: stubborn)
    output = run("verify", "--repair", "--index", collection, code=1).output
    assert "Not repaired:" in output and "1 problem could not be repaired" in output


@pytest.mark.heavy
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("args", [["--help"], ["index", "--help"], ["search", "cats"], ["search", "cats", "--json"]])
def test_output_that_cannot_be_written(collection: Path, args: list[str]) -> None:
    environment = {**os.environ, "RETRIEVER_INDEX": str(collection), "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "retriever", *args], stdout=full, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert done.returncode == 1, done.stderr
    assert "the disk is full, so the output could not be written" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert "to continue" not in done.stderr


def test_a_reader_that_leaves_is_no_error(collection: Path) -> None:
    command = [sys.executable, "-m", "retriever", "search", "cats", "--json", "--index", str(collection)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["search", "   "], 2, "the query is empty"),
        (["search", "cats", "-k", "0"], 2, "0 is not in the range x>=1"),
        (["search", "cats", "--trec", "x"], 2, "--trec needs --queries"),
        (["search", "cats", "--encoder", "/no/such/model"], 1, "no model folder '/no/such/model'"),
        (["index", "/no/such/file.jsonl"], 2, "/no/such/file.jsonl"),
        (["rebuild", "--transform", "magic"], 2, "magic"),
        (["rebuild", "--transform", "whiten:colour=red"], 2, "colour"),
        (["rebuild", "--index-type", "Nonsense42"], 2, "Nonsense42"),
        (["export", "/dev/null"], 2, "already exists"),
        (["export", "rows.csv"], 2, "would be a Parquet file; give it a name that ends in .parquet"),
        (["search", "cats", "--encoder", ""], 2, "is empty"),
        (["index", "pyproject.toml", "--encoder", " "], 2, "is empty"),
        (["search", "cats", "--min-score", "nan"], 2, "must be a number from 0 to 100, not nan"),
        (["search", "cats", "--min-score", "500"], 2, "must be a number from 0 to 100, not 500"),
        (["search", "--json"], 2, "the prompt cannot print JSON"),
        (["search", "cats", "--encoder", "/no/such/model"], 1, "if it has moved, give --encoder DIR"),
    ],
)
def test_misuse(run: Run, collection: Path, args: list[str], code: int, message: str) -> None:
    result = run(*args, "--index", collection, code=code)
    assert message in result.output
    assert "Traceback" not in result.output
    assert "no damage found" in run("verify", "--index", collection).output


def test_a_collection_is_not_copied_to_itself(run: Run, collection: Path) -> None:
    output = run("copy", collection, collection, code=2).output
    assert f"{collection} cannot be copied to itself; name a new target." in output.replace("\n", " ")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ('use `device="cpu"`.', "use --device cpu."),
        ("`batch_tokens` must be at least 1.", "--batch-tokens must be at least 1."),
        ("`recall=0.5` is low", "--recall 0.5 is low"),
        ("see `Keys(text=...)`", "see --text-key"),
        ("`batch_size` is no option of index", "`batch_size` is no option of index"),
        ('device="cpu" as a user wrote it', 'device="cpu" as a user wrote it'),
    ],
)
def test_arguments_that_the_library_names_are_shown_as_flags(message: str, shown: str) -> None:
    assert with_flags(message, cli.main.commands["index"]) == shown


@pytest.mark.parametrize("command", [["search", "x"], ["info"], ["verify"], ["delete", "x"], ["rebuild"]])
def test_a_folder_that_is_no_collection(run: Run, tmp_path: Path, command: list[str]) -> None:
    assert "does not exist" in run(*command, "--index", tmp_path / "nowhere", code=2).output
    assert "is not a collection" in run(*command, "--index", tmp_path, code=2).output
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_with_other_files_is_left_alone(run: Run, tmp_path: Path, pets: Path, tiny_bert: str) -> None:
    output = run("index", pets, "--index", tmp_path, "--encoder", tiny_bert, code=2).output
    assert "holds other files" in output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pets.jsonl"]


def test_an_empty_corpus_makes_no_folder(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text('\n{"id": "a", "text": " "}\n')
    output = run("index", empty, "--index", tmp_path / "c", "--encoder", tiny_bert, code=2).output
    assert "no document in the source" in output and "empty.jsonl:2" in output
    assert not (tmp_path / "c").exists()


def test_bad_lines_are_skipped_and_listed(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    source = tmp_path / "mixed.jsonl"
    source.write_bytes(
        b'{"id": "a", "text": "First."}\n{"id": "b", "text": \n{"id": "c", "text": "caf\xe9"}\n'
        b'{"id": "d", "text": ""}\n{"id": "e", "text": "Second."}\n{"id": "a", "text": "Another first."}\n'
    )
    output = run("index", source, "--index", tmp_path / "c", "--encoder", tiny_bert).output
    assert "2 new documents, 3 skipped" in output
    for line in ("mixed.jsonl:2", "mixed.jsonl:3", "mixed.jsonl:4"):
        assert line in output
    assert "1 document had the id of an earlier document and replaced it: " in output
    assert "Another first." in run("search", "x", "--index", tmp_path / "c").output


def test_stop_keeps_what_came_before(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    source = tmp_path / "mixed.jsonl"
    source.write_text('{"id": "a", "text": "First."}\n{broken\n{"id": "e", "text": "Second."}\n')
    where = ("--index", tmp_path / "c", "--encoder", tiny_bert)
    assert "mixed.jsonl:2" in run("index", source, *where, "--on-error", "stop", code=1).output
    source.write_text(source.read_text().replace("{broken", '{"id": "b", "text": "Mended."}'))
    output = run("index", source, *where, "--on-error", "stop").output
    assert "2 new documents, 1 unchanged" in output


def test_a_wrong_encoder_is_refused_by_name(run: Run, collection: Path, tiny_bert: str, other_bert: str) -> None:
    for args in (
        ["search", "cats"],
        ["add", collection.parent / "pets.jsonl"],
        ["index", collection.parent / "pets.jsonl"],
    ):
        output = run(*args, "--index", collection, "--encoder", other_bert, code=1).output
        assert tiny_bert in output and other_bert in output and "weights" in output
    output = run("index", collection.parent / "pets.jsonl", "--index", collection, "--pooling", "cls", code=1).output
    assert "pooling cls instead of mean" in output


def test_an_encoder_that_moved_is_welcome(run: Run, collection: Path, tiny_bert: str, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(tiny_bert, tmp_path / "moved")
    before = run("search", "cats", "--index", collection, "--json").output
    assert run("search", "cats", "--index", collection, "--json", "--encoder", tmp_path / "moved").output == before


def test_a_newer_collection_is_refused(run: Run, collection: Path) -> None:
    with contextlib.closing(sqlite3.connect(collection / "documents.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 999")
    assert "newer version" in run("search", "x", "--index", collection, code=2).output


@pytest.mark.parametrize("command", [["search", "x"], ["info"], ["verify"], ["index", "PETS"]])
def test_a_collection_of_a_pre_release_is_refused(run: Run, tmp_path: Path, pets: Path, command: list[str]) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    with contextlib.closing(sqlite3.connect(folder / "documents.sqlite")) as connection:
        connection.execute("CREATE TABLE _sqlite_migrations (id INTEGER PRIMARY KEY, migration_set, name, applied_at)")
        connection.execute("CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        connection.commit()
    said = run(*[pets if word == "PETS" else word for word in command], "--index", folder, code=2).output
    assert "made by a pre-release of retriever; index its source again: retriever index SOURCE" in said.replace(
        "\n", " "
    )


def test_a_database_that_is_none(run: Run, collection: Path) -> None:
    for extra in collection.glob("documents.sqlite-*"):
        extra.unlink()
    (collection / "documents.sqlite").write_bytes(b"not a database at all" * 1000)
    output = run("search", "x", "--index", collection, code=1).output
    assert "not a readable SQLite database" in output


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="a small disk can only be mounted by root")
def test_a_full_disk_is_named_whatever_is_done_on_it(run: Run, collection: Path, tmp_path: Path, pets: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        shutil.copytree(collection, disk / "c", ignore=shutil.ignore_patterns("*-shm", "*-wal"))
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(1024))
        for command in (["search", "cats"], ["info"], ["verify"], ["delete", "cat"], ["rebuild"], ["add", pets]):
            output = run(*command, "--index", disk / "c", code=1).output
            assert "the disk is full" in output and "ake room" in output, output
            assert "salvage" not in output and "system's log" not in output, output
        (disk / "filler").unlink()
        assert "no damage found" in run("verify", "--index", disk / "c").output
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_verify_of_a_broken_database_names_what_helps(run: Run, collection: Path) -> None:
    path = collection / "documents.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'start', 'begin') WHERE name = 'passages'")
        connection.commit()
    for options in ([], ["--repair"]):
        output = run("verify", *options, "--index", collection, code=1).output
        assert f"retriever salvage NEW --index {collection}" in output.replace("\n", "")
        assert "repair it with" not in output


@pytest.mark.heavy
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="a small disk can only be mounted by root")
def test_a_full_disk_loses_nothing(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        records = [{"id": str(i), "text": f"Sentence number {i} about things. " * 3} for i in range(3000)]
        source = write_jsonl(tmp_path / "many.jsonl", records)
        where = ("--index", disk / "c", "--encoder", tiny_bert, "--transform", "none")
        output = run("index", source, *where, code=1).output
        assert "the disk is full" in output and "Traceback" not in output
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        output = run("index", source, *where).output
        assert json.loads(run("info", "--index", disk / "c", "--json").output)["documents"] == 3000
        assert "no damage found" in run("verify", "--index", disk / "c").output
        with contextlib.suppress(OSError), (disk / "filling").open("wb", buffering=0) as filling:
            while filling.write(bytes(4096)) == 4096:
                pass
        for command in (["info"], ["search", "things"], ["delete", "7"], ["rebuild"], ["verify"]):
            assert "the disk is full" in run(*command, "--index", disk / "c", code=1).output, command
        (disk / "filling").unlink()
        assert "Deleted 1 document" in run("delete", "7", "--index", disk / "c").output
        assert "no damage found" in run("verify", "--index", disk / "c").output
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_two_writers(run: Run, collection: Path, pets: Path) -> None:
    from indexes.folder.collection import Collection

    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from indexes.folder.collection import Collection\n"
            "with Collection.open(Path(sys.argv[1])).writing(): print('held', flush=True); sys.stdin.read()",
            str(collection),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout and holder.stdout.readline() == b"held\n"
        output = run("index", pets, "--index", collection, "--prune", code=1).output
        assert f"process {holder.pid}" in output
        assert "cat" in run("search", "cats", "--index", collection).output, "readers are not in the way"
    finally:
        holder.kill()
        holder.wait()
    with Collection.open(collection).writing():
        pass


def test_interactive(run: Run, collection: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    lines = [
        ":more", ":k 2", "Goldfish swim", ":more", ":show 1", ":similar 1", ":similar 99", ":compare Goldfish swim",
        ":k zero", ":nonsense", ":help", "", ":quit",
    ]  # fmt: skip
    output = run("search", "--index", collection, input="\n".join(lines) + "\n").output
    assert "There is no query yet" in output
    assert "2 hits from now on" in output
    assert "Give the number of a hit, from 1 to 2" in output
    assert "raw encoder" in output and "moved" in output
    assert "takes a number of hits" in output
    assert "There is no command :nonsense" in output
    assert "Ctrl-D" in output


@pytest.mark.heavy
def test_a_query_that_is_no_utf8_does_not_end_the_session(collection: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "retriever", "search", "-k", "1", "--index", str(collection)],
        input=b"caf\xe9\n:k \xff\nGoldfish swim round and round in a bowl.\n",
        capture_output=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONUTF8": "1"},
    )
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
    assert b"not valid UTF-8" in done.stderr
    assert b"fish" in done.stdout


def test_an_index_type_that_cannot_be_trained_says_so(run: Run, pets: Path, tmp_path: Path, tiny_bert: str) -> None:
    where = ("--index", tmp_path / "c")
    output = run("index", pets, *where, "--encoder", tiny_bert, "--index-type", "IVF64,Flat").output
    assert "IVF64,Flat cannot be trained on 5 vectors; the index is exact (Flat) instead" in output
    assert "cannot be trained" in " ".join(run("info", *where).output.split())
    assert "cat" in run("search", "cats", *where).output


def test_what_is_chosen_later_is_said_in_one_line(run: Run, pets: Path, tmp_path: Path, tiny_bert: str) -> None:
    untuned = make_bert(tmp_path / "untuned", pooling=False)
    shown = run("index", pets, "--index", tmp_path / "c", "--encoder", untuned).output
    assert "Nothing is chosen yet: the choice needs 100 passages, and so far the collection has 5." in shown
    assert "chosen yet" not in run("index", pets, "--index", tmp_path / "d", "--encoder", tiny_bert).output


def test_a_chosen_index_that_is_not_exact_is_named(
    run: Run, tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(types, "SCANNED_EXACTLY", 0)
    monkeypatch.setattr(types, "candidates", lambda count, dimension: ["SQ8"])
    monkeypatch.setattr(auto, "candidates", types.candidates)
    source = write_jsonl(tmp_path / "a.jsonl", [{"id": str(i), "text": f"text {i} of many"} for i in range(120)])
    where = ("--index", tmp_path / "c", "--encoder", tiny_bert, "--transform", "none")
    assert "Chosen for this text: index SQ8 with recall@10 " in run("index", source, *where).output
    assert "Chosen for this text" not in run("index", source, *where).output


def found(output: str) -> list[str]:
    return [json.loads(line)["id"] for line in output.splitlines()]


def test_search_by_words_by_both_and_with_filters(run: Run, collection: Path) -> None:
    def search(*args: object) -> list[str]:
        return found(run("search", *args, "--index", collection, "--json").stdout)

    assert search("gold fish bowls", "--mode", "lexical") == ["fish"], "by stem"
    assert search('"bowl" NEAR(* -', "--mode", "lexical") == ["fish"]
    assert len(search("bowl", "--mode", "hybrid")) == len(PETS)
    assert search("bowl", "--where", "legs = 0") == ["fish"]
    assert search("bowl", "--where", "lang = en", "--mode", "hybrid") == ["bird"]
    assert search("bowl", "--where", "lang = en", "--where", "legs = 0") == []


@pytest.mark.parametrize(
    ("filter_", "message"),
    [
        ("legs => 0", "column 6: expected = != < <= > >= or in, found =>"),
        ("leg = 0", "did you mean 'legs'? The fields are: 'lang', 'legs'."),
        ("legs in (1, 2", "column"),
        ("", "column 1: expected the name of a metadata field"),
    ],
)
def test_a_bad_filter_says_where_and_what(run: Run, collection: Path, filter_: str, message: str) -> None:
    output = run("search", "cat", "--index", collection, "--where", filter_, code=2).output
    assert message in output


def test_a_search_looks_for_both_and_explains(run: Run, collection: Path) -> None:
    output = run("search", "bowl", "--index", collection, "-k", 1, "--explain").output
    assert "fish" in output and "by meaning" in output and "by words" in output and "“bowl”" in output
    (hit,) = map(
        json.loads, run("search", "bowl", "--index", collection, "-k", 1, "--json", "--explain").stdout.splitlines()
    )
    assert 0 < hit["relevance"] <= 100 and hit["explanation"]["words_rank"] == 1
    assert hit["explanation"]["matched"] == ["bowl"]
    plain = run("search", "bowl", "--index", collection, "-k", 1, "--json").stdout
    assert json.loads(plain)["explanation"] is None


def test_a_misspelt_word_gets_a_suggestion(run: Run, collection: Path) -> None:
    output = run("search", "bwol", "--index", collection, "--mode", "lexical").output
    assert "Nothing found" in output and "Did you mean: bowl" in output
    assert "by meaning alone" in run("search", "bwol", "--index", collection).output
    assert "The query has no words" in run("search", "!?", "--index", collection).output


def test_similar(run: Run, collection: Path) -> None:
    near = found(run("similar", "cat", "--index", collection, "--json", "-k", 3).output)
    assert len(near) == 3 and "cat" not in near
    assert "Dogs" in run("similar", "cat", "--index", collection).output
    assert found(run("similar", "cat", "--index", collection, "--json", "--where", "lang = en").output) == ["bird"]
    assert "there is no document 'unicorn'" in run("similar", "unicorn", "--index", collection, code=2).output


def test_rerank(run: Run, collection: Path, tmp_path: Path) -> None:
    judge = make_cross_encoder(tmp_path / "judge")
    lines = run("search", "cat", "--index", collection, "--rerank", judge, "--json").output.splitlines()
    scores = [json.loads(line)["score"] for line in lines]
    assert len(scores) == len(PETS) and scores == sorted(scores, reverse=True)
    assert "cannot be downloaded" in run("search", "cat", "--index", collection, "--rerank", "no/such", code=1).output
    plain = run("search", "cat", "--index", collection, "--rerank", tmp_path, code=1).output
    assert "no config.json" in plain


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_a_file_of_queries_in_every_mode(run: Run, collection: Path, tmp_path: Path, mode: str) -> None:
    queries = write_jsonl(tmp_path / "q.jsonl", [{"_id": "q1", "text": "cats purr"}, {"_id": "q2", "text": "sticks"}])
    run("search", "--queries", queries, "--trec", tmp_path / "run", "--index", collection, "--mode", mode)
    rows = [line.split() for line in (tmp_path / "run").read_text().splitlines()]
    assert next(row[2] for row in rows if row[0] == "q1") == "cat"
    assert next(row[2] for row in rows if row[0] == "q2") == "dog"


def test_a_bad_filter_is_refused_before_the_prompt(run: Run, collection: Path) -> None:
    assert "column" in run("search", "--index", collection, "--where", "legs", code=2, input="cat\n").output


def test_a_run_file_keeps_the_order_of_small_scores(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    """Words that most documents hold score some millionths; nine decimals could not tell them apart."""
    texts = [{"id": f"d{i}", "text": "heat flow " * (1 + i % 7) + f"w{i} " * (i % 11)} for i in range(60)]
    source = write_jsonl(tmp_path / "t.jsonl", texts)
    run("index", source, "--index", tmp_path / "c", "--encoder", tiny_bert, "--transform", "none")
    queries = write_jsonl(tmp_path / "q.jsonl", [{"_id": "q", "text": "heat flow"}])
    run(
        "search",
        "--queries",
        queries,
        "--trec",
        tmp_path / "r",
        "--index",
        tmp_path / "c",
        "--mode",
        "lexical",
        "-k",
        60,
    )
    scores = [float(line.split()[4]) for line in (tmp_path / "r").read_text().splitlines()]
    expected = found_scores(
        run("search", "heat flow", "--index", tmp_path / "c", "--mode", "lexical", "--json", "-k", 60).output
    )
    assert scores == expected and len(set(scores)) > 20


def found_scores(output: str) -> list[float]:
    return [json.loads(line)["score"] for line in output.splitlines()]
