"""The pooling chosen by the text: where another is better it is taken, kept and shown; where it cannot tell, not."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import PETS, Run, make_bert, write_jsonl

from retriever import Document, Retriever
from retriever.corpus.python_docs import stdlib_documents
from retriever.encoder.encoder import Encoder
from retriever.errors import Mismatch, Misuse
from retriever.ingest import pooling_choice
from retriever.ingest.pooling_choice import LEARNED, PASSAGES, SAMPLE_TOKENS, TRANSFORMS, TRIED, choose_pooling

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
def python_documents() -> list[Document]:
    return list(islice(stdlib_documents(), 150))


@pytest.fixture(scope="module")
def deep_bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twelve layers of random weights: what the words say is soon lost in them, so the words themselves know most."""
    return str(make_bert(tmp_path_factory.mktemp("models") / "deep", width=64, layers=12, pooling=False))


@pytest.mark.heavy
def test_a_better_pooling_is_taken_and_kept(tmp_path: Path, deep_bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooling_choice, "SECONDS", 3600.0)  # a busy machine would take a smaller sample
    with Retriever.build(texts(), tmp_path / "c", encoder=deep_bert, pooling="auto", transform="center") as made:
        assert made.info()["encoder"]["pooling"] == LEARNED
        nearest = made.search("The ant and the bee met.")
    with Retriever.open(tmp_path / "c") as again:
        info = again.info()
        assert info["encoder"]["pooling"] == info["pooling_choice"]["chosen"] == LEARNED
        assert again.search("The ant and the bee met.") == nearest
    choice = info["pooling_choice"]
    assert choice["own"] == "first-last" and choice["tokens"] == SAMPLE_TOKENS and choice["seconds"] > 0
    assert choice["verdict"]["tuned"] is False and choice["verdict"]["declared"] is False
    assert choice["queries"] >= 30 and choice["passages"] == PASSAGES
    found = {candidate["pooling"]: candidate for candidate in choice["candidates"]}
    assert set(found) == {*TRIED, LEARNED} and found[LEARNED]["transform"] == "none"
    assert {candidate["transform"] for name, candidate in found.items() if name != LEARNED} == {"center"}
    best, own = found[LEARNED], found["first-last"]
    assert best["gain"] == pytest.approx(best["agreement"] - own["agreement"]) and own["gain"] == 0
    assert 0 < best["low"] <= best["gain"] <= best["high"]

    with Retriever.build(texts(), tmp_path / "plain", encoder=deep_bert, pooling=LEARNED, transform="center") as plain:
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
        assert resumed.info()["encoder"]["pooling"] == resumed.info()["pooling_choice"]["chosen"] == LEARNED
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
        assert made.info()["encoder"]["pooling"] == choice["chosen"] == choice["own"] == "mean"
        assert "and 30 are needed" in choice["reason"] and choice["candidates"] == []


@pytest.mark.parametrize("text", ["{0} pairs here", "word", "nothing{0} shares{0} these{0} words{0}."])
def test_too_short_documents_are_left_alone_and_it_says_so(tiny_bert: str, text: str) -> None:
    documents = [Document(str(number), text.format(number)) for number in range(80)]
    choice = choose_pooling(documents, Encoder(tiny_bert, device="cpu"), "auto", learn=never_learned)
    assert choice.chosen == choice.own and not choice.candidates and choice.verdict is None
    assert "sentences can be used as queries, and 30 are needed, so no other pooling was compared" in choice.reason
    assert json.loads(json.dumps(asdict(choice)))["verdict"] is None


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
    shown = run(*command, "--pooling", "auto", "-v").output
    assert (
        "pooling    learned: the encoder does not look tuned for similarity" in shown
        and "gain over first-last, 95 %" in shown
    )
    assert "7 candidates" in shown and "The transformer's layers are not used at all" in shown
    info = " ".join(run("info", "--index", tmp_path / "c").output.split())
    assert "learned pooling" in info and "of 7 poolings, learned agrees best with a search by words" in info
    stored = json.loads(run("info", "--index", tmp_path / "c", "--json").output)
    assert stored["pooling_choice"]["chosen"] == stored["encoder"]["pooling"] == LEARNED
    again = run(*command, "--pooling", "auto").output
    assert "300 unchanged" in again and "gain over" not in again
    assert "word table, which has only one pooling" in run(*command, "--pooling", "cls", code=2).output


def test_misuse_is_told_before_anything_is_chosen(run: Run, tmp_path: Path, pets: Path, tiny_bert: str) -> None:
    assert (
        "'auto', 'learned', 'mean'" in run("index", pets, "--index", tmp_path / "c", "--pooling", "sum", code=2).output
    )
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


def table_of_words(texts: Sequence[str]) -> pooling_choice.Encode:
    """A stand-in for a learned table: each word has a random vector, and a text is the sum of those of its words."""
    rows: dict[str, Any] = {}
    rng = np.random.default_rng(0)

    def encode(some: Sequence[str]) -> Any:
        split = [text.lower().replace(".", "").split() for text in some]
        for word in sorted({word for words in split for word in words} - set(rows)):
            rows[word] = rng.normal(size=256) * (0.1 if word in ("the", "and", "met", "at") else 1.0)
        return np.array([sum(rows[word] for word in words) for words in split], np.float32)

    return encode


