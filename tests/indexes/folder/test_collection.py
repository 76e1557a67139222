"""A collection that is damaged, locked, half written: found, told, repaired."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from database_edits import damage_row

from indexes.errors import Damaged, Mismatch, NotACollection, RetrieverError
from indexes.faiss.vectors import unit_rows
from indexes.folder.collection import Collection
from indexes.folder.space import Space
from indexes.sqlite.documents import DocumentStore
from retriever import Document, Retriever
from retriever.transforms import load_transform


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    folder = tmp_path_factory.mktemp("original") / "c"
    documents = [Document(f"d{i}", f"Number {i} is {'even' if i % 2 == 0 else 'odd'}.", f"T{i}") for i in range(250)]
    with Retriever.build(documents, folder, encoder=tiny_bert, transform="bert-flow:steps=40"):
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


def test_a_lossy_index_scores_with_its_own_file_of_raw_vectors(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not list(folder.glob("generations/*/raw.f16")), "an exact index has its vectors"
    exact = ranking(folder)
    with Retriever.open(folder) as retriever:
        retriever.rebuild(index_type="sq8")
    path = next(folder.glob("generations/*/raw.f16"))
    with Retriever.open(folder) as retriever:
        stored = retriever.collection.store.vectors([1, 251], retriever.collection.dimension)
        raw = np.fromfile(path, np.float16).reshape(251, -1)
        assert np.array_equal(raw[[0, 250]].astype(np.float32), stored)
    read: list[bool] = []
    vectors = DocumentStore.vectors

    def counted(store: DocumentStore, numbers: Sequence[int], dimension: int, *, checked: bool = False) -> Any:
        read.append(checked)
        return vectors(store, numbers, dimension, checked=checked)

    monkeypatch.setattr(DocumentStore, "vectors", counted)
    assert len(ranking(folder)) == len(exact)
    assert all(read), "only the vectors of hits are read from the database, to verify them"
    monkeypatch.undo()
    path.write_bytes(bytes([path.read_bytes()[0] ^ 4]) + path.read_bytes()[1:])
    with Retriever.open(folder) as retriever:
        with pytest.raises(Damaged, match="raw.f16 is damaged"):
            retriever.search("Number 7 is odd.")
        retriever.verify(repair=True)
        assert retriever.verify().clean and retriever.search("Number 7 is odd.")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE documents SET text = 'Number 7 is even.' WHERE id = 'd7'", "document 'd7' does not match its content"),
        (
            "UPDATE documents SET text = CAST(x'ff4e' AS TEXT) WHERE id = 'd7'",
            "document 'd7' does not match its content",
        ),
        (
            "UPDATE documents SET text = CAST(text AS BLOB) WHERE id = 'd7'",
            "document 'd7' holds a value that is not a text",
        ),
        ("UPDATE documents SET metadata = 7 WHERE id = 'd7'", "document 'd7' does not match its content"),
        ("UPDATE documents SET id = 'other' WHERE id = 'd7'", "document 'other' does not match its seal"),
        ("DELETE FROM passages WHERE document = 8", "document 'd7' lacks passages"),
        ('UPDATE passages SET "end" = 9999 WHERE document = 8', "document 'd7' does not match its seal"),
        ("UPDATE passages SET start = 3 WHERE document = 8", "document 'd7' does not match its seal"),
        ("UPDATE passages SET start = 'abc' WHERE document = 8", "document 'd7' does not match its seal"),
        ("UPDATE passages SET vector = 20 WHERE document = 8", "document 'd7' does not match its seal"),
        ("UPDATE vectors SET vector = zeroblob(64) WHERE id = 8", "vector 8 does not match"),
        ("UPDATE vectors SET text_hash = zeroblob(32) WHERE id = 8", "vector 8 does not match"),
        ("UPDATE vectors SET vector = x'00' WHERE id = 8", "vector 8 does not have 64 bytes"),
        ("UPDATE vectors SET vector = 'text' WHERE id = 8", "vector 8 does not have 64 bytes"),
        ("DELETE FROM vectors WHERE id = 8", "has a damaged or missing vector"),
    ],
)
def test_damaged_rows_are_named_and_put_aside(folder: Path, statement: str, message: str) -> None:
    damage_row(folder, statement)
    with Retriever.open(folder) as retriever:
        report = retriever.verify()
        assert any(message in problem for problem in report.problems), report.problems
        assert retriever.verify(repair=True).left == []
        assert retriever.verify().clean
        assert len(retriever) == 250
        assert retriever.info()["quarantined"] >= 1
        assert len(retriever.search("Number 7 is odd.", 300)) == 250


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM settings WHERE key = 'encoder'",
        "UPDATE settings SET value = replace(value, '32', '33') WHERE key = 'encoder'",
        "UPDATE settings SET value = '{broken' WHERE key = 'encoder'",
        "UPDATE settings SET value = '\"center\"' WHERE key = 'transform'",
        "UPDATE settings SET value = '{broken' WHERE key = 'choice'",
    ],
)
def test_a_damaged_setting_is_restored_and_costs_no_document(original: Path, folder: Path, statement: str) -> None:
    damage_row(folder, statement)
    with Retriever.open(folder) as retriever:
        assert "setting" in retriever.verify().problems[0]
        assert retriever.verify(repair=True).left == []
        assert (len(retriever), retriever.info()["quarantined"]) == (251, 0)
    assert ranking(folder) == ranking(original)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE generation_files SET bytes = zeroblob(9)",
        "DELETE FROM generation_files",
        "DELETE FROM generation_files WHERE name = 'transform.json'",
        "DELETE FROM generations",
        "DELETE FROM documents WHERE id = 'd7'",
    ],
)
def test_other_tables_are_mended(folder: Path, statement: str) -> None:
    damage_row(folder, statement)
    with Retriever.open(folder) as retriever:
        assert not retriever.verify().clean
        assert retriever.verify(repair=True).left == []
        assert len(retriever.search("Number 7 is odd.", 3)) == 3
        retriever.rebuild()
        assert retriever.verify().clean


@pytest.mark.parametrize("value", [None, "null", "5", "[]", "{}", '{"dimension": "a"}', "{broken"])
def test_without_any_copy_of_the_encoder_nothing_is_condemned(folder: Path, value: str | None) -> None:
    damage_row(folder, "DELETE FROM settings WHERE key = 'encoder'")
    if value is not None:
        damage_row(folder, "INSERT INTO settings VALUES ('encoder', ?)", value)
    next((folder / "generations").glob("*/manifest.json")).unlink()
    with Retriever.open(folder) as retriever:
        assert "no index to restore it from" in retriever.verify().problems[0]
        with pytest.raises(Damaged, match="nothing was changed"):
            retriever.verify(repair=True)
        with pytest.raises(Damaged):
            retriever.info()
        assert len(retriever) == 251
    with pytest.raises(Damaged):
        Retriever.build(["More text."], folder)


@pytest.mark.parametrize("value", ['"floo"', "5", "null", "{broken"])
@pytest.mark.parametrize("key", ["transform", "index_type"])
def test_other_settings_go_back_to_their_defaults(folder: Path, key: str, value: str) -> None:
    damage_row(folder, "UPDATE settings SET value = ? WHERE key = ?", value, key)
    next((folder / "generations").glob("*/manifest.json")).unlink()
    with Retriever.open(folder) as retriever:
        assert retriever.verify(repair=True).left == []
        assert len(retriever.search("Number 7 is odd.", 300)) == 251


def test_every_copy_of_the_transform_damaged(folder: Path) -> None:
    damage_row(folder, "UPDATE generation_files SET bytes = zeroblob(9)")
    for name in ("vectors.faiss", "transform.safetensors"):
        next((folder / "generations").glob(f"*/{name}")).write_bytes(b"gone")
    with Retriever.open(folder) as retriever:
        report = retriever.verify(repair=True)
        assert report.left == [] and "fitted a new transform" in report.repaired[-1]
        assert len(retriever.search("Number 7 is odd.", 3)) == 3


def test_everything_damaged_leaves_an_empty_collection_that_can_be_filled(folder: Path) -> None:
    damage_row(folder, "UPDATE documents SET title = 'x'")
    next((folder / "generations").glob("*/vectors.faiss")).unlink()
    with Retriever.open(folder) as retriever:
        assert retriever.verify(repair=True).left == []
        assert len(retriever) == 0
        retriever.add([Document("a", "Here again.")])
        assert [hit.id for hit in retriever.search("Here again.")] == ["a"]


def test_a_wrong_list_of_unused_vectors_is_made_again(folder: Path) -> None:
    damage_row(folder, "INSERT INTO unused VALUES (5)")
    with Retriever.open(folder) as retriever:
        assert "unused" in retriever.verify().problems[0]
        retriever.verify(repair=True)
        assert retriever.verify().clean
        assert len(retriever.search("x", 300)) == 251


def test_the_background_is_that_of_all_used_vectors(folder: Path) -> None:
    """It comes from vectors of the index and newer ones, without those that no passage uses."""
    with Retriever.open(folder) as retriever:
        retriever.delete(["d3", "d40"])
        store = retriever.collection.store
        used = store.used_vectors().tolist()
        assert len(used) == 249
        raw = store.vectors(used, retriever.collection.dimension)

        def compare(space: Space) -> None:
            cosines = unit_rows(space.apply(raw[:3])).astype(np.float64) @ unit_rows(space.apply(raw)).T
            expected = (cosines.sum(axis=1) - cosines.max(axis=1)) / (len(used) - 1)
            np.testing.assert_allclose(space.background(raw[:3]), expected, atol=1e-6)

        retriever.collection.in_space(lambda generation: load_transform(generation).apply, compare)


def test_an_index_that_lost_touch_with_its_table(folder: Path) -> None:
    damage_row(folder, "DELETE FROM vectors WHERE id = 3")
    with (
        Retriever.open(folder) as retriever,
        pytest.raises(Damaged, match="index holds 250 vectors, but the table has 249 rows"),
    ):
        retriever.search("x")


def test_a_transform_of_another_generation_is_refused(folder: Path, tmp_path: Path, tiny_bert: str) -> None:
    from retriever.transforms import load

    with Collection.open(folder) as collection:
        generation = collection.generation()
    assert generation is not None
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


def test_a_reader_moves_on_to_the_newer_generation(folder: Path) -> None:
    with Retriever.open(folder) as reader, Retriever.open(folder) as writer:
        before = reader.search("Number 7 is odd.", 5)
        for transform in ("center", "whiten", "none"):
            writer.rebuild(transform=transform)
        assert len(list((folder / "generations").iterdir())) == 2, (
            "the one before stays for readers that are loading it"
        )
        after = reader.search("Number 7 is odd.", 5)
        assert [hit.score for hit in after] != [hit.score for hit in before]
        assert after == writer.search("Number 7 is odd.", 5)


READER = (
    "import sys, time\n"
    "from retriever import Retriever\n"
    "end = time.monotonic() + 6\n"
    "kept, count = Retriever.open(sys.argv[1]), 0\n"
    "while time.monotonic() < end:\n"
    "    fresh = Retriever.open(sys.argv[1])\n"
    "    for retriever in (kept, fresh):\n"
    "        assert len(retriever.similar('d7', 5)) == 5\n"
    "    fresh.info()\n"
    "    assert fresh.verify().clean\n"
    "    fresh.close()\n"
    "    count += 1\n"
    "print(count)"
)


@pytest.mark.heavy
def test_readers_during_publications(folder: Path) -> None:
    readers = [
        subprocess.Popen([sys.executable, "-c", READER, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    with Retriever.open(folder) as writer:
        while any(reader.poll() is None for reader in readers):
            for transform in ("center", "whiten:dimension=8"):
                writer.rebuild(transform=transform)
    for reader in readers:
        output, errors = reader.communicate()
        assert reader.returncode == 0, errors.decode()
        assert int(output) > 3


def test_two_first_runs_never_mix_two_encoders(tmp_path: Path, tiny_bert: str, other_bert: str) -> None:
    documents = [Document(f"d{i}", f"Number {i}.") for i in range(20)]

    def late():
        Retriever.build(documents, tmp_path / "c", encoder=tiny_bert).close()
        yield Document("late", "Too late.")

    with pytest.raises(Mismatch, match="was made with the encoder"):
        Retriever.build(late(), tmp_path / "c", encoder=other_bert)
    with Retriever.open(tmp_path / "c") as retriever:
        assert len(retriever) == 20 and retriever.verify().clean


def test_a_first_run_killed_while_the_tables_were_made(tmp_path: Path, tiny_bert: str) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    connection = sqlite3.connect(folder / "documents.sqlite")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    with Retriever.build(["Some text."], folder, encoder=tiny_bert) as retriever:
        assert len(retriever) == 1


def test_another_programs_database_is_left_alone(tmp_path: Path, tiny_bert: str) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    connection = sqlite3.connect(folder / "documents.sqlite")
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = (folder / "documents.sqlite").read_bytes()
    with pytest.raises(NotACollection):
        Retriever.build(["Some text."], folder, encoder=tiny_bert)
    assert (folder / "documents.sqlite").read_bytes() == before


def test_a_failed_first_run_does_not_bind_the_folder(tmp_path: Path, tiny_bert: str) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny_bert, broken)
    (broken / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(RetrieverError):
        Retriever.build(["Some text."], tmp_path / "c", encoder=str(broken))
    with Retriever.build(["Some text."], tmp_path / "c", encoder=tiny_bert) as retriever:
        assert len(retriever) == 1
