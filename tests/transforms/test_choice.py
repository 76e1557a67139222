"""The choice without labels: on vectors where the right answer is known, and kept with the collection."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from samples import Run, make_bert

from indexes.generation import INDEX_FILE
from retriever import Document, Retriever
from retriever.errors import EncoderUnavailable
from retriever.transforms import fit
from retriever.transforms.agreement import Bm25, Fits, sample_questions
from retriever.transforms.choice import CANDIDATES, STRENGTHS, Choice, Evidence, Look, choose, choose_for
from retriever.transforms.flow import training as flow_training
from retriever.transforms.training import Training
from retriever.transforms.tuned import WHITENINGS

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

    def choose(self, candidates: Sequence[str] = CANDIDATES, otherwise: str = "none") -> Choice:
        fits = Fits(self.evidence.vectors, 0)
        return choose(Look.at(self.evidence, self.encode), fits, candidates=candidates, otherwise=otherwise)


def test_a_cone_is_undone() -> None:
    choice = World(noise=3.0).choose()
    assert choice.chosen.startswith(("whiten", "flow"))
    none, chosen = (next(c for c in choice.candidates if c.spec == spec) for spec in ("none", choice.chosen))
    assert chosen.low > 0 and chosen.low <= chosen.gain <= chosen.high
    assert (
        choice.verdict is not None
        and not choice.verdict.tuned
        and "does not look tuned for similarity" in choice.reason
    )
    assert chosen.agreement - none.agreement == pytest.approx(chosen.gain)


def test_good_vectors_are_left_alone() -> None:
    choice = World(noise=0.0).choose()
    assert choice.chosen == "none"
    assert choice.verdict is not None and choice.verdict.tuned and "vectors are used as they are" in choice.reason
    assert [candidate.spec for candidate in choice.candidates] == ["none", WHITENINGS[0]], "it is seen at once"
    assert {candidate.spec for candidate in choice.candidates} <= set(CANDIDATES)
    assert all(0 <= candidate.agreement <= 1 + 1e-9 for candidate in choice.candidates)


def test_too_little_to_judge_by() -> None:
    choice = World(noise=3.0, passages=100).choose()
    assert choice.chosen == "none" and "can be used as queries" in choice.reason and not choice.candidates


def test_the_same_seed_chooses_the_same() -> None:
    first, second = World(noise=1.0).choose(), World(noise=1.0).choose()
    assert first.candidates == second.candidates


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps of every training of a flow, as they come."""
    steps: list[int] = []
    train = flow_training.train

    def counted(*args: Any, **options: Any) -> Training:
        steps.append(options["steps"])
        return train(*args, **options)

    monkeypatch.setattr(flow_training, "train", counted)
    return steps


def test_a_flow_that_cannot_win_is_not_trained(trainings: list[int]) -> None:
    choice = World(noise=3.0).choose()
    assert not trainings and not set(STRENGTHS) & {candidate.spec for candidate in choice.candidates}
    chosen = next(candidate for candidate in choice.candidates if candidate.spec == choice.chosen)
    flows = World(noise=3.0).choose(STRENGTHS)
    assert max(candidate.agreement for candidate in flows.candidates) < chosen.agreement


def test_a_chosen_flow_is_not_trained_again(trainings: list[int]) -> None:
    world = World(noise=3.0)
    fits = Fits(world.evidence.vectors, 0)
    choice = choose(Look.at(world.evidence, world.encode), fits, candidates=STRENGTHS, otherwise="flow")
    assert fits.fit(choice.chosen).fingerprint == fit(choice.chosen, world.evidence.vectors).fingerprint
    assert len(trainings) == 2, "once for the choice, and once for the comparison here"


@pytest.mark.parametrize("spec", ["whiten", "whiten:soft=0.3", "whiten:dimension=7", "whiten:method=zca,gamma=0.5"])
def test_whitenings_that_share_a_spectrum_equal_single_fits(spec: str) -> None:
    vectors = World(noise=1.0).evidence.vectors
    fits = Fits(vectors, 0)
    fits.fit("whiten:soft=1")
    assert fits.fit(spec).fingerprint == fit(spec, vectors).fingerprint


