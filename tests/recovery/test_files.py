"""Every derived file, damaged in every way: never searched, found, named, and made again bit for bit."""

import shutil
import time
from pathlib import Path

import damages
import pytest

from indexes.errors import Damaged
from indexes.folder import generation as generations
from retriever import Retriever

FLIPS = 1


@pytest.mark.timeout(0)
def test_damage_to_any_derived_file(collection: Path, tmp_path: Path, times: int) -> None:
    outcomes = damages.tortured("files", collection, tmp_path, FLIPS * times, seed=times)
    assert outcomes.failures == []
    assert outcomes.found == outcomes.repaired > 50
    assert outcomes.tried == outcomes.found + outcomes.harmless


@pytest.mark.parametrize("name", ["vectors.faiss", "numbers.npy", "transform.safetensors", "novelty.json"])
def test_a_file_damaged_after_it_was_found_sound(collection: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(collection, tmp_path / "c"))
    time.sleep(2 * generations.TOO_YOUNG_NS / 1e9)
    with Retriever.open(folder) as retriever:
        assert retriever.search("Number 7 is odd.")
    assert (folder / generations.CHECKED).exists(), "the files were found sound, and that is remembered"
    path = next(folder.glob(f"generations/*/{name}"))
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with Retriever.open(folder) as retriever, pytest.raises(Damaged, match=name):
        retriever.search("Number 7 is odd.")


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"folder": 5}', "\0"])
def test_what_was_remembered_is_damaged(collection: Path, tmp_path: Path, content: str) -> None:
    folder = Path(shutil.copytree(collection, tmp_path / "c"))
    (folder / generations.CHECKED).write_text(content)
    (folder / "writer.lock").write_text(content)
    with Retriever.open(folder) as retriever:
        assert retriever.search("Number 7 is odd.") and retriever.verify().clean


def test_a_damaged_vector_is_never_made_into_an_index(collection: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(collection, tmp_path / "c"))
    with Retriever.open(folder) as retriever:
        retriever.collection.store.db.conn.execute("UPDATE vectors SET vector = zeroblob(64) WHERE id = 8")
        retriever.collection.store.db.conn.commit()
        for transform in ("none", "whiten"):
            with pytest.raises(Damaged, match="vector 8 is damaged; run: retriever verify --repair"):
                retriever.rebuild(transform=transform)


def test_a_damaged_text_is_never_a_hit(collection: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(collection, tmp_path / "c"))
    with Retriever.open(folder) as retriever:
        retriever.collection.store.db.conn.execute("UPDATE documents SET text = 'Number 7 is old.' WHERE id = 'd7'")
        retriever.collection.store.db.conn.commit()
        for mode in ("dense", "lexical", "hybrid"):
            with pytest.raises(Damaged, match="document 'd7' is damaged; run: retriever verify --repair"):
                retriever.search("Number 7", 300, mode=mode)  # type: ignore[arg-type]
        with pytest.raises(Damaged, match="'d7'"):
            retriever.document("d7")
