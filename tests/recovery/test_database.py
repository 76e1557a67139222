"""The database and its log, damaged in every way: said, never raised, and what is sound is salvaged."""

import json
import shutil
import sqlite3
from pathlib import Path

import damages
import pytest
from damaged_collection import DELETED, contents
from samples import Run

from indexes.errors import Damaged, Misuse, NotACollection
from indexes.folder.collection import DATABASE
from indexes.folder.verify import refuse_broken_log
from indexes.pages.page_file import Pages
from retriever import Retriever
from retriever.recovery.salvage import salvage

CASES = 4
FLIPS = 25


@pytest.mark.timeout(0)
def test_damage_to_the_database(collection: Path, tmp_path: Path, times: int) -> None:
    _tortured(damages.tortured("database", collection, tmp_path, CASES * times, seed=times))


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_damage_to_the_database_or_its_log(collection_with_log: Path, tmp_path: Path, times: int) -> None:
    _tortured(damages.tortured("database", collection_with_log, tmp_path, CASES * times, seed=1000 + times))


@pytest.mark.timeout(0)
def test_damage_to_the_log_beside_its_index(collection_with_log_and_index: Path, tmp_path: Path, times: int) -> None:
    """As a process leaves them that was killed: then a log that ends early is found, too."""
    outcomes = damages.tortured("log", collection_with_log_and_index, tmp_path, 4 * CASES * times, seed=2000 + times)
    assert outcomes.failures == []
    assert outcomes.salvaged > 10 and outcomes.tried == outcomes.found + outcomes.harmless


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_single_bits_of_what_leads_to_a_hit(collection: Path, tmp_path: Path, times: int) -> None:
    outcomes = damages.tortured("flips", collection, tmp_path, FLIPS * times, seed=times)
    assert outcomes.failures == []
    assert outcomes.tried == outcomes.found + outcomes.harmless == FLIPS * times * len(damages.TREES)
    assert outcomes.told > outcomes.tried / 4, "most damage to what a search reads is told by the search itself"
    assert outcomes.unnoticed < outcomes.tried / 20


def _tortured(outcomes: damages.Outcomes) -> None:
    assert outcomes.failures == []
    assert outcomes.salvaged > 10 and outcomes.harmless > 2
    assert outcomes.tried == outcomes.found + outcomes.harmless
    assert outcomes.found == outcomes.salvaged + outcomes.nothing_left


@pytest.fixture
def folder(collection: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(collection, tmp_path / "c"))


