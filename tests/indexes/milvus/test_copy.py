"""`retriever copy`: from a folder to Milvus and back, the same in every table; what it refuses, and how it goes on."""

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from database_edits import damage_row
from milvus_places import shown, state
from samples import Run

from indexes.folder.collection import Collection
from retriever import Document, Retriever
from retriever.errors import Damaged, Misuse, NotACollection, RetrieverError
from retriever.transfer.copy import copy

PLAIN: dict[str, Any] = {"transform": "whiten", "precision": "fp32"}
DOCUMENTS = [
    *(
        Document(f"d{n}", f"text number {n % 50} of them", f"T{n % 3}", {"n": n, "tags": ["a", None]})
        for n in range(80)
    ),
    Document("long", "A story of the sea. " * 3400, metadata={"deep": {"er": [1, {"x": 2}]}}),
]


def tables(folder: Path) -> dict[str, list[Any]]:
    """All that a folder's database holds, without what names a place or a moment."""
    connection = sqlite3.connect(folder / "documents.sqlite")
    found = {
        table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()  # noqa: S608 - constant names
        for table in ("documents", "passages", "vectors")
    }
    settings = dict(connection.execute("SELECT key, value FROM settings"))
    connection.close()
    for name in ("copy_of", "checksums"):
        settings.pop(name, None)
    return {**found, "settings": [sorted(settings.items())]}


def generation(folder: Path) -> dict[str, str]:
    """The hashes of the published files, and what the manifest says of the transform."""
    with Collection.open(folder) as collection:
        found = collection.generation()
        assert found is not None
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in found.folder.iterdir()}
        files.pop("manifest.json")
        kept = ("transform", "encoder", "fitted_on", "asked", "factory", "count")
        return {**files, "manifest": json.dumps({key: found.manifest[key] for key in kept})}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    """A collection with gaps: replaced, deleted and unused, with two generations behind it."""
    folder = tmp_path_factory.mktemp("source") / "c"
    with Retriever.build(DOCUMENTS, folder, encoder=tiny_bert, **PLAIN) as retriever:
        retriever.add([Document("d3", "replaced"), Document("late", "came late", metadata={"n": -1})])
        retriever.delete(["d7", "d8"])
        retriever.rebuild(transform="standardize")
    return folder


def test_there_and_back_is_the_same_in_every_table(folder: Path, lite: str, tmp_path: Path) -> None:
    there = copy(folder, lite)
    assert (there.documents, there.documents_sent, there.index) == (80, 80, "FLAT")
    assert there.vectors_compared > 40
    assert state(lite, "text number 7", "sea") == state(folder, "text number 7", "sea")
    back = copy(lite, tmp_path / "back")
    assert (back.documents, back.passages, back.vectors) == (there.documents, there.passages, there.vectors)
    assert tables(tmp_path / "back") == tables(folder)
    assert generation(tmp_path / "back") == generation(folder)
    assert state(tmp_path / "back", "text number 7") == state(folder, "text number 7")
    again = copy(tmp_path / "back", f"{lite}#again")
    assert again.documents == 80


def test_a_copy_lives_on(folder: Path, lite: str, tmp_path: Path) -> None:
    copy(folder, lite)
    copy(folder, tmp_path / "c")
    found = []
    for place in (str(tmp_path / "c"), lite):
        with Retriever.open(place) as retriever:
            retriever.add([Document("new", "after the copy"), Document("d1", "changed")])
            retriever.delete(["d2"])
            found.append(
                [
                    shown(retriever.search("after the copy", 9, mode="dense")),
                    retriever.verify().problems,
                    len(retriever),
                ]
            )
            assert retriever.info()["created"] and retriever.info()["index"]["generation"] == 1
    assert found[0] == found[1]


