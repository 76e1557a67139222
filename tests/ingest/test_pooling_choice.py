"""The pooling chosen by the text: where another is better it is taken, kept and shown; where it cannot tell, not."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import PETS, Run, make_bert, write_jsonl

from retriever import Document, Retriever
from retriever.encoder.encoder import Encoder
from retriever.errors import Mismatch, Misuse
from retriever.ingest.pooling_choice import (
    MARGIN,
    PASSAGES,
    TRANSFORMS,
    TRIED,
    PoolingCandidate,
    _decide,
    choose_pooling,
)

WORDS = "ant bee cat dog elk fox gnu hen owl pig rat yak sea sky sun ice fog oak elm ash tin gem jar pot bus".split()


def texts(count: int = 300) -> list[Document]:
    """Documents of three sentences about one of thirty topics, each of which has words of its own."""
    rng = np.random.default_rng(0)
    topics = [rng.choice(WORDS, 5, replace=False) for _ in range(30)]
    found = []
    for number in range(count):
        topic = topics[rng.integers(len(topics))]
        lines = [f"The {' and the '.join(rng.choice(topic, 3))} met at {rng.integers(1000)}." for _ in range(3)]
        found.append(Document(f"d{number}", " ".join(lines)))
    return found


@pytest.fixture(scope="module")
def deep_bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twelve layers of random weights: what the words say is soon lost in them, so the words themselves know most."""
    return str(make_bert(tmp_path_factory.mktemp("models") / "deep", width=64, layers=12))


@pytest.mark.heavy
def test_a_better_pooling_is_taken_and_kept(tmp_path: Path, deep_bert: str) -> None:
    with Retriever.build(texts(), tmp_path / "c", encoder=deep_bert, pooling="auto", transform="center") as made:
        assert made.info()["encoder"]["pooling"] == "word"
        nearest = made.search("The ant and the bee met.")
    with Retriever.open(tmp_path / "c") as again:
        info = again.info()
        assert info["encoder"]["pooling"] == info["pooling_choice"]["chosen"] == "word"
        assert again.search("The ant and the bee met.") == nearest
    choice = info["pooling_choice"]
    assert choice["own"] == "first-last" and choice["margin"] == MARGIN and choice["seconds"] > 0
    assert choice["queries"] >= 30 and choice["passages"] == 300
    found = {candidate["pooling"]: candidate for candidate in choice["candidates"]}
    assert set(found) == set(TRIED) and {candidate["transform"] for candidate in found.values()} == {"center"}
    best, own = found["word"], found["first-last"]
    assert best["gain"] == pytest.approx(best["agreement"] - own["agreement"]) and own["gain"] == 0
    assert 0 < best["low"] <= best["gain"] <= best["high"] and best["gain"] >= MARGIN * own["agreement"]

    with Retriever.build(texts(), tmp_path / "plain", encoder=deep_bert, pooling="word", transform="center") as plain:
        assert plain.info()["pooling_choice"] is None
        assert [hit.id for hit in plain.search("The ant and the bee met.")] == [hit.id for hit in nearest]


@pytest.mark.heavy
def test_an_existing_collection_keeps_its_pooling(tmp_path: Path, deep_bert: str) -> None:
    options: dict[str, Any] = {"encoder": deep_bert, "transform": "none"}
    Retriever.build(texts(40), tmp_path / "c", pooling="cls", **options).close()
    for pooling in ("auto", None, "cls"):
        with Retriever.build(texts(), tmp_path / "c", pooling=pooling, **options) as same:
            assert same.info()["encoder"]["pooling"] == "cls" and same.info()["pooling_choice"] is None
    with pytest.raises(Mismatch, match="pooling first instead of cls"):
        Retriever.build(texts(), tmp_path / "c", pooling="first", **options)


class Stopped(BaseException):
    """As a kill would: nothing catches it."""


@pytest.mark.heavy
@pytest.mark.parametrize("stage", ["choosing a pooling", "embedding"])
def test_interrupted_it_goes_on_with_the_same_pooling(tmp_path: Path, deep_bert: str, stage: str) -> None:
    documents = texts()

    def stop(now: str, done: int, total: int | None, detail: str = "") -> None:
        if now == stage and done >= 64:
            raise Stopped

    options: dict[str, Any] = {"encoder": deep_bert, "pooling": "auto", "transform": "none"}
    with pytest.raises(Stopped):
        Retriever.build(documents, tmp_path / "c", progress=stop, **options)
    assert (tmp_path / "c").exists() == (stage == "embedding")
    stages = set()
    with Retriever.build(documents, tmp_path / "c", progress=lambda now, *told: stages.add(now), **options) as resumed:
        assert resumed.info()["encoder"]["pooling"] == resumed.info()["pooling_choice"]["chosen"] == "word"
        assert len(resumed) == len(documents)
        assert ("choosing a pooling" in stages) == (stage == "choosing a pooling")
        assert (resumed.report.texts_reused > 0) == (stage == "embedding")


