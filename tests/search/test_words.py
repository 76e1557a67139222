"""Search by words through the public API: BM25 by an independent implementation, queries as data, damage mended."""

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bm25 import WORDS, bm25, some_documents
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from indexes.errors import Damaged, NotACollection
from indexes.sqlite.words import query_words
from retriever import Document, Retriever


def assert_is_bm25(retriever: Retriever, documents: list[Document], query: str) -> None:
    expected = bm25(query, [f"{document.title} {document.text}" for document in documents])
    by_id = dict(zip([document.id for document in documents], expected, strict=True))
    hits = retriever.search(query, len(documents), mode="lexical")
    assert {hit.id for hit in hits} == {id_ for id_, score in by_id.items() if score}
    np.testing.assert_allclose([hit.score for hit in hits], [by_id[hit.id] for hit in hits], rtol=1e-6)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    folder = tmp_path_factory.mktemp("words") / "c"
    Retriever.build(some_documents(200), folder, encoder=tiny_bert, transform="none").close()
    return folder


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "c"))


@pytest.mark.parametrize("query", ["cat", "cat dog owl", "Cat CAT yak", "unicorn", "unicorn ant"])
def test_scores_are_bm25(folder: Path, query: str) -> None:
    with Retriever.open(folder) as retriever:
        assert_is_bm25(retriever, some_documents(200), query)


def test_follows_adds_changes_and_deletes(copy: Path) -> None:
    documents = {document.id: document for document in some_documents(200)}
    with Retriever.open(copy) as writer:
        writer.add(new := [Document(f"n{i}", f"cat {WORDS[i]} newt") for i in range(10)])
        writer.add(changed := [Document(f"d{i}", f"cat {WORDS[i]} newt newt") for i in range(10)])
        writer.delete([f"d{i}" for i in range(50, 90)])
    documents |= {document.id: document for document in new + changed}
    left = [document for id_, document in documents.items() if id_ not in {f"d{i}" for i in range(50, 90)}]
    with Retriever.open(copy) as reader:
        for query in ("cat", "newt", "dog elk"):
            assert_is_bm25(reader, left, query)
        assert reader.verify().clean


def test_stems_case_and_diacritics_do_not_matter(tmp_path: Path, tiny_bert: str) -> None:
    texts = {
        "a": "The CAFÉS were opened.",
        "b": "Nothing of the kind.",
        "हि": "हिन्दी भाषा में लिखा है",
        "Ꮳ": "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ",  # capitals that Python folds and FTS5 does not
    }
    documents = [Document(id_, text) for id_, text in texts.items()]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert) as retriever:
        for query, found in {
            "cafe": "a",
            "opening": "a",
            "kinds": "b",
            "हिन्दी": "हि",
            "भाषा": "हि",
            "ᏣᎳᎩ": "Ꮳ",
        }.items():
            assert [hit.id for hit in retriever.search(query, mode="lexical")] == [found], query


HOSTILE = [
    *('"', '""', "'", "NEAR(", "NEAR(cat dog, 2)", "cat*", "-cat", "cat AND", "NOT cat", "((cat", ")", "^cat"),
    *("title:cat", "{title text}:cat", "cat + dog", "a\x00b", "😀", "cat😀dog", "%", ";--", "\\", "١٢", "\u200bcat"),
]


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
@pytest.mark.parametrize("query", HOSTILE)
def test_nothing_in_a_query_means_anything_to_fts5(folder: Path, query: str, mode: str) -> None:
    with Retriever.open(folder) as retriever:
        hits = retriever.search(query, 5, mode=mode)  # type: ignore[arg-type]
        if mode == "lexical":
            plain = " ".join(query_words(query))
            assert hits == (retriever.search(plain, 5, mode="lexical") if plain else [])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
@example("cat " * 2000)
@example(" ".join(f"w{i}" for i in range(5000)))
def test_any_text_can_be_looked_for(folder: Path, query: str) -> None:
    if query.strip():
        with Retriever.open(folder) as retriever:
            retriever.search(query, 3, mode="lexical")


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_as_many_as_anybody_asks_for(folder: Path, mode: str) -> None:
    with Retriever.open(folder) as retriever:
        hits = retriever.search("cat dog", 2**70, mode=mode)  # type: ignore[arg-type]
        assert len(hits) == len({hit.id for hit in hits}) > 100


def test_of_many_allowed_documents_as_of_few(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents are named to SQLite or passed over, by their number; what is found is the same."""
    with Retriever.open(folder) as retriever:
        words = retriever.collection.words
        allowed = np.arange(1, 201, 3)
        few = words.best("cat dog", 20, allowed)
        monkeypatch.setattr("indexes.sqlite.words.LISTED", 10)
        assert words.best("cat dog", 20, allowed) == few
        assert few == [found for found in words.best("cat dog", 200) if found[0] % 3 == 1][:20]


def test_a_collection_whose_first_run_was_cut_off_is_refused(copy: Path) -> None:
    connection = sqlite3.connect(copy / "documents.sqlite")
    connection.execute("DELETE FROM generations")
    connection.commit()
    connection.close()
    with Retriever.open(copy) as retriever, pytest.raises(NotACollection, match="first run was interrupted"):
        retriever.search("cat", mode="lexical")


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_a_document_that_lost_its_passages_is_told(copy: Path, mode: str) -> None:
    connection = sqlite3.connect(copy / "documents.sqlite")
    connection.execute("DELETE FROM passages WHERE document = 7")
    connection.commit()
    connection.close()
    with Retriever.open(copy) as retriever, pytest.raises(Damaged, match="document number 7 lacks passages"):
        retriever.search(" ".join(WORDS), 200, mode=mode)  # type: ignore[arg-type]


def test_needs_neither_encoder_nor_torch(folder: Path) -> None:
    code = (
        "import sys, shutil\n"
        "from retriever import Retriever\n"
        "hits = Retriever.open(sys.argv[1]).search('cat dog', mode='lexical', highlight=True)\n"
        "assert hits and not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)


def test_shows_the_passage_and_marks_the_sentence_with_the_words(tmp_path: Path, tiny_bert: str) -> None:
    filler = " ".join(f"This is sentence {i} about nothing much at all." for i in range(60))
    text = f"{filler} Zebras graze. The quagga was a striped zebra of the Cape. {filler}"
    with Retriever.build([Document("z", text)], tmp_path / "c", encoder=tiny_bert) as retriever:
        assert retriever.info()["passages"] > 2
        (hit,) = retriever.search("quagga zebras", mode="lexical", highlight=True)
        assert hit.highlight is not None
        assert hit.passage[slice(*hit.highlight)] == "The quagga was a striped zebra of the Cape."
        assert text[hit.start : hit.end] == hit.passage


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM words_docsize WHERE id < 9",
        "UPDATE words_data SET block = zeroblob(length(block)) WHERE id > 1000",
        "INSERT INTO words (words, rowid, title, text) VALUES ('delete', 5, 'x', 'cat')",
        "DROP TRIGGER words_leave",
        "DROP TABLE words",
    ],
)
def test_damaged_words_are_found_and_made_again(copy: Path, damage: str) -> None:
    connection = sqlite3.connect(copy / "documents.sqlite")
    connection.execute(damage)
    connection.commit()
    connection.close()
    with Retriever.open(copy) as retriever:
        assert any("index of words" in problem for problem in retriever.verify().problems)
        report = retriever.verify(repair=True)
        assert "rebuilt the index of words" in report.repaired and not report.left
        assert retriever.verify().clean
        assert_is_bm25(retriever, some_documents(200), "cat dog")
