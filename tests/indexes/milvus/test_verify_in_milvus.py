"""Rows that were changed behind the collection's back: `verify` finds them, and `--repair` mends or deletes."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from samples import Run

from indexes.milvus.address import Address
from indexes.milvus.client import Client, Row
from retriever import Document, Retriever
from retriever.errors import Damaged

PLAIN: dict[str, Any] = {"transform": "center", "precision": "fp32"}
DOCUMENTS = [Document(f"d{n}", f"text number {n}", f"T{n}", {"n": n}) for n in range(12)]
LONG = [*DOCUMENTS, Document("long", "A story of the sea. " * 4000, metadata={"n": 99})]
TABLES = {"documents": "number", "vectors": "number", "000001": "key", "settings": "key"}


@contextmanager
def client_of(place: str) -> Iterator[Client]:
    client = Client(Address.parse(place))
    try:
        yield client
    finally:
        client.close()


def change(place: str, table: str, expression: str, changed: Callable[[Row], Row | None]) -> None:
    """Change rows as anybody could who has a client, or delete those that it gives None for."""
    with client_of(place) as client:
        name = f"retriever_{table}"
        fields = [field for field in client.fields(name) if field != "words"]
        rows = client.select(name, expression, fields)
        assert rows
        for row in rows:
            new = changed(dict(row))
            if new is None:
                key = row[TABLES[table]]
                client.delete(name, f"{TABLES[table]} == " + (f'"{key}"' if isinstance(key, str) else str(key)))
            else:
                client.put(name, [new])


def half(vector: Any) -> list[float]:
    return [float(value) / 2 + 0.1 for value in vector]


def no_number(row: Row) -> str:
    """Its passages, with something else for the numbers of their vectors."""
    return json.dumps([[start, end, ["x' or 1"], text] for start, end, _, text in json.loads(row["passages"])])


DAMAGES: dict[str, tuple[str, str, Callable[[Row], Row | None], list[str]]] = {
    "text": ("documents", "number == 3", lambda row: row | {"body": row["body"] + "!"}, ["d2"]),
    "title": ("documents", "number == 3", lambda row: row | {"title_length": 0}, ["d2"]),
    "id": ("documents", "number == 3", lambda row: row | {"id": "another"}, ["d2"]),
    "metadata": ("documents", "number == 3", lambda row: row | {"metadata": '{"n": 7}'}, ["d2"]),
    "broken metadata": ("documents", "number == 3", lambda row: row | {"metadata": "{"}, ["d2"]),
    "passages": (
        "documents",
        "number == 3",
        lambda row: row | {"passages": row["passages"].replace("[0", "[1")},
        ["d2"],
    ),
    "a vector's number": ("documents", "number == 3", lambda row: row | {"passages": no_number(row)}, ["d2"]),
    "no passages": ("documents", "number == 3", lambda row: row | {"passages": "[]"}, ["d2"]),
    "seal": ("documents", "number == 3", lambda row: row | {"seal": "0" * 64}, ["d2"]),
    "what it is looked up by": ("documents", "number == 3", lambda row: row | {"id_hash": "0" * 64}, ["d2"]),
    "facts": ("documents", "number == 3", lambda row: row | {"facts": []}, ["d2"]),
    "bounds": ("documents", "number == 3", lambda row: row | {"bounds": {}}, ["d2"]),
    "raw vector": ("vectors", "number == 3", lambda row: row | {"raw": half(row["raw"])}, ["d2"]),
    "its checksum": ("vectors", "number == 3", lambda row: row | {"checksum": 0}, ["d2"]),
    "its text": ("vectors", "number == 3", lambda row: row | {"text_hash": "0" * 64}, ["d2"]),
    "no vector": ("vectors", "number == 3", lambda row: None, ["d2"]),
    "mapped vector": ("000001", "document == 3", lambda row: row | {"mapped": half(row["mapped"])}, []),
    "place in the index": ("000001", "document == 3", lambda row: row | {"end": 2}, []),
    "no row in the index": ("000001", "document == 3", lambda row: None, []),
    "an empty index": ("000001", "document > 0", lambda row: None, []),
    "facts in the index": ("000001", "document == 3", lambda row: row | {"facts": []}, []),
    "bounds in the index": ("000001", "document == 3", lambda row: row | {"bounds": {}}, []),
}


QUICK = (
    *("text", "a vector's number", "no passages", "facts", "raw vector", "no vector", "mapped vector"),
    "no row in the index",
)


@pytest.mark.parametrize("damage", [d if d in QUICK else pytest.param(d, marks=pytest.mark.torture) for d in DAMAGES])
def test_damage_is_found_and_mended(lite: str, tiny_bert: str, damage: str) -> None:
    table, expression, changed, lost = DAMAGES[damage]
    with Retriever.build(DOCUMENTS, lite, encoder=tiny_bert, **PLAIN) as retriever:
        change(lite, table, expression, changed)
        report = retriever.verify()
        assert not report.clean and report.problems
        report = retriever.verify(repair=True)
        assert report.repaired and report.left == []
        assert any("index their source again" in words for words in report.repaired) == bool(lost)
        assert retriever.verify().clean
        there = {document.id for document in DOCUMENTS} - set(lost)
        assert {hit.id for hit in retriever.search("text", 50)} == there and len(retriever) == len(there)
    with Retriever.build(DOCUMENTS, lite) as retriever:
        assert retriever.verify().clean
        (hit,) = retriever.search("text number 2", 1, where=["n = 2"])
        assert (hit.id, hit.title, hit.passage) == ("d2", "T2", "text number 2")
        assert len(retriever) == len(DOCUMENTS) == len(retriever.search("text", 50))


@pytest.mark.parametrize("damage", ["text", "title", "passages", "metadata"])
def test_a_search_gives_nothing_that_is_not_as_it_was_stored(lite: str, tiny_bert: str, damage: str) -> None:
    table, expression, changed, _ = DAMAGES[damage]
    with Retriever.build(DOCUMENTS, lite, encoder=tiny_bert, **PLAIN) as retriever:
        change(lite, table, expression, changed)
        for ask in (lambda: retriever.search("text", 50), lambda: retriever.document("d2")):
            with pytest.raises(Damaged, match="retriever verify --repair --index"):
                ask()


def test_a_part_of_a_long_document_that_is_lost(lite: str, tiny_bert: str) -> None:
    with Retriever.build(LONG, lite, encoder=tiny_bert, **PLAIN) as retriever:
        change(lite, "settings", 'key like "part%"', lambda row: None if row["key"].endswith(".1") else row)
        assert any("long" in problem for problem in retriever.verify().problems)
        assert retriever.verify(repair=True).left == []
        assert len(retriever) == len(LONG) - 1
    with Retriever.build(LONG, lite) as retriever:
        assert retriever.document("long").text == LONG[-1].text and retriever.verify().clean


def test_all_documents_damaged(lite: str, tiny_bert: str) -> None:
    with Retriever.build(DOCUMENTS[:3], lite, encoder=tiny_bert, **PLAIN) as retriever:
        change(lite, "documents", "number > 0", lambda row: row | {"seal": "0" * 64})
        assert retriever.verify(repair=True).left == []
        assert len(retriever) == 0 and retriever.search("text") == []
        retriever.add(DOCUMENTS[:3])
        assert len(retriever.search("text")) == 3 and retriever.verify().clean


def test_the_command_line_says_what_was_done(lite: str, tiny_bert: str, run: Run) -> None:
    Retriever.build(DOCUMENTS[:4], lite, encoder=tiny_bert, **PLAIN).close()
    change(lite, "documents", "number == 3", lambda row: row | {"body": "x"})
    assert "d2" in run("verify", "--index", lite, code=1).output
    assert "index their source again" in " ".join(run("verify", "--repair", "--index", lite).output.split())
    run("verify", "--index", lite)
