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

from indexes import terms as terms_module
from indexes.errors import Damaged, NotACollection
from indexes.sqlite import words as words_module
from indexes.terms import MOST_TERMS, field_terms, text_terms, words_of
from retriever import Document, Retriever


def assert_is_bm25(retriever: Retriever, documents: list[Document], query: str) -> None:
    expected = bm25(query, documents)
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


def test_the_common_words_of_a_large_collection_are_not_searched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rarest words are searched that as many documents have as FTS5 may find, and always one."""
    documents = some_documents(200)
    monkeypatch.setattr(words_module, "MANY", 100)
    having = {word: sum(word in f"{one.title} {one.text}".split() for one in documents) for word in WORDS}
    by_number = {number: word for word, number in having.items() if 2 * number <= 200}  # of equal ones, the last
    rarest = [by_number[number] for number in sorted(by_number)]
    query = " ".join(reversed(rarest))
    monkeypatch.setattr(words_module, "MOST_FOUND_SHARE", 0)
    for most, searched in ((having[rarest[0]] + having[rarest[1]], rarest[:2]), (1, rarest[:1]), (10_000, rarest)):
        monkeypatch.setattr(words_module, "MOST_FOUND", most)
        expected = bm25(" ".join(searched), documents)
        best = np.argsort(-np.asarray(expected), kind="stable")[:5]
        with Retriever.open(folder) as retriever:
            hits = retriever.search(query, 5, mode="lexical")
        assert [hit.id for hit in hits] == [documents[place].id for place in best]
        np.testing.assert_allclose([hit.score for hit in hits], [expected[place] for place in best], rtol=1e-6)


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
    english = {
        "a": "The CAFÉS were opened in the morning, and people came to drink coffee and to read the newspapers.",
        "b": "Nothing of the kind.",
        "Ꮳ": "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ",  # capitals that Python folds and FTS5 does not
    }
    hindi = {"x": "हिन्दी भाषा में लिखा है", "y": "किताब"}
    for language, texts, expected in (
        ("en", english, {"cafe": "a", "opening": "a", "kinds": "b", "ᏣᎳᎩ": "Ꮳ"}),
        ("hi", hindi, {"हिन्दी": "x", "भाषा": "x", "भाषाओं": "x", "किताबें": "y"}),
    ):
        documents = [Document(id_, text) for id_, text in texts.items()]
        with Retriever.build(documents, tmp_path / language, encoder=tiny_bert) as retriever:
            assert retriever.collection.words.language == language
            for query, found in expected.items():
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
            plain = " ".join(words_of(query))
            expected = retriever.search(plain, 5, mode="lexical") if plain else []
            # The relevance is lower if no document has the parts joined, as of `title:cat`.
            assert [(hit.id, hit.score) for hit in hits] == [(hit.id, hit.score) for hit in expected]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
@example("cat " * 2000)
@example(" ".join(f"w{i}" for i in range(5000)))
@example("x" * 300_000)
@example('"' + "x" * 300_000)
@example("_" * 300_000 + "$")
def test_any_text_can_be_looked_for(folder: Path, query: str) -> None:
    if query.strip():
        with Retriever.open(folder) as retriever:
            retriever.search(query, 3, mode="lexical")


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_as_many_as_anybody_asks_for(folder: Path, mode: str) -> None:
    with Retriever.open(folder) as retriever:
        hits = retriever.search("cat dog", 2**70, mode=mode)  # type: ignore[arg-type]
        assert len(hits) == len({hit.id for hit in hits}) > 100


def test_of_allowed_documents_as_of_all(folder: Path) -> None:
    with Retriever.open(folder) as retriever:
        words = retriever.collection.words
        few = words.best("cat dog", 20, np.arange(1, 201, 3))
        assert few == [found for found in words.best("cat dog", 200) if found[0] % 3 == 1][:20]


@pytest.mark.parametrize("kept", [0, 150, 2_000_000])
def test_a_query_scores_as_fts5_scores_it(folder: Path, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum over kept terms is, to the last bit, what FTS5 computes for the whole query, however few are kept."""
    monkeypatch.setattr("indexes.sqlite.postings.MOST_KEPT", kept)
    with Retriever.open(folder) as retriever:
        words = retriever.collection.words
        for query in ["cat", "cat dog", "dog cat bird", "cat dog", "bird of the cat", "nothing"]:
            terms = " OR ".join(f'"{term}"' for term in words.terms(query))
            rows = retriever.collection.store.db.conn.execute(
                "SELECT rowid, -bm25(words, 1, 2, 1, 4) FROM words WHERE words MATCH ? ORDER BY 2 DESC, 1", [terms]
            ).fetchall()
            assert words.best(query, 300) == rows
            assert words.scores(query, range(1, 300)) == dict(rows)