@pytest.mark.parametrize("count", [99, 100])
def test_below_a_hundred_passages_nothing_is_chosen(count: int) -> None:
    world = World(noise=3.0, passages=count)
    fits = Fits(world.evidence.vectors, 0)
    choice = choose_for("auto", Look.at(world.evidence, world.encode), fits, with_short_texts=True)
    assert choice is not None and choice.chosen == "none"
    told = "the choice needs 100 passages, and so far the collection has 99"
    assert (choice.reason == told) == (count == 99)


def test_a_flow_is_trained_once_for_all_its_strengths(trainings: list[int]) -> None:
    choice = World(noise=3.0).choose(STRENGTHS)
    assert set(STRENGTHS) <= {candidate.spec for candidate in choice.candidates}
    assert len({candidate.agreement for candidate in choice.candidates if candidate.spec in STRENGTHS}) > 1
    assert len(trainings) == 1


def test_among_strengths_none_is_only_what_they_are_compared_with() -> None:
    """Even where doing nothing is best: whoever asks for a flow gets one."""
    for noise in (0.0, 3.0):
        choice = World(noise=noise).choose(STRENGTHS, "flow")
        assert [candidate.spec for candidate in choice.candidates] == ["none", *STRENGTHS]
        flows = choice.candidates[1:]
        assert choice.chosen == max(flows, key=lambda candidate: candidate.agreement).spec
        assert choice.chosen in choice.reason


def test_too_little_to_judge_a_strength_by() -> None:
    choice = World(noise=3.0, passages=100).choose(STRENGTHS, "flow")
    assert choice.chosen == "flow" and "can be used as queries" in choice.reason and not choice.candidates


def sentences_of_words(count: int = 300) -> list[Document]:
    rng = np.random.default_rng(0)
    return [
        Document(str(i), f"The {' and the '.join(f'{w}' for w in rng.choice(TEXT_WORDS, 6))} met in number {i}.")
        for i in range(count)
    ]


def without_seconds(choice: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choice.items() if name != "seconds"}