def test_what_can_be_read_once_loses_nothing(tmp_path: Path, deep_bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retriever.corpus.source.DOCUMENTS_AHEAD", 100)
    documents = texts()

    def once() -> Iterator[Document | dict[str, Any]]:
        yield from documents[:50]
        yield {"id": "bad", "text": ""}
        yield from documents[50:]

    with Retriever.build(once(), tmp_path / "c", encoder=deep_bert, pooling="auto", transform="none") as made:
        assert made.report.new == len(made) == len(documents) and made.report.skipped == 1
        assert made.info()["pooling_choice"]["passages"] == 99
        assert [made.document(d.id).text for d in documents] == [d.text for d in documents]


def test_too_little_text_keeps_the_models_own(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build(PETS, tmp_path / "c", encoder=tiny_bert, pooling="auto") as made:
        choice = made.info()["pooling_choice"]
        assert made.info()["encoder"]["pooling"] == choice["chosen"] == choice["own"] == "first-last"
        assert "and 30 are needed" in choice["reason"] and choice["candidates"] == []


@pytest.mark.heavy
def test_the_transform_asked_for_is_the_one_they_are_judged_by(deep_bert: str) -> None:
    encoder = Encoder(deep_bert, device="cpu")
    for asked, used in (("flow:steps=9", {"whiten"}), ("whiten:dimension=8", {"whiten:dimension=8"})):
        assert {c.transform for c in choose_pooling(texts(150), encoder, asked).candidates} == used
    free = choose_pooling(texts(150), encoder, "auto")
    assert {c.transform for c in free.candidates} <= set(TRANSFORMS)
    assert choose_pooling(texts(150), encoder, "auto").candidates == free.candidates


def test_a_pooling_of_its_own_is_compared_too(deep_bert: str) -> None:
    choice = choose_pooling(texts(150), Encoder(deep_bert, pooling="max", device="cpu"), "none")
    assert choice.own == choice.candidates[0].pooling == "max" and len(choice.candidates) == len(TRIED) + 1


@pytest.mark.heavy
def test_one_long_document_does_not_fill_the_sample(deep_bert: str) -> None:
    long = Document("long", " ".join(document.text for document in texts(2000)))
    choice = choose_pooling([*texts(199), long], Encoder(deep_bert, max_length=16, device="cpu"), "none")
    assert 199 < choice.passages <= PASSAGES and choice.queries > 100


@pytest.mark.heavy
def test_the_command_shows_the_choice_and_its_evidence(run: Run, tmp_path: Path, deep_bert: str) -> None:
    source = write_jsonl(tmp_path / "s.jsonl", [{"id": d.id, "text": d.text} for d in texts()])
    command = ("index", source, "--index", tmp_path / "c", "--encoder", deep_bert, "--transform", "center")
    shown = run(*command, "--pooling", "auto").output
    assert (
        "pooling    word: word agrees with the words of the text better" in shown
        and "gain over first-last, 95 %" in shown
    )
    assert "6 candidates" in shown and "first-last, the model's own, has a margin of 10%" in shown
    info = " ".join(run("info", "--index", tmp_path / "c").output.split())
    assert "word pooling" in info and "pooling word: word agrees with the words of the text better" in info
    stored = json.loads(run("info", "--index", tmp_path / "c", "--json").output)
    assert stored["pooling_choice"]["chosen"] == stored["encoder"]["pooling"] == "word"
    again = run(*command, "--pooling", "auto").output
    assert "300 unchanged" in again and "gain over" not in again
    assert "pooling cls instead of word" in run(*command, "--pooling", "cls", code=1).output


def test_misuse_is_told_before_anything_is_chosen(run: Run, tmp_path: Path, pets: Path, tiny_bert: str) -> None:
    assert "'auto', 'mean'" in run("index", pets, "--index", tmp_path / "c", "--pooling", "sum", code=2).output
    with pytest.raises(Misuse, match="unknown pooling 'sum'.*auto for a new collection"):
        Retriever.build(PETS, tmp_path / "c", encoder=tiny_bert, pooling="sum")
    with pytest.raises(Misuse, match="no document in the source"):
        Retriever.build([], tmp_path / "c", encoder=tiny_bert, pooling="auto")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()

    def never(stage: str, done: int, total: int | None, detail: str = "") -> None:
        raise AssertionError(stage)

    with pytest.raises(Misuse, match="holds other files"):
        Retriever.build(PETS, tmp_path / "taken", encoder=tiny_bert, pooling="auto", progress=never)
    assert not (tmp_path / "c").exists()


def test_damaged_evidence_is_found_and_forgotten(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build(PETS, tmp_path / "c", encoder=tiny_bert, pooling="auto", transform="none") as made:
        with made.collection.store.db.conn as connection:
            connection.execute("UPDATE settings SET value = '{' WHERE key = 'pooling_choice'")
        assert made.verify(repair=True).problems == ["the setting 'pooling_choice' does not match its checksum"]
    with Retriever.open(tmp_path / "c") as again:
        assert again.verify().clean and again.info()["pooling_choice"] is None


def test_an_encoder_tuned_for_similarity_keeps_its_own_whatever_the_words_say() -> None:
    own = PoolingCandidate("mean", "none", 0.4, 0.0, 0.0, 0.0)
    other = PoolingCandidate("word", "whiten", 0.6, 0.2, 0.19, 0.21)
    assert _decide((own, other), worth=0.5)[0] == "word"
    chosen, reason = _decide((own, other), worth=0.02)
    assert chosen == "mean" and "tuned for similarity (the best transform gains only 2%)" in reason
    assert _decide((own, replace(other, low=-0.01)), worth=0.5)[0] == "mean"
    assert _decide((own, replace(other, agreement=0.43, gain=0.03)), worth=0.5)[0] == "mean"


@pytest.mark.slow
@pytest.mark.shared
def test_minilm_keeps_its_own_on_unrelated_sentences(wiki_sentences: list[str]) -> None:
    """Where words mislead most: hardly a sentence belongs with another, so BM25 finds chance matches of words."""
    documents = [Document(str(number), text) for number, text in enumerate(wiki_sentences[:2000])]
    choice = choose_pooling(documents, Encoder(), "auto")
    assert choice.chosen == choice.own == "mean" and choice.queries > 300
    assert max(choice.candidates, key=lambda candidate: candidate.agreement).pooling == "word"
