"""A collection whose files are removed or replaced under a process that has it open."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bm25 import some_documents

from retriever import Retriever
from retriever.errors import Locked, NotACollection

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    folder = tmp_path_factory.mktemp("replaced") / "c"
    Retriever.build(some_documents(40), folder, encoder=tiny_bert, precision="fp32", transform="none").close()
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "c"))


def test_nothing_is_written_to_a_collection_that_was_removed(folder: Path) -> None:
    with Retriever.open(folder) as retriever:
        id_ = retriever.search("cat", 1)[0].id
        shutil.rmtree(folder)
        for write in (lambda: retriever.delete([id_]), lambda: retriever.add([{"id": "x", "text": "y"}])):
            with pytest.raises(NotACollection, match="removed or replaced"):
                write()
    assert not folder.exists()


def test_nothing_is_written_to_a_collection_that_was_replaced(folder: Path, built: Path) -> None:
    with Retriever.open(folder) as retriever:
        count = len(retriever)
        folder.rename(folder.with_name("moved"))
        shutil.copytree(built, folder)
        with pytest.raises(NotACollection, match="removed or replaced"):
            retriever.add([{"id": "x", "text": "y"}])
    with Retriever.open(folder) as retriever:
        assert len(retriever) == count and retriever.verify().clean


def test_removed_in_the_middle_of_a_write(folder: Path) -> None:
    with Retriever.open(folder) as retriever:

        def removed() -> None:
            with retriever.collection.writing():
                shutil.rmtree(folder)

        with pytest.raises(NotACollection, match="removed or replaced"):
            removed()


@pytest.mark.skipif(os.name != "posix", reason="a file that is open cannot be removed")
def test_a_lock_whose_file_is_removed_still_keeps_others_out(folder: Path) -> None:
    command = [sys.executable, "-m", "retriever", "delete", "d1", "--index", str(folder)]
    with Retriever.open(folder) as retriever:
        with retriever.collection.writing():
            (folder / "writer.lock").unlink()
            done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
            assert done.returncode == 1 and "is being written to" in done.stderr, done.stderr
            with pytest.raises(Locked, match="was removed while it was in use"):
                retriever.rebuild()
        retriever.rebuild()
        assert retriever.verify().clean


def test_nothing_is_found_in_a_collection_that_was_replaced(folder: Path, tiny_bert: str, tmp_path: Path) -> None:
    """By no thread, whether it has read there before or not, and whether or not the index was loaded."""
    other = tmp_path / "other"
    Retriever.build(some_documents(9), other, encoder=tiny_bert, precision="fp32", transform="none").close()
    with Retriever.open(folder) as loaded, Retriever.open(folder) as idle:
        loaded.search("cat", 1)
        folder.rename(folder.with_name("moved"))
        other.rename(folder)
        with ThreadPoolExecutor(1) as thread:
            for ask in (
                lambda: loaded.search("cat", 1),
                lambda: idle.search("cat", 1),
                lambda: loaded.document("d1"),
                lambda: len(idle),
                lambda: thread.submit(loaded.search, "cat", 1).result(),
            ):
                with pytest.raises(NotACollection, match="open the collection again"):
                    ask()
    with Retriever.open(folder) as retriever:
        assert retriever.verify().clean


def test_closing_leaves_the_generations_of_what_has_come_in_its_place(folder: Path, built: Path) -> None:
    with Retriever.open(folder) as retriever:
        for _ in range(2):
            retriever.rebuild()
        retriever.search("cat", 1)
        folder.rename(folder.with_name("moved"))
        shutil.copytree(built, folder)
    with Retriever.open(folder) as retriever:
        assert retriever.verify().clean and retriever.search("cat", 1)
