"""The collection that a command uses if the user names none, and `retriever list`."""

import json
import os
from pathlib import Path

import pytest
from samples import PETS, Run, write_jsonl

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETRIEVER_INDEX", raising=False)


def made(run: Run, tiny_bert: str, name: str) -> str:
    """Index a file of this name. Return the output."""
    write_jsonl(Path(name), PETS)
    return run("index", name, "--encoder", tiny_bert, "--transform", "none").output


def test_a_collection_is_named_after_its_source(run: Run, tiny_bert: str) -> None:
    assert "5 in collections/pets (" in made(run, tiny_bert, "pets.jsonl")
    Path("notes").mkdir()
    Path("notes/a.txt").write_text("Owls hunt at night.")
    assert "1 in collections/notes (" in run("index", "notes/", "--encoder", tiny_bert).output
    os.chdir("notes")
    assert "1 in collections/notes (" in run("index", ".", "--encoder", tiny_bert).output
    assert Path("collections/notes/documents.sqlite").is_file()


def test_sources_of_the_same_name_do_not_share_a_collection(run: Run, tiny_bert: str) -> None:
    for parent in ("pa", "pb"):
        Path(parent, "docs").mkdir(parents=True)
        Path(parent, "docs", "a.txt").write_text(f"A text of {parent}.")
    run("index", "pa/docs", "--encoder", tiny_bert)
    output = " ".join(run("index", "pb/docs", code=2).output.split())
    assert "collections/docs was made from" in output and "pa/docs. To add these documents to it, give -i" in output
    assert "1 unchanged" in run("index", "pa/docs").output


def test_without_a_name_the_last_changed_collection_is_read(run: Run, tiny_bert: str) -> None:
    made(run, tiny_bert, "pets.jsonl")
    alone = run("search", "cats", "--json", "-k", 1)
    assert json.loads(alone.stdout) and "Using" not in alone.output
    made(run, tiny_bert, "others.jsonl")
    both = run("info", "--json")
    assert json.loads(both.stdout)["folder"] == "collections/others"
    assert "Using collections/others, the last of 2 collections that was changed." in both.stderr
    run("add", "pets.jsonl", "-i", "collections/pets")
    run("search", "cats", "-i", "collections/others")  # a search is no change
    os.utime("collections/pets/documents.sqlite", (2e9, 2e9))
    assert json.loads(run("info", "--json").stdout)["folder"] == "collections/pets"


def test_several_collections_are_never_changed_by_a_guess(run: Run, tiny_bert: str) -> None:
    made(run, tiny_bert, "pets.jsonl")
    assert "Deleted 1 document" in run("delete", "cat").output
    made(run, tiny_bert, "others.jsonl")
    for command in (("delete", "dog"), ("add", "pets.jsonl"), ("rebuild",)):
        said = run(*command, code=2).output
        assert "say which collection with -i: collections/others, collections/pets." in said, command
    assert json.loads(run("info", "-i", "collections/others", "--json").output)["documents"] == 5


def test_a_collection_that_was_named_counts_first(
    run: Run, tiny_bert: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made(run, tiny_bert, "pets.jsonl")
    run("index", "pets.jsonl", "-i", "far/away", "--encoder", tiny_bert, "--transform", "none")
    assert json.loads(run("info", "--json", "--index", "far/away").output)["folder"] == "far/away"
    monkeypatch.setenv("RETRIEVER_INDEX", str(tmp_path / "far" / "away"))
    assert json.loads(run("info", "--json").output)["folder"] == str(tmp_path / "far" / "away")


@pytest.mark.parametrize(
    ("sources", "said"), [(["-"], "standard input"), (["a.txt", "b.txt"], "several sources")], ids=str
)
def test_what_has_no_name_is_asked_for_one(run: Run, sources: list[str], said: str) -> None:
    output = " ".join(run("index", *sources, code=2, input="x").output.split())
    assert f"name the collection of {said} with -i, e.g. -i collections/notes." in output


@pytest.mark.parametrize("command", ["search", "info", "verify", "rebuild", "card", "serve", "mcp"])
def test_no_collection_at_all(run: Run, command: str) -> None:
    output = " ".join(run(command, code=2).output.split())
    assert "there is no collection in the folder collections. Make one with: retriever index SOURCE." in output


def test_list(run: Run, tiny_bert: str) -> None:
    assert "There is no collection in collections." in run("list").output
    made(run, tiny_bert, "pets.jsonl")
    Path("collections/broken").mkdir()
    Path("collections/broken/documents.sqlite").write_text("no database")
    result = run("list")
    (line,) = [line for line in result.stdout.splitlines() if "collections/pets" in line]
    assert line.split()[1] == "5"
    assert "cannot be opened: collections/broken/documents.sqlite is not a readable SQLite database" in result.stderr
    broken, pets = json.loads(run("list", "--json").stdout)
    assert "problem" in broken and (pets["folder"], pets["documents"]) == ("collections/pets", 5)
    assert json.loads(run("list", ".", "--json").stdout) == []


def test_list_shows_titles(run: Run, tiny_bert: str) -> None:
    """Below the folder, which stays in one piece, so that it can be copied."""
    made(run, tiny_bert, "pets.jsonl")
    run("info", "--title", "What pets do" + ", and why" * 10, "--description", "Five of them.")
    made(run, tiny_bert, "others.jsonl")
    lines = run("list").stdout.splitlines()
    (number,) = [number for number, line in enumerate(lines) if "collections/pets" in line]
    assert lines[number + 1].startswith("What pets do, and why") and sum("…" in line for line in lines) == 1
    titles = [one["title"] for one in json.loads(run("list", "--json").stdout)]
    assert titles == [None, "What pets do" + ", and why" * 10]


def test_a_collection_without_its_flag(run: Run, tiny_bert: str) -> None:
    made(run, tiny_bert, "pets.jsonl")
    assert "Name the collection with -i." in run("info", "collections/pets", code=2).output
