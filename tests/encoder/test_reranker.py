"""The cross-encoder against sentence-transformers' own, and what a model that is none gets."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import make_cross_encoder

from retriever.encoder.reranker import Reranker
from retriever.errors import EncoderUnavailable, Misuse, RetrieverError

QUERY = "where do cats sleep"
TEXTS = [
    "Cats sleep in the sun, on a chair, or wherever it is warm.",
    "",
    "Dogs bark.",
    "Naïve café, 東京 and emoji 🦊.",
    "a very long text about cats " * 60,
    "Dogs bark.",
]


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cross_encoder(tmp_path_factory.mktemp("models") / "cross")


def expected_logits(folder: Path, texts: list[str]) -> Any:
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder), device="cpu", max_length=128, activation_fn=torch.nn.Identity())
    return model.predict([(QUERY, text) for text in texts])


def changed(folder: Path, target: Path, **settings: object) -> Path:
    """A copy of a model with other settings in its config."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | settings))
    return target


@pytest.mark.parametrize("kind", ["Bert", "DistilBert"])
def test_equals_sentence_transformers(tmp_path: Path, kind: str) -> None:
    folder = make_cross_encoder(tmp_path / kind, kind)
    scores = Reranker(str(folder), device="cpu", batch_size=2).scores(QUERY, TEXTS)
    np.testing.assert_allclose(scores, expected_logits(folder, TEXTS), atol=1e-5)
    assert len(set(scores.round(3))) == len(set(TEXTS))


@pytest.mark.parametrize(
    ("labels", "relevant"),
    [
        (2, 1),
        (["entailment", "not_entailment"], 0),
        (["irrelevant", "Relevant"], 1),
        (["contradiction", "entailment", "neutral"], 1),
    ],
)
def test_labels(tmp_path: Path, labels: list[str] | int, relevant: int) -> None:
    """The log-odds of the label that means relevance."""
    folder = make_cross_encoder(tmp_path / "model", labels=labels)
    logits = expected_logits(folder, TEXTS).astype(np.float64)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = np.log(chances[:, relevant] / (1 - chances[:, relevant]))
    np.testing.assert_allclose(Reranker(str(folder), device="cpu").scores(QUERY, TEXTS), expected, atol=1e-4)


@pytest.mark.parametrize("labels", [3, ["cat", "dog"], ["positive", "negative"], ["yes", "true", "no"]])
def test_labels_that_say_nothing_of_relevance_are_refused(tmp_path: Path, labels: list[str] | int) -> None:
    folder = make_cross_encoder(tmp_path / "model", labels=labels)
    names = "LABEL_0, LABEL_1, LABEL_2" if isinstance(labels, int) else ", ".join(labels)
    with pytest.raises(EncoderUnavailable, match=f"the labels {names}, and it is not clear which of them"):
        Reranker(str(folder), device="cpu").scores(QUERY, TEXTS)


@pytest.mark.heavy
@settings(max_examples=15, deadline=None)
@given(order=st.permutations(range(len(TEXTS))), batch_size=st.integers(1, 7))
def test_order_and_batches_do_not_matter(cross_encoder: Path, order: list[int], batch_size: int) -> None:
    expected = Reranker(str(cross_encoder), device="cpu", batch_size=1).scores(QUERY, TEXTS)
    reranker = Reranker(str(cross_encoder), device="cpu", batch_size=batch_size)
    scores = reranker.scores(QUERY, [TEXTS[place] for place in order])
    np.testing.assert_allclose(scores, expected[order], atol=1e-5)


def test_a_long_query_leaves_half_to_the_text(cross_encoder: Path) -> None:
    reranker = Reranker(str(cross_encoder), device="cpu", max_length=43)
    words = [f"w{number % 10}" for number in range(200)]  # two tokens each: w and ##n
    long, cut = " ".join(words), " ".join(words[:10])
    np.testing.assert_allclose(reranker.scores(long, TEXTS), reranker.scores(cut, TEXTS), atol=1e-6)
    one, two = reranker.scores(long, ["cats sleep here", "dogs bark there"])
    assert abs(one - two) > 1e-3


def test_no_texts(cross_encoder: Path) -> None:
    assert Reranker(str(cross_encoder), device="cpu").scores(QUERY, []).shape == (0,)


def test_an_encoder_is_no_cross_encoder(tiny_bert: str) -> None:
    """transformers would score with a head of random numbers."""
    for name in (tiny_bert, "all-MiniLM-L6-v2"):
        with pytest.raises(EncoderUnavailable, match="has no classification head .*not a cross-encoder"):
            Reranker(name, device="cpu").scores(QUERY, TEXTS)


def test_missing_weights_are_refused(cross_encoder: Path, tmp_path: Path) -> None:
    folder = changed(cross_encoder, tmp_path / "model", num_hidden_layers=3)
    with pytest.raises(EncoderUnavailable, match="incomplete: 16 of them are missing .*ForSequenceClassification"):
        Reranker(str(folder), device="cpu").scores(QUERY, TEXTS)


def test_nan_is_refused(cross_encoder: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = changed(cross_encoder, tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    tensors["classifier.bias"] = np.array([np.nan], np.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RetrieverError, match="returned NaN or infinity for the text 'Cats sleep"):
        Reranker(str(folder), device="cpu").scores(QUERY, TEXTS)


def test_pickled_weights_are_refused(cross_encoder: Path, tmp_path: Path) -> None:
    folder = changed(cross_encoder, tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(EncoderUnavailable, match="Pickled weights .*AutoModelForSequenceClassification"):
        Reranker(str(folder))


def test_names_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EncoderUnavailable, match="give --rerank DIR"):
        Reranker(str(tmp_path / "nowhere"))
    with pytest.raises(Misuse, match="the name of the cross-encoder is empty"):
        Reranker(" ")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EncoderUnavailable, match="HF_HUB_OFFLINE is set") as refused:
        Reranker("cross-encoder/ms-marco-MiniLM-L6-v2")
    assert "embedded" not in str(refused.value)


def test_settings_out_of_range(cross_encoder: Path) -> None:
    with pytest.raises(Misuse, match="from 8 to 128 tokens"):
        Reranker(str(cross_encoder), max_length=129)
    with pytest.raises(Misuse, match="`batch_size` must be at least 1"):
        Reranker(str(cross_encoder), batch_size=0)
    with pytest.raises(Misuse, match="unknown device 'tpu'"):
        Reranker(str(cross_encoder), device="tpu")