@pytest.mark.heavy
def test_a_flow_asked_for_plainly_gets_its_strength_by_the_text(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build(sentences_of_words(), tmp_path / "c", encoder=tiny_bert, transform="flow") as retriever:
        told = retriever.info()
        choice, transform = told["choice"], told["transform"]
        assert [candidate["spec"] for candidate in choice["candidates"]] == ["none", *STRENGTHS]
        assert choice["chosen"] == transform["spec"] and transform["spec"] in STRENGTHS
        assert transform["family"] == "flow" and transform["spec"] == f"flow:strength={transform['strength']:g}"
        hits = retriever.search("the cat and the dog")
    with Retriever.open(tmp_path / "c") as retriever:
        assert retriever.info()["choice"] == choice and retriever.info()["transform"] == transform
        assert retriever.search("the cat and the dog") == hits
        retriever.add([Document("more", "One more.")])
        assert retriever.info()["transform"] == transform
        retriever.delete(["more"])
        retriever.rebuild()
        assert without_seconds(retriever.info()["choice"]) == without_seconds(choice)
        assert retriever.info()["transform"]["fingerprint"] == transform["fingerprint"]
        retriever.rebuild(transform="flow:strength=0.6")
        assert retriever.info()["choice"] is None and retriever.info()["transform"]["strength"] == 0.6


@pytest.mark.heavy
def test_passages_and_short_texts_of_the_fit_are_told_apart(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build(sentences_of_words(), tmp_path / "c", encoder=tiny_bert, transform="flow") as retriever:
        counts = retriever.info()["fitted_on"]
        assert set(counts) == {"passages", "short_texts"}
        assert counts["passages"] == 300 and 300 < counts["short_texts"] <= 1000
        assert retriever.info()["transform"]["fitted_on"] == sum(counts.values())
        generation = retriever.collection.generation()
        assert generation is not None and generation.manifest["fitted_on"] == counts
        (generation.folder / INDEX_FILE).write_bytes(b"damaged")
        report = retriever.verify(repair=True)
        assert report.repaired and not report.left
        assert retriever.info()["fitted_on"] == counts
        retriever.rebuild(transform="none")
        assert retriever.info()["fitted_on"] == {"passages": 300, "short_texts": 0}


def different_words(number: int) -> str:
    return f"Nothing{number} else{number} shares{number} these{number} words{number} here{number}."


def two_words(number: int) -> str:
    return f"pair {number}"


@pytest.mark.parametrize("text", [different_words, two_words])
def test_without_sentences_to_judge_by_a_flow_has_its_default_strength(
    tmp_path: Path, tiny_bert: str, text: Callable[[int], str]
) -> None:
    documents = [Document(str(number), text(number)) for number in range(80)]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="flow") as retriever:
        told = retriever.info()
        assert told["transform"]["family"] == told["transform"]["spec"] == "flow"
        assert told["transform"]["strength"] == 0.5 and told["fitted_on"]["passages"] == 80
        if told["fitted_on"]["short_texts"]:
            assert told["choice"]["chosen"] == "flow" and "so far the collection has 80" in told["choice"]["reason"]
        else:
            assert told["choice"] is None
        assert retriever.search(text(7))


@pytest.mark.heavy
def test_without_its_encoder_a_collection_can_have_a_flow_but_not_choose(tmp_path: Path, run: Run) -> None:
    encoder = make_bert(tmp_path / "encoder")
    folder = tmp_path / "c"
    with Retriever.build(sentences_of_words(), folder, encoder=str(encoder), transform="none"):
        pass
    encoder.rename(tmp_path / "moved")
    with Retriever.open(folder) as retriever:
        retriever.rebuild(transform="flow")
        told = retriever.info()
        assert told["transform"]["spec"] == "flow" and told["transform"]["strength"] == 0.5
        assert told["choice"] is None and told["fitted_on"] == {"passages": 300, "short_texts": 0}
        assert "fitted on passages alone" in told["transform"]["notes"][-1]
        with pytest.raises(EncoderUnavailable, match="no model folder.*if it has moved"):
            retriever.rebuild(transform="auto")
        assert retriever.info()["transform"] == told["transform"]
    output = run("rebuild", "--index", folder, "--transform", "auto", code=1).output
    assert "there is no model folder" in output and "--encoder" in output
    with Retriever.open(folder, encoder=str(tmp_path / "moved")) as retriever:
        retriever.rebuild(transform="flow")
        assert retriever.info()["choice"]["candidates"] and retriever.info()["fitted_on"]["short_texts"] > 0
        assert retriever.search("the cat and the dog")


@pytest.mark.heavy
def test_kept_with_the_collection_and_not_made_again(tmp_path: Path, tiny_bert: str) -> None:
    documents = sentences_of_words()
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert) as retriever:
        choice = retriever.info()["choice"]
        assert choice["queries"] >= 30 and len(choice["candidates"]) >= 10
        assert retriever.info()["transform"]["spec"] == choice["chosen"]
    with Retriever.build([*documents, Document("more", "One more.")], tmp_path / "c") as retriever:
        assert retriever.info()["choice"] == choice
        retriever.rebuild(transform="center")
        assert retriever.info()["choice"] is None
        retriever.rebuild(transform="auto")
        again = retriever.info()["choice"]
        assert again["queries"] >= 30 and len(again["candidates"]) >= 10


TEXT_WORDS = "ant bee cat dog elk fox gnu hen owl pig rat yak sea sky sun ice fog oak elm ash tin gem jar pot".split()


def test_text_without_spaces_or_full_stops_can_be_judged_by_too() -> None:
    words = "机翼周围的气流与边界层在高速下如何变化热传导问题压力分布激波理论实验结果表明"
    rng = np.random.default_rng(0)
    chinese = ["".join(rng.choice(list(words), 60)) for _ in range(120)]
    plain = [" ".join(rng.choice(["wing", "flow", "heat", "shock", "layer", "jet", "cone"], 60)) for _ in range(120)]
    for texts in (chinese, plain):
        assert not sample_questions(texts, np.arange(120), 0).too_few
