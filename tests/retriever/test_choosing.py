"""The choice without labels: on vectors where the right answer is known, and kept with the collection."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from retriever import Document, Retriever
from retriever.choosing import CANDIDATES, Choice, Evidence, choose
from retriever.lexical import Bm25

TOPICS, WORDS, DIMENSION = 40, 12, 32


def test_bm25_as_its_formula_says() -> None:
    texts = ["the cat sat on the mat", "a dog sat", "The CAT! the cat?", "", "nothing here at all"]
    queries = ["cat sat", "the the", "unknown words", ""]
    tokens = [[w.strip("!?").lower() for w in text.split()] for text in texts]
    mean = sum(len(own) for own in tokens) / len(tokens)
    expected = np.zeros((len(queries), len(texts)))
    for q, query in enumerate(queries):
        for t, own in enumerate(tokens):
            for word in query.split():
                holding = sum(word in other for other in tokens)
                idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
                tf = own.count(word)
                expected[q, t] += idf * tf * 1.9 / (tf + 0.9 * (1 - 0.4 + 0.4 * len(own) / mean)) if tf else 0
    np.testing.assert_allclose(Bm25(texts).scores(queries), expected, atol=1e-12)


class World:
    """Texts about topics, and an encoder whose vectors hold the topic plus whatever `noise` adds."""

    def __init__(self, noise: float, passages: int = 600) -> None:
        rng = np.random.default_rng(0)
        self.topics = rng.normal(size=(TOPICS, DIMENSION))
        self.cone = rng.normal(size=(2, DIMENSION)) * 8
        self.noise = noise
        self.rng = rng
        about = rng.integers(TOPICS, size=passages)
        self.texts = [" ".join(f"w{t}x{n}" for n in rng.integers(WORDS, size=10)) + "." for t in about]
        self.evidence = Evidence(self.texts, np.arange(passages), self.encode(self.texts))

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        about = [int(text[1:].split("x")[0]) for text in texts]
        common = self.rng.normal(size=(len(texts), 2)) @ self.cone * self.noise
        return (self.topics[about] + common + 0.3 * self.rng.normal(size=(len(texts), DIMENSION))).astype(np.float32)

    def choose(self) -> Choice:
        return choose(self.evidence, self.encode, self.evidence.vectors)


def test_a_cone_is_undone() -> None:
    choice = World(noise=3.0).choose()
    assert choice.chosen.startswith(("whiten", "bert-flow"))
    none, chosen = (next(c for c in choice.candidates if c.spec == spec) for spec in ("none", choice.chosen))
    assert chosen.low > 0 and chosen.low <= chosen.gain <= chosen.high
    assert chosen.gain > choice.margin * none.agreement
    assert chosen.agreement - none.agreement == pytest.approx(chosen.gain)


def test_good_vectors_are_left_alone() -> None:
    choice = World(noise=0.0).choose()
    assert choice.chosen == "none"
    assert {candidate.spec for candidate in choice.candidates} <= set(CANDIDATES)
    assert all(0 <= candidate.agreement <= 1 + 1e-9 for candidate in choice.candidates)


def test_too_little_to_judge_by() -> None:
    choice = World(noise=3.0, passages=20).choose()
    assert choice.chosen == "none" and "could serve as queries" in choice.reason and not choice.candidates


def test_the_same_seed_chooses_the_same() -> None:
    first, second = World(noise=1.0).choose(), World(noise=1.0).choose()
    assert first.candidates == second.candidates


def test_kept_with_the_collection_and_not_made_again(tmp_path: Path, tiny_bert: str) -> None:
    rng = np.random.default_rng(0)
    documents = [
        Document(str(i), f"The {' and the '.join(f'{w}' for w in rng.choice(TEXT_WORDS, 6))} met in number {i}.")
        for i in range(300)
    ]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert) as retriever:
        choice = retriever.info()["choice"]
        assert choice["queries"] >= 30 and len(choice["candidates"]) >= 10
        assert retriever.info()["transform"]["spec"] == choice["chosen"]
    with Retriever.build([*documents, Document("more", "One more.")], tmp_path / "c") as retriever:
        assert retriever.info()["choice"] == choice
        retriever.rebuild(transform="center")
        assert retriever.info()["choice"] is None
        retriever.rebuild(transform="auto")
        assert len(retriever.info()["choice"]["candidates"]) == len(choice["candidates"])


TEXT_WORDS = "ant bee cat dog elk fox gnu hen owl pig rat yak sea sky sun ice fog oak elm ash tin gem jar pot".split()
