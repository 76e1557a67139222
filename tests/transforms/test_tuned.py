"""The verdict whether an encoder was tuned for similarity: with real encoders, and with vectors made up for it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from retriever.corpus.python_docs import stdlib_documents
from retriever.encoder.encoder import Encoder
from retriever.transforms.agreement import agreement_of, sample_questions
from retriever.transforms.tuned import CONTRAST, EVEN, STABLE, WHITENINGS, Verdict, judge


def verdict(texts: Sequence[str], encoder: Encoder, declared: bool = False) -> Verdict:
    questions = sample_questions(texts, np.arange(len(texts)), 0)
    rows = encoder.encode([*texts, *questions.texts])
    passages, queries = rows[: len(texts)], rows[len(texts) :]
    agreement = agreement_of(("none", *WHITENINGS), questions, queries, passages, rows, 0)
    return judge(questions, queries, passages, agreement, declared=declared)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [document.text[:400] for document in islice(stdlib_documents(), 120)]


def test_minilm_is_seen_to_be_tuned(texts: list[str]) -> None:
    found = verdict(texts, Encoder(device="cpu"))
    assert found.tuned and found.votes >= 3 and not found.declared
    assert found.evenness <= EVEN and found.contrast >= CONTRAST
    assert "looks tuned for similarity" in found.describe()
    assert verdict(texts, Encoder(device="cpu"), declared=True).votes == found.votes + 1


@pytest.mark.parametrize("pooling", ["word", "first"])
def test_the_layers_near_the_words_of_minilm_are_seen_not_to_be(texts: list[str], pooling: str) -> None:
    found = verdict(texts, Encoder(pooling=pooling, device="cpu"))
    assert not found.tuned and found.evenness > EVEN
    assert "does not look tuned for similarity" in found.describe()


def test_random_weights_are_seen_not_to_be_tuned(texts: list[str], tiny_bert: str) -> None:
    for declared in (False, True):
        assert not verdict(texts, Encoder(tiny_bert, device="cpu"), declared).tuned


def test_a_verdict_is_json(texts: list[str]) -> None:
    found = verdict(texts, Encoder(pooling="word", device="cpu"))
    assert Verdict(**json.loads(json.dumps(asdict(found), allow_nan=False))) == found


@pytest.mark.parametrize("kind", ["all the same", "zero", "two directions"])
def test_degenerate_vectors_are_judged_without_a_nan(texts: list[str], kind: str) -> None:
    questions = sample_questions(texts, np.arange(len(texts)), 0)
    rng = np.random.default_rng(0)
    rows: NDArray[np.float32] = np.zeros((len(texts) + len(questions.texts), 16), np.float32)
    if kind == "all the same":
        rows += 1
    elif kind == "two directions":
        rows[np.arange(len(rows)), rng.integers(2, size=len(rows))] = 1
    passages, queries = rows[: len(texts)], rows[len(texts) :]
    agreement = agreement_of(("none", *WHITENINGS), questions, queries, passages, rows, 0)
    found = judge(questions, queries, passages, agreement)
    assert not found.tuned and found.stability <= max(STABLE, 1)
    json.dumps(asdict(found), allow_nan=False)


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("name", ["cranfield", "xquad_de", "xquad_zh", "wikiqa_beir"])
def test_minilm_is_seen_to_be_tuned_in_other_text_too(shared_data: Path, name: str) -> None:
    lines = (shared_data / name / "corpus.jsonl").read_text(encoding="utf-8").split("\n")
    some = [json.loads(line)["text"] for line in lines if line][:130]
    assert verdict([text for text in some if text.strip()], Encoder(max_length=64, device="cpu"), declared=True).tuned
