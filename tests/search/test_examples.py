"""Queries to begin with, cut from a collection's documents, and what its owner says of the collection."""

import json
import re
from pathlib import Path

import pytest
from samples import PETS, Run, write_jsonl

from retriever import Retriever
from retriever.errors import Misuse
from retriever.search.examples import MOST_WORDS, examples


def found(documents: list[dict[str, object]], folder: Path, encoder: str) -> list[str]:
    with Retriever.build(documents, folder, encoder=encoder, transform="none", precision="fp32") as retriever:
        first = examples(retriever.collection.store)
    with Retriever.open(folder) as retriever:
        assert examples(retriever.collection.store) == first
    return first


def test_questions_come_first_and_all_are_in_the_documents(tiny_bert: str, tmp_path: Path) -> None:
    documents: list[dict[str, object]] = [
        {"id": "1", "title": "The keeping of bees", "text": "Where do bees spend the winter? In a ball, in the hive."},
        {"id": "2", "title": "x_y.py", "text": "In the cold months a hive is silent, and the queen rests."},
        {"id": "3", "text": "<b>Never this</b> one. `code here now` is not asked for; {braces} neither."},
        {"id": "4", "title": "A field guide to owls", "text": "Owls see in the dark."},
    ]
    got = found(documents, tmp_path / "c", tiny_bert)
    assert got[0] == "Where do bees spend the winter?" and "A field guide to owls" in got and len(got) == 3
    everything = " ".join(f"{one.get('title', '')} {one['text']}" for one in documents)
    assert all(text in everything and not re.search(r"[<>`{}_]", text) for text in got)


def test_texts_without_titles_and_without_spaces(tiny_bert: str, tmp_path: Path) -> None:
    plain: list[dict[str, object]] = [
        {"id": str(n), "text": f"The {word} keeper writes about the fog, and then he {word} sleeps until the morning."}
        for n, word in enumerate(("first", "second", "third", "fourth"))
    ]
    got = found(plain, tmp_path / "plain", tiny_bert)
    assert len(got) == 3 and all(3 <= len(text.split()) <= MOST_WORDS for text in got)
    assert found([{"id": "1", "text": "我们在山里看见了一只老虎。它很大。"}], tmp_path / "zh", tiny_bert) == [
        "我们在山里看见了一只老虎"
    ]
    assert found([{"id": "1", "text": "..."}, {"id": "2", "text": "12345 67890"}], tmp_path / "none", tiny_bert) == []


def test_title_and_description_are_kept(run: Run, tiny_bert: str, tmp_path: Path) -> None:
    source, folder = write_jsonl(tmp_path / "pets.jsonl", PETS), tmp_path / "c"
    made = ("--encoder", tiny_bert, "--transform", "none", "--precision", "fp32")
    run("index", source, "-i", folder, *made, "--title", " Pets \n of ours ", "--description", "Cats.\nDogs.")

    def told() -> tuple[str | None, str | None]:
        info = json.loads(run("info", "-i", folder, "--json").output)
        return info["title"], info["description"]

    assert told() == ("Pets of ours", "Cats.\nDogs.")
    run("index", source, "-i", folder)  # a later run without them keeps them
    run("rebuild", "-i", folder)
    assert told() == ("Pets of ours", "Cats.\nDogs.")
    assert "Pets of ours" in run("info", "-i", folder).output
    run("copy", folder, tmp_path / "copy")
    assert json.loads(run("info", "-i", tmp_path / "copy", "--json").output)["title"] == "Pets of ours"
    assert run("verify", "-i", folder).exit_code == 0
    run("info", "-i", folder, "--title", "Zoo", "--description", "")
    assert told() == ("Zoo", None)


def test_a_bad_title_is_refused_before_anything_is_stored(run: Run, tiny_bert: str, tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "pets.jsonl", PETS)
    result = run("index", source, "-i", tmp_path / "c", "--encoder", tiny_bert, "--title", "x" * 201, code=2)
    assert "--title has 201 characters" in result.output
    assert not (tmp_path / "c").exists()
    with (
        Retriever.build(PETS, tmp_path / "d", encoder=tiny_bert, transform="none", precision="fp32") as retriever,
        pytest.raises(Misuse, match="`title` is a text, not int"),
    ):
        retriever.describe(title=3)  # type: ignore[arg-type]