def test_what_is_kept_of_terms_follows_every_change(copy: Path) -> None:
    """Changes by this process and by another one, in which a known term gets and loses documents."""
    with Retriever.open(copy) as retriever, Retriever.open(copy) as other:
        words = retriever.collection.words
        before = words.best("cat dog", 300)
        for changing in (retriever, other):
            changing.add([{"id": "new-cat", "text": "cat dog cat dog"}])
            after = words.best("cat dog", 300)
            assert len(after) == len(before) + 1
            changing.delete(["new-cat"])
            assert words.best("cat dog", 300) == before


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


@pytest.mark.parametrize(
    ("query", "suggestion"),
    [("bow rainbowx", "bowl rainbowx"), ("Tabel tabel", "table table"), ("1799", None), ("tabel 1799", "table 1799")],
)
def test_suggestions_replace_whole_words_and_no_numbers(
    tmp_path: Path, tiny_bert: str, query: str, suggestion: str | None
) -> None:
    documents = [*some_documents(20), Document("a", "A bowl on a table, bought in 1798.")]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="none") as retriever:
        assert retriever.answer_many([query], mode="lexical")[0].suggestion == suggestion


LONG = {
    "different words": " ".join(f"w{number}" for number in range(100_000)),
    "marked words": " ".join(f"ü{number}" for number in range(90_000)),
    "identifiers": " ".join(f"w{number}B.c" for number in range(70_000)),
    "one identifier": "a.b " * 240_000,
    "humps": "aB" * 400_000,
    "one character": "中" * 500_000,
    "characters": "".join(chr(0x4E00 + number % 20_000) for number in range(500_000)),
}


@pytest.mark.parametrize("name", LONG)
def test_a_query_as_long_as_may_be_is_read_as_far_as_it_counts(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work does not grow with the length of the query: few words are stemmed, and none of the long ones is kept."""
    stemmed = 0

    def counted(word: str, language: str) -> str:
        nonlocal stemmed
        stemmed += 1
        return stem(word, language)

    stem = terms_module._stem
    monkeypatch.setattr(terms_module, "_stem", counted)
    with Retriever.open(folder) as retriever:
        retriever.search(f"cat {LONG[name]}", 3, mode="lexical", explain=True)
        hits = retriever.search(f"cat {LONG[name]}", 3, mode="lexical", explain=True)
        assert hits[0].explanation is not None and hits[0].explanation.matched == ("cat",)
        assert len(retriever.collection.words.terms(LONG[name])) <= MOST_TERMS
        known = terms_module._known(retriever.collection.words.language)
    assert stemmed < 50 * MOST_TERMS
    assert all(len(run) <= terms_module.LONGEST for run in known)


@given(st.text("ab1 .\n\u3000_\u4e2d\u0301", max_size=60), st.integers(1, 20))
def test_long_texts_are_cut_between_terms(text: str, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terms_module, "PIECE", piece)
        for terms in (text_terms, field_terms):
            assert sorted(terms_module.joined(terms, text, "en").split()) == sorted(terms(text, "en"))