def overwrite(path: Path, place: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


def test_the_command(folder: Path, tmp_path: Path, run: Run) -> None:
    stored = contents(folder)
    whole = (folder / DATABASE).read_bytes()
    overwrite(folder / DATABASE, len(whole) // 4096 // 2 * 4096, bytes(4096))
    said = run("verify", "--index", folder, code=1).output
    assert f"retriever salvage NEW --index {folder}" in said.replace("\n", "") and "--repair" not in said, said
    (folder / DATABASE).write_bytes(whole)
    overwrite(folder / DATABASE, 0, bytes(4096))
    for command in (["search", "x"], ["verify"], ["verify", "--repair"], ["info"]):
        said = run(*command, "--index", folder, code=1).output
        assert f"retriever salvage NEW --index {folder}" in said.replace("\n", ""), said
    output = run("salvage", tmp_path / "new", "--index", folder).output
    assert "130 documents saved" in output and "header" in output and "was not changed" in output
    assert {i: c for i, c in contents(tmp_path / "new").items() if i not in DELETED} == stored
    assert run("verify", "--index", tmp_path / "new").exit_code == 0
    run("salvage", tmp_path / "new", "--index", folder, code=2)
    run("salvage", folder / "inside", "--index", folder, code=2)
    run("salvage", tmp_path / "newer", "--index", tmp_path / "nowhere", code=2)


def test_nothing_to_salvage(folder: Path, tmp_path: Path, run: Run) -> None:
    (folder / DATABASE).write_bytes(b"")
    output = run("salvage", tmp_path / "new", "--index", folder, code=1).output
    assert "nothing could be salvaged" in output
    assert not (tmp_path / "new").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["c"], "nothing is left beside it either"


def test_free_pages_are_left_out_where_they_are_known(folder: Path, tmp_path: Path) -> None:
    stored = contents(folder)
    (tmp_path / "one").mkdir()
    overwrite(folder / DATABASE, 3, b"X")  # the file no longer begins as one of SQLite's
    with Pages(folder / DATABASE) as pages:
        free = pages.free
        assert pages.header_lost and free and not pages.freelist_lost
        assert any(b"part 300 met" in pages.page(number) for number in free), "the deleted text is still there"
    report = salvage(tmp_path / "one", folder)
    assert contents(tmp_path / "one") == stored and "deleted" not in " ".join(report.notes)
    overwrite(folder / DATABASE, 32, bytes(8))
    report = salvage(tmp_path / "two", folder)
    assert contents(tmp_path / "two").items() >= stored.items() and "deleted" in " ".join(report.notes)


def test_lost_vectors_are_embedded_again(folder: Path, tmp_path: Path) -> None:
    stored = contents(folder)
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute("UPDATE vectors SET checksum = checksum + 1 WHERE id % 3 = 0")
        connection.execute("DELETE FROM passages WHERE document % 5 = 0")
    connection.close()
    report = salvage(tmp_path / "new", folder)
    assert report.texts_embedded > 20 and report.vectors > 100 and report.lost == []
    assert contents(tmp_path / "new") == stored
    with Retriever.open(tmp_path / "new") as retriever:
        assert retriever.verify().clean


def test_without_the_encoder(folder: Path, tmp_path: Path, tiny_bert: str) -> None:
    stored = contents(folder)
    moved = Path(tiny_bert).with_name("moved")
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute("UPDATE vectors SET checksum = checksum + 1 WHERE id = 8")
        query = "SELECT documents.id FROM documents JOIN passages ON document = number WHERE vector = 8"
        without = {id_ for (id_,) in connection.execute(query)}
    connection.close()
    Path(tiny_bert).rename(moved)
    try:
        report = salvage(tmp_path / "new", folder)
        again = salvage(tmp_path / "with", folder, encoder=str(moved))
    finally:
        moved.rename(tiny_bert)
    kept = [json.loads(line) for line in (tmp_path / "new" / "quarantine" / "salvage.jsonl").read_text().splitlines()]
    assert set(report.lost) == without != set() and "--encoder" in " ".join(report.notes)
    assert {row["table"] for row in kept} == {"vectors", "documents"}
    assert set(contents(tmp_path / "new")) == set(stored) - without
    assert again.lost == [] and contents(tmp_path / "with") == stored


def test_a_damaged_text_is_kept_for_a_human(folder: Path, tmp_path: Path) -> None:
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute("DROP TRIGGER words_change_begins")
        connection.execute("DROP TRIGGER words_change_ends")
        connection.execute("UPDATE documents SET text = 'Number 7 is old.' WHERE id = 'd7'")
    connection.close()
    report = salvage(tmp_path / "new", folder)
    assert report.lost == ["d7"] and report.quarantine is not None
    (row,) = [json.loads(line) for line in report.quarantine.read_text().splitlines()]
    assert row["reason"] == "does not match its content hash" and "Number 7 is old." in row["row"]


@pytest.mark.parametrize("column", ["id", "title", "text"])
def test_a_text_that_is_no_unicode_is_moved_away(folder: Path, column: str) -> None:
    with Retriever.open(folder) as retriever:
        count, connection = len(retriever), retriever.collection.store.db.conn
        connection.execute(f"UPDATE documents SET {column} = CAST(x'63617420ff' AS TEXT) WHERE id = 'd7'")  # noqa: S608
        connection.commit()
    with Retriever.open(folder) as retriever:
        assert len(retriever.verify().bad_documents) == 1
        report = retriever.verify(repair=True)
        assert any("moved 1 damaged document" in line for line in report.repaired) and not report.left
        assert retriever.verify().clean and len(retriever) == count - 1
        assert retriever.search("Number 8 is even.", 1, mode="lexical")[0].id == "d8"


@pytest.mark.parametrize("value", ["'\"xx\"'", "'null'", "x'ff'", "'7'", "'\"'"])
def test_a_damaged_language_is_no_reason_to_lose_a_document(folder: Path, value: str) -> None:
    stored = contents(folder)
    with Retriever.open(folder) as retriever:
        connection = retriever.collection.store.db.conn
        connection.execute(f"UPDATE settings SET value = {value} WHERE key = 'language'")  # noqa: S608
        connection.commit()
    with Retriever.open(folder) as retriever:
        for mode in ("lexical", "hybrid"):
            with pytest.raises(Damaged, match="verify --repair"):
                retriever.search("Number 8", mode=mode)  # type: ignore[arg-type]
        assert any("'language'" in problem for problem in retriever.verify().problems)
        report = retriever.verify(repair=True)
        assert any("language" in line for line in report.repaired) and not report.left
        assert retriever.verify().clean and contents(folder) == stored
        assert retriever.search("Number 8 is even.", 1, mode="lexical")[0].id == "d8"


@pytest.mark.parametrize("passages_too", [False, True])
def test_a_document_whose_id_is_damaged_is_saved_under_its_own(
    folder: Path, tmp_path: Path, passages_too: bool
) -> None:
    """Its seal tells which of its two ids is right, that of its row or that of the index of ids."""
    stored = contents(folder)
    if passages_too:
        with sqlite3.connect(folder / DATABASE) as connection:
            connection.execute("DELETE FROM passages WHERE document = (SELECT number FROM documents WHERE id = 'd70')")
        connection.close()
    data = (folder / DATABASE).read_bytes()
    assert data.count(b"d70T70") == 1
    (folder / DATABASE).write_bytes(data.replace(b"d70T70", b"f70T70"))
    with Retriever.open(folder) as retriever:
        for mode in ("lexical", "hybrid") if passages_too else ("lexical", "hybrid", "dense"):
            with pytest.raises(Damaged, match="verify --repair"):
                retriever.search("Number 70", 300, mode=mode)  # type: ignore[arg-type]
    report = salvage(tmp_path / "new", folder)
    assert report.lost == [] and contents(tmp_path / "new") == stored


@pytest.mark.parametrize("index_type", ["flat", "sq8"])
def test_a_vector_without_its_passage_is_no_silent_miss(folder: Path, index_type: str) -> None:
    with Retriever.open(folder) as retriever:
        retriever.rebuild(index_type=index_type)
        connection = retriever.collection.store.db.conn
        (vector,) = connection.execute(
            "SELECT vector FROM passages JOIN documents ON number = document WHERE id = 'd8'"
        ).fetchone()
        connection.execute("DROP TRIGGER passage_leaves")
        connection.execute("DELETE FROM passages WHERE vector = ?", [vector])
        connection.commit()
        for options in ({}, {"where": ["n >= 0"]}, {"space": "raw"}):
            for mode in ("dense", "hybrid"):
                with pytest.raises(Damaged, match=r"passages of vector|lacks passages|have their first passage"):
                    retriever.search("Number 8 is even.", 300, mode=mode, **options)  # type: ignore[arg-type]


def test_settings_lost_in_every_copy(folder: Path, tmp_path: Path, tiny_bert: str) -> None:
    stored = contents(folder)
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute("DELETE FROM settings")
        connection.execute("DELETE FROM generation_files")
    connection.close()
    shutil.rmtree(folder / "generations")
    with pytest.raises(Damaged, match="give it as `encoder`"):
        salvage(tmp_path / "new", folder)
    report = salvage(tmp_path / "new", folder, encoder=tiny_bert)
    assert report.vectors == 0 and contents(tmp_path / "new") == stored


@pytest.mark.parametrize("page_size", [512, 8192, 65536])
def test_other_sizes_of_pages(folder: Path, tmp_path: Path, page_size: int) -> None:
    stored = contents(folder)
    connection = sqlite3.connect(folder / DATABASE)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.execute(f"PRAGMA page_size={page_size}")
    connection.execute("VACUUM")
    connection.close()
    overwrite(folder / DATABASE, 0, bytes(100))
    report = salvage(tmp_path / "new", folder)
    assert f"{page_size:,} bytes" in report.notes[0]
    assert contents(tmp_path / "new") == stored


def test_a_flip_in_the_log_is_no_silent_loss(collection_with_log: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(collection_with_log, tmp_path / "c"))
    log = folder / f"{DATABASE}-wal"
    before = log.read_bytes()
    overwrite(log, 500, bytes([before[500] ^ 1]))
    with pytest.raises(Damaged, match="checksum of frame 1 is wrong.*transactions.*retriever salvage NEW"):
        refuse_broken_log(folder)
    assert len(log.read_bytes()) == len(before), "nothing was deleted"


def test_an_empty_database_does_not_cost_its_log(collection_with_log: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(collection_with_log, tmp_path / "c"))
    (folder / DATABASE).write_bytes(b"")
    with pytest.raises(Damaged, match="is empty, but its log"):
        Retriever.open(folder)
    assert (folder / f"{DATABASE}-wal").stat().st_size
    assert salvage(tmp_path / "new", folder).documents


def test_the_last_transaction_torn_by_a_power_failure(collection_with_log: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(collection_with_log, tmp_path / "c"))
    log = folder / f"{DATABASE}-wal"
    data = bytearray(log.read_bytes())
    data[-100] ^= 1
    log.write_bytes(data)
    with pytest.raises(Damaged, match="ignores 1 transaction .*interrupted write may explain"):
        refuse_broken_log(folder)
    assert log.read_bytes() == bytes(data)
    with Retriever.open(folder) as retriever:
        assert retriever.verify().clean
    refuse_broken_log(folder)


def test_refused_targets(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "theirs").write_text("x")
    with pytest.raises(Misuse, match="already exists"):
        salvage(tmp_path / "taken", folder)
    with pytest.raises(NotACollection):
        salvage(tmp_path / "new", tmp_path / "taken")