def test_what_is_refused(folder: Path, lite: str, tmp_path: Path, tiny_bert: str, run: Run) -> None:
    with pytest.raises(NotACollection, match="does not exist"):
        copy(tmp_path / "nowhere", lite)
    with pytest.raises(NotACollection, match="does not exist"):
        copy(lite, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    copy(folder, lite)
    with pytest.raises(NotACollection, match="holds no collection"):
        copy(f"{lite}#other", tmp_path / "x")
    with pytest.raises(Misuse, match="already holds a collection"):
        copy(folder, lite)
    for place in (lite, folder):
        with pytest.raises(Misuse, match="cannot be copied to itself"):
            copy(place, place)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file.txt").touch()
    with pytest.raises(Misuse, match="holds other files"):
        copy(lite, tmp_path / "taken")
    for bad in ("sq8", "PQ8"):
        with pytest.raises(Misuse, match="exists only in FAISS; in Milvus use flat"):
            copy(folder, f"{lite}#{bad}", index_type=bad)
    assert "80 documents" in run("copy", folder, f"{lite}#hnsw", "--index-type", "hnsw").output
    assert "already holds" in run("copy", folder, f"{lite}#hnsw", code=2).output.replace("\n", " ")


def test_an_index_type_that_milvus_does_not_know_is_asked_for_anew(lite: str, tmp_path: Path, tiny_bert: str) -> None:
    Retriever.build(DOCUMENTS[:60], tmp_path / "c", encoder=tiny_bert, index_type="sq8", **PLAIN).close()
    with pytest.raises(Misuse, match='`index_type="sq8"`'):
        copy(tmp_path / "c", lite)
    assert copy(tmp_path / "c", lite, index_type="hnsw").index == "HNSW"
    with Retriever.open(lite) as retriever:
        assert retriever.info()["index"]["type"] == "hnsw"
        retriever.add([Document("new", "new")])


def broken_off(source: str | Path, target: str | Path, stage: str) -> None:
    """A copy that is interrupted at this stage."""

    def stop(name: str, done: int, total: int | None, detail: str = "") -> None:
        if name == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(source, target, progress=stop)


@pytest.mark.parametrize("stage", ["copying vectors", "copying documents", "comparing", "building the index"])
@pytest.mark.parametrize("back", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["there", "back"])
def test_it_goes_on_and_until_then_is_refused(
    folder: Path, lite: str, tmp_path: Path, stage: str, back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexes.folder.transfer.BATCH_ROWS", 30)
    monkeypatch.setattr("indexes.milvus.reader.READ_DOCUMENTS", 30)
    if back:
        copy(folder, lite)
    source, target = (lite, str(tmp_path / "c")) if back else (str(folder), lite)
    broken_off(source, target, stage)
    with Retriever.open(target) as retriever:
        with pytest.raises(NotACollection, match="no index yet"):
            retriever.search("text")
        for write in (lambda: retriever.add(["x"]), lambda: retriever.delete(["d1"]), retriever.rebuild):
            with pytest.raises(NotACollection, match="unfinished copy.*retriever copy"):
                write()
    with pytest.raises(RetrieverError, match="unfinished copy"):
        Retriever.build(DOCUMENTS, target)
    with pytest.raises(NotACollection, match="no index yet"):
        copy(target, tmp_path / "of a copy")
    report = copy(source, target)
    assert report.documents == 80
    if stage != "copying vectors":
        assert report.vectors_sent < report.vectors
    if stage in ("comparing", "building the index"):
        assert report.documents_sent == 0
    assert state(target, "text number 7", "sea") == state(folder, "text number 7", "sea")
    with Retriever.open(target) as retriever:
        retriever.add(["x"])


def test_a_source_that_changed_between(
    lite: str, tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexes.folder.transfer.BATCH_ROWS", 10)
    source = tmp_path / "c"
    Retriever.build(DOCUMENTS[:40], source, encoder=tiny_bert, **PLAIN).close()
    broken_off(source, f"{lite}#one", "comparing")
    with Retriever.open(source) as retriever:
        retriever.add([Document("d1", "changed meanwhile")])
    with pytest.raises(Damaged, match="has changed between two runs"):
        copy(source, f"{lite}#one")
    broken_off(source, f"{lite}#two", "copying documents")
    with Retriever.open(source) as retriever:
        retriever.rebuild(transform="none")
    with pytest.raises(Misuse, match="not an unfinished copy of the source"):
        copy(source, f"{lite}#two")
    assert copy(source, f"{lite}#three").documents == 40


def test_a_damaged_source_is_not_copied(lite: str, tmp_path: Path, tiny_bert: str) -> None:
    Retriever.build(DOCUMENTS[:40], tmp_path / "c", encoder=tiny_bert, **PLAIN).close()
    damage_row(tmp_path / "c", "UPDATE documents SET text = text || '!' WHERE id = 'd5'")
    with pytest.raises(Damaged, match="d5"):
        copy(tmp_path / "c", lite)
    with Retriever.open(lite) as retriever, pytest.raises(NotACollection, match="no index yet"):
        retriever.search("x")
