"""Who may read a collection and the cache: only its user, unless the folder says otherwise."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import PETS

from indexes.folder.generation import WRITE_LOCK
from retriever import Retriever
from retriever.files import cache_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")


@pytest.fixture(autouse=True)
def common_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def holding_texts(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name not in (WRITE_LOCK, "checked.json")]


def build(folder: Path, tiny_bert: str) -> Retriever:
    return Retriever.build(PETS, folder, encoder=tiny_bert, transform="whiten", precision="fp32")


def test_a_new_collection_and_the_cache_are_private(
    tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new" / "cache"))
    folder = tmp_path / "collections" / "index"
    with build(folder, tiny_bert) as retriever:
        retriever.add([{"id": "new", "text": "A newer document."}])
        assert {mode(path) for path in holding_texts(folder)} == {0o600}  # the log of SQLite too
    assert mode(folder) == 0o700
    assert mode(folder.parent) == 0o755
    assert mode(cache_folder()) == 0o700
    assert (cache_folder() / "encoders").is_dir()


def test_a_folder_that_was_made_for_a_group_is_shared(tmp_path: Path, tiny_bert: str) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    folder.chmod(0o750)
    with build(folder, tiny_bert) as retriever:
        retriever.rebuild(transform="center")
        assert {mode(path) for path in holding_texts(folder)} == {0o640}
    assert mode(folder) == 0o750
    assert all(mode(path) & 0o050 == 0o050 for path in folder.rglob("*") if path.is_dir())