def test_a_learned_table_is_chosen_if_no_pooling_is_better(deep_bert: str) -> None:
    choice = choose_pooling(texts(150), Encoder(deep_bert, device="cpu"), "auto", learn=table_of_words)
    assert choice.chosen == LEARNED and choice.own == "first-last"
    assert "table of the corpus's own words" in choice.reason
    assert "The transformer's layers are not used at all" in choice.reason
    found = {candidate.pooling: candidate for candidate in choice.candidates}
    assert set(found) == {*TRIED, LEARNED} and found[LEARNED].transform == "none"
    assert json.loads(json.dumps(asdict(choice), allow_nan=False))["verdict"]["tuned"] is False


def test_a_learned_table_gives_way_to_a_pooling_that_agrees_better(deep_bert: str) -> None:
    def useless(texts: Sequence[str]) -> pooling_choice.Encode:
        rng = np.random.default_rng(0)
        return lambda some: rng.normal(size=(len(some), 8)).astype(np.float32)

    choice = choose_pooling(texts(150), Encoder(deep_bert, device="cpu"), "auto", learn=useless)
    assert choice.chosen == "word" and "of 7 poolings, word agrees best" in choice.reason


def never_learned(texts: Sequence[str]) -> pooling_choice.Encode:
    raise AssertionError("a tuned encoder needs no table")


def in_another_script(count: int = 200) -> list[Document]:
    """Documents of three sentences of sixty words. The words have two characters each, which MiniLM does not have."""
    rng = np.random.default_rng(0)
    words = [chr(0x3400 + 2 * number) + chr(0x3401 + 2 * number) for number in range(60)]
    lines = ["".join(rng.choice(words, 5, replace=False)) + "。" for _ in range(3 * count)]
    return [Document(f"d{number}", "".join(lines[3 * number : 3 * number + 3])) for number in range(count)]


@pytest.mark.heavy
def test_an_encoder_that_cannot_read_the_text_gives_way_to_a_table_of_its_words(tmp_path: Path) -> None:
    """MiniLM comes with a pooling and looks tuned, but all these texts are the same to it."""
    documents = in_another_script()
    with Retriever.build(documents, tmp_path / "c") as made:
        info = made.info()
        assert info["encoder"]["pooling"] == LEARNED
        assert "the encoder does not know 91% of the tokens of this text" in info["pooling_choice"]["reason"]
        found = [made.search(document.text[:21], 1, mode="dense")[0].id for document in documents[:20]]
    assert found == [document.id for document in documents[:20]]


def test_an_encoder_that_can_read_the_text_keeps_its_pooling(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build(["Ein Satz über Häuser.", "Une phrase, 世 界."], tmp_path / "c", encoder=tiny_bert) as made:
        assert made.info()["encoder"]["pooling"] == "mean" and made.info()["pooling_choice"] is None


@pytest.mark.slow
def test_a_tuned_encoder_keeps_its_own_pooling(python_documents: list[Document]) -> None:
    choice = choose_pooling(python_documents, Encoder(device="cpu"), "auto", learn=never_learned)
    assert choice.chosen == choice.own == "mean" and [c.pooling for c in choice.candidates] == ["mean"]
    verdict = choice.verdict
    assert verdict is not None and verdict.tuned and verdict.declared and verdict.votes >= 4
    assert "looks tuned for similarity" in choice.reason and "its own pooling is kept" in choice.reason
    words = choose_pooling(python_documents, Encoder(pooling="word", device="cpu"), "auto")
    assert words.verdict is not None and not words.verdict.tuned and not words.verdict.declared


def test_a_slow_encoder_gets_a_smaller_sample(deep_bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int | None]] = []
    monkeypatch.setattr(pooling_choice, "SECONDS", 0.0)
    choice = choose_pooling(
        texts(),
        Encoder(deep_bert, device="cpu"),
        "none",
        progress=lambda stage, done, total, detail="": told.append((done, total)),
    )
    assert choice.passages == pooling_choice.FEWEST_PASSAGES and choice.queries <= choice.passages
    total = choice.passages + choice.queries + pooling_choice.BLOCK * len(TRIED)
    assert told[1] == (0, total) and told[-1] == (total, total) and told == sorted(told[:1]) + sorted(told[1:])
    monkeypatch.setattr(pooling_choice, "SHARE", 1e9)
    assert choose_pooling(texts(), Encoder(deep_bert, device="cpu"), "none", fraction=0.5).passages == PASSAGES


@pytest.mark.slow
@pytest.mark.shared
def test_minilm_keeps_its_own_on_unrelated_sentences(wiki_sentences: list[str]) -> None:
    """Where words mislead most: hardly a sentence belongs with another, so BM25 finds chance matches of words."""
    documents = [Document(str(number), text) for number, text in enumerate(wiki_sentences[:2000])]
    choice = choose_pooling(documents, Encoder(), "auto", learn=never_learned)
    assert choice.chosen == choice.own == "mean" and choice.queries > 80
