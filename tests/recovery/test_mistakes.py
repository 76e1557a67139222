"""A caller's mistake is not taken for damage, damage to a row is, and a closed collection says that it is closed."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from indexes.folder import verify
from retriever import Retriever
from retriever.errors import Damaged, RetrieverError

MISTAKES: list[Callable[[Any], object]] = [
    lambda retriever: retriever.search(123),
    lambda retriever: retriever.search(None),
    lambda retriever: retriever.search("cats", k="3"),
    lambda retriever: retriever.search("cats", where=[7]),
    lambda retriever: retriever.search("cats", mode="lexical", k="3"),
    lambda retriever: retriever.search_many([b"cats"]),
    lambda retriever: retriever.similar(5),
    lambda retriever: retriever.document({"id": "d1"}),
]
USES: list[Callable[[Any], object]] = [
    len,
    lambda retriever: retriever.search("cats"),
    lambda retriever: retriever.search("cats", mode="dense"),
    lambda retriever: retriever.search("cats", mode="lexical"),
    lambda retriever: retriever.similar("d1"),
    lambda retriever: retriever.document("d1"),
    lambda retriever: retriever.info(),
    lambda retriever: retriever.delete(["d1"]),
    lambda retriever: retriever.verify(),
]


@pytest.fixture
def folder(collection: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(collection, tmp_path / "c"))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_raised_as_it_is_and_verifies_nothing(
    folder: Path, mistake: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: object) -> None:
        raise AssertionError("the collection was verified")

    monkeypatch.setattr(verify, "check", refused)
    with Retriever.open(folder) as retriever:
        with pytest.raises(Exception) as raised:
            mistake(retriever)
        assert not isinstance(raised.value, Damaged) and "was verified" not in str(raised.value)
        assert retriever.search("Number 7 is odd.", 1)


@pytest.mark.parametrize("use", USES)
def test_a_closed_collection_says_so(folder: Path, use: Callable[[Any], object]) -> None:
    retriever = Retriever.open(folder)
    assert retriever.search("Number 7 is odd.", 1)
    retriever.close()
    with pytest.raises(RetrieverError, match="the collection is closed") as raised:
        use(retriever)
    assert not isinstance(raised.value, Damaged) and raised.value.exit_code == 2


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE documents SET metadata = '{\"n' WHERE id = 'd7'",
        "UPDATE documents SET metadata = 7 WHERE id = 'd7'",
        "UPDATE documents SET title = CAST(x'ff' AS TEXT) WHERE id = 'd7'",
        "UPDATE passages SET start = 'one' WHERE document = (SELECT number FROM documents WHERE id = 'd7')",
        "UPDATE passages SET position = -3 WHERE document = (SELECT number FROM documents WHERE id = 'd7')",
        "UPDATE vectors SET vector = zeroblob(3)",
        "UPDATE vectors SET text_hash = 5 WHERE id = 8",
        "UPDATE generation_files SET bytes = 'text'",
    ],
)
def test_a_damaged_row_is_damage_however_it_is_read(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / "documents.sqlite") as connection:
        connection.execute("DROP TRIGGER words_change_begins")
        connection.execute("DROP TRIGGER words_change_ends")
        connection.execute(statement)
    connection.close()
    reads: list[Callable[[Retriever], object]] = [
        lambda retriever: retriever.search("Number 7 is odd.", 300, mode="dense"),
        lambda retriever: retriever.search("Number 7 is odd.", 300, mode="lexical"),
        lambda retriever: retriever.search("Number 7 is odd.", 300, mode="hybrid", where=["n >= 0"]),
        lambda retriever: retriever.search("Number 7 is odd.", 300, mode="dense", space="raw"),
        lambda retriever: retriever.similar("d7"),
        lambda retriever: retriever.document("d7"),
        lambda retriever: retriever.collection.transform_files(),
    ]
    refused = 0
    with Retriever.open(folder) as retriever:
        for read in reads:
            try:
                read(retriever)
            except Damaged:
                refused += 1
        assert refused and not retriever.verify().clean
