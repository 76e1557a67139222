"""A collection that is damaged, locked, half written: found, told, repaired."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from indexes.collection import Collection
from indexes.errors import Damaged, Mismatch
from retriever import Document, Retriever


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    folder = tmp_path_factory.mktemp("original") / "c"
    documents = [Document(f"d{i}", f"Number {i} is {'even' if i % 2 == 0 else 'odd'}.", f"T{i}") for i in range(250)]
    with Retriever.build(documents, folder, encoder=tiny_bert, transform="flow:steps=40"):
        pass
    with Retriever.open(folder) as retriever:
        retriever.add([Document("new", "A newer one.")])
        retriever.collection.store.db.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "c"))


def ranking(folder: Path) -> list[tuple[str, float]]:
    with Retriever.open(folder) as retriever:
        return [(hit.id, hit.score) for hit in retriever.search("Number 7 is odd.", 20)]


FILES = ["vectors.faiss", "numbers.npy", "transform.safetensors", "transform.json", "manifest.json"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_found_never_searched_and_repaired(original: Path, folder: Path, name: str, damage: str) -> None:
    path = next((folder / "generations").glob(f"*/{name}"))
    data = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    elif damage == "truncate":
        path.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    with Retriever.open(folder) as retriever:
        with pytest.raises(Damaged, match="verify --repair"):
            retriever.search("Number 7 is odd.")
        report = retriever.verify()
        assert not report.clean and name in report.problems[0]
        assert not retriever.verify(repair=True).clean
        assert retriever.verify().clean
    assert ranking(folder) == ranking(original), "the repaired index gives the same results, bit for bit"
    aside = [p.name for p in (folder / "quarantine").glob("*/*/*")]
    assert name in aside or damage == "remove", "what was damaged is kept"


def damage_row(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / "documents.sqlite") as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE documents SET text = 'Number 7 is even.' WHERE id = 'd7'", "document 'd7' does not match"),
        ("UPDATE documents SET text = CAST(x'ff4e' AS TEXT) WHERE id = 'd7'", "document 'd7' does not match"),
        ("DELETE FROM passages WHERE document = 8", "document 'd7' lacks passages"),
        ('UPDATE passages SET "end" = 9999 WHERE document = 8', "document 'd7' has a passage outside"),
        (
            "UPDATE vectors SET vector = (SELECT vector FROM vectors WHERE id = 9) WHERE id = 8",
            "vector 8 does not match",
        ),
        ("UPDATE vectors SET vector = x'00' WHERE id = 8", "vector 8 is not 64 bytes"),
        ("UPDATE vectors SET vector = 'text' WHERE id = 8", "vector 8 is not 64 bytes"),
    ],
)
def test_damaged_rows_are_named_and_put_aside(folder: Path, statement: str, message: str) -> None:
    damage_row(folder, statement)
    with Retriever.open(folder) as retriever:
        report = retriever.verify()
        assert any(message in problem for problem in report.problems), report.problems
        retriever.verify(repair=True)
        assert retriever.verify().clean
        assert len(retriever) == 250
        assert retriever.info()["quarantined"] >= 1
        assert len(retriever.search("Number 7 is odd.", 300)) == 250


def test_a_wrong_list_of_unused_vectors_is_made_again(folder: Path) -> None:
    damage_row(folder, "INSERT INTO unused VALUES (5)")
    with Retriever.open(folder) as retriever:
        assert "unused" in retriever.verify().problems[0]
        retriever.verify(repair=True)
        assert retriever.verify().clean
        assert len(retriever.search("x", 300)) == 251


def test_an_index_that_lost_touch_with_its_table(folder: Path) -> None:
    damage_row(folder, "DELETE FROM vectors WHERE id = 3")
    with Retriever.open(folder) as retriever, pytest.raises(Damaged, match="index holds 250 vectors, table 249 rows"):
        retriever.search("x")


def test_a_transform_of_another_generation_is_refused(folder: Path, tmp_path: Path, tiny_bert: str) -> None:
    from retriever.publishing import load_transform
    from retriever.transforms import load

    with Collection.open(folder) as collection:
        generation = collection.load()
    documents = [Document(str(i), f"Other {i}") for i in range(30)]
    Retriever.build(documents, tmp_path / "other", encoder=tiny_bert, transform="center").close()
    other = next((tmp_path / "other" / "generations").iterdir())
    for name in ("transform.json", "transform.safetensors"):
        shutil.copy(other / name, generation.folder / name)
    load(generation.folder)
    with pytest.raises(Mismatch, match="was built with the transform"):
        load_transform(generation)


def test_a_generation_half_written_by_a_killed_process_is_no_trouble(original: Path, folder: Path) -> None:
    left = folder / "generations" / "000002.writing"
    left.mkdir()
    (left / "vectors.faiss").write_bytes(b"half")
    finished = folder / "generations" / "000002"
    finished.mkdir()
    (finished / "manifest.json").write_text("{}")
    assert ranking(folder) == ranking(original)
    with Retriever.open(folder) as retriever:
        assert retriever.verify().clean
        retriever.rebuild()
        assert [path.name for path in (folder / "generations").iterdir()] == ["000002"]
        assert retriever.verify().clean


def test_a_copy_elsewhere_works(original: Path, folder: Path) -> None:
    assert ranking(folder) == ranking(original)


def test_a_reader_keeps_its_generation_while_it_is_superseded(folder: Path) -> None:
    with Collection.open(folder) as reader, Retriever.open(folder) as writer:
        generation = reader.load()
        writer.rebuild(transform="center")
        assert not generation.folder.exists()
        assert reader.load().number == generation.number + 1
