"""Full-width letters, composed characters, and queries in capitals or without diacritics."""

import json
import shutil
import time
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from indexes.terms import MOST_MARKS, fold
from retriever import Document, Retriever
from retriever.encoder.writing import as_written, in_capitals, plain, without_marks

GERMAN = "Die Wörter dieser Sammlung sind deutsch, und deshalb werden sie mit Umlauten geschrieben. " * 3


def wide(text: str) -> str:
    return "".join(chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter for letter in text)


def test_plain() -> None:
    assert plain(wide("IL-6 binds (50%).")) == "IL-6 binds (50%)."
    assert plain("使用ＤＮＡ，然后") == "使用DNA，然后"
    assert plain(unicodedata.normalize("NFD", "café")) == "café"


def test_a_long_row_of_marks_takes_no_quadratic_time() -> None:
    """Sorting the marks of a letter takes n² steps in Python's normalisation: 24 s for 80,000 of them."""
    row = "\u0301\u0316" * 40_000
    began = time.process_time()
    assert fold(f"a{row}b") == "ab"
    assert len(plain(f"a{row}b")) == MOST_MARKS + 1
    as_written(f"A{row}", [f"a{row}"])
    assert time.process_time() - began < 3
    usual = "a" + "\u0316" * MOST_MARKS + "👍" * 100
    assert plain(usual) == usual


def test_a_query_in_capitals_is_written_as_the_texts_write_it() -> None:
    texts = ["The DNA repair of a café.", "Repair needs the DNA.", "a repair in the Café, the café"]
    assert as_written("THE REPAIR OF DNA AT A CAFE, NOW", texts) == "the repair of DNA at a café, now"
    assert in_capitals("WHAT IS IT?")
    assert in_capitals(wide("WHAT"))
    assert not in_capitals("What")
    assert not in_capitals("什么 12")


def test_diacritics_of_a_query_are_restored() -> None:
    texts = ["Über die Mädchen.", "über das DNA Café", "ein cafe, das cafe"]
    assert as_written("was uber das madchen im cafe", texts) == "was über das Mädchen im cafe"
    assert as_written("uber die madchen, dna", texts) == "über die Mädchen, dna"
    assert without_marks("uber") and without_marks("UBER 12")
    assert not any(map(without_marks, ["über", "u\u0308ber", "什么", "12"]))


@pytest.fixture
def cased(tiny_bert: str, tmp_path: Path) -> str:
    folder = Path(shutil.copytree(tiny_bert, tmp_path / "cased"))
    path = folder / "tokenizer.json"
    changed = path.read_text().replace('"lowercase": true', '"lowercase": false')
    path.write_text(changed.replace('"lowercase":true', '"lowercase":false'))
    return str(folder)


def test_a_search_in_capitals_with_a_cased_encoder(cased: str, tmp_path: Path) -> None:
    documents = [Document("d1", "the dog sleeps"), Document("d2", "a cat sat on the mat"), Document("d3", "one two")]
    Retriever.build(documents, tmp_path / "c", encoder=cased, pooling="mean", transform="none").close()
    with Retriever.open(tmp_path / "c") as opened:
        assert opened.encoder().distinguishes_case
        written = ["the dog", "THE DOG", wide("the dog"), wide("THE DOG")]
        vectors = opened.query_vectors(written)
        np.testing.assert_allclose(vectors, np.repeat(vectors[:1], 4, axis=0), atol=1e-6)
        hits = [[(hit.id, round(hit.score, 5)) for hit in found] for found in opened.search_many(written, 3)]
        assert hits[1:] == hits[:1] * 3


def test_a_search_without_diacritics_with_an_encoder_that_distinguishes_them(cased: str, tmp_path: Path) -> None:
    """The tokens of "é" are replaced in its vocabulary, because the made-up BERT knows no accents."""
    path = Path(cased) / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    assert "dog" in vocabulary
    vocabulary["dög"] = vocabulary.pop("dog")
    vocabulary["élève"] = vocabulary.pop("cat")
    path.write_text(json.dumps(tokenizer))
    documents = [Document("d1", "the dög sleeps"), Document("d2", "a mat on the mat"), Document("d3", GERMAN)]
    Retriever.build(documents, tmp_path / "c", encoder=cased, pooling="mean", transform="none").close()
    with Retriever.open(tmp_path / "c") as opened:
        assert opened.encoder().distinguishes_marks and opened.collection.words.language == "de"
        vectors = opened.query_vectors(["the dög", "the dog", "THE DOG"])
        np.testing.assert_allclose(vectors, np.repeat(vectors[:1], 3, axis=0), atol=1e-6)
        found, same = opened.search_many(["the dög", "the dog"], mode="dense")
        assert [(hit.id, round(hit.score, 5)) for hit in same] == [(hit.id, round(hit.score, 5)) for hit in found]
