"""The passages and pairs that an encoder is tuned on."""

import pytest
from tuning_made_up import articles

from retriever.encoder.encoder import Encoder
from retriever.errors import Misuse, NoDocuments
from retriever.tune.evidence import Evidence
from retriever.tune.texts import halves, read_texts, training_pairs


def test_held_out_documents_are_not_tuned_on(tiny_bert: str) -> None:
    texts = read_texts(articles(200), Encoder(tiny_bert, max_length=64))
    assert texts.training and texts.held_out and not set(texts.training) & set(texts.held_out)
    assert len(texts.documents) == len(texts.held_out) == len(set(texts.documents))
    assert texts == read_texts(articles(200), Encoder(tiny_bert, max_length=64))
    assert texts != read_texts(articles(200), Encoder(tiny_bert, max_length=64), seed=1)


def test_half_of_the_pairs_are_crops(tiny_bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retriever.tune.texts.LEAST_PAIRS", 500)
    monkeypatch.setattr("retriever.tune.texts.LEFT_OUT", 0.0)
    passages = read_texts(articles(150), Encoder(tiny_bert, max_length=64)).training
    pairs = training_pairs(passages, 16, seed=0)
    assert len(pairs) % 16 == 0 and len(pairs) >= 500
    assert pairs == training_pairs(passages, 16, seed=0)
    crops = [pair for pair in pairs if pair[0] != pair[1]]
    assert 0.3 < len(crops) / len(pairs) < 0.7
    for crop, rest in crops:
        whole = next(text for text in passages if crop in text)
        assert sorted(f"{crop} {rest}".split()) == sorted(whole.split())


def test_one_sentence_is_paired_with_itself_with_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retriever.tune.texts.LEAST_PAIRS", 2000)
    passages = [f"number{number} " + " ".join(f"w{number}x{word}" for word in range(9)) for number in range(64)]
    pairs = training_pairs(passages, 4, seed=0)
    left_out = []
    for pair in pairs:
        whole = next(text for text in passages if pair[0].split()[0] in text.split())
        for text in pair:
            left_out.append(1 - len(text.split()) / 10)
            assert text.split() == [word for word in whole.split() if word in text.split()]
    assert 0.27 < sum(left_out) / len(left_out) < 0.33


def test_a_batch_never_holds_a_passage_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retriever.tune.texts.LEAST_PAIRS", 500)
    monkeypatch.setattr("retriever.tune.texts.LEFT_OUT", 0.0)
    pairs = training_pairs([f"This is text {number}" for number in range(70)], 16, seed=0)
    for start in range(0, len(pairs), 16):
        assert len(set(pairs[start : start + 16])) == 16


def test_halves() -> None:
    assert halves("one two three four five six") == ("one two three", "four five six")
    assert halves("one two three four five") is None


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (["A single document of some words."], "only 0 different passages"),
        (articles(20), "different passages of at least 3 words to tune on, in 20 documents"),
        (["same words again and again"] * 1000, "only [01] different passages"),
        (["two words"] * 1000, "only 0 different passages"),
        (["spam " * 100_000], "different passages"),
    ],
)
def test_too_little_text(documents: list[str], message: str, tiny_bert: str) -> None:
    with pytest.raises(Misuse, match=message):
        read_texts(documents, Encoder(tiny_bert, max_length=64))


def test_no_documents(tiny_bert: str) -> None:
    with pytest.raises(NoDocuments):
        read_texts([], Encoder(tiny_bert, max_length=64))


def test_texts_that_share_no_words_give_no_evidence(tiny_bert: str) -> None:
    documents = [" ".join(f"w{number}x{word}" for word in range(5)) for number in range(300)]
    texts = read_texts(documents, Encoder(tiny_bert, max_length=64))
    with pytest.raises(Misuse, match="too little text to measure whether tuning helps"):
        Evidence(texts, 0)
