"""Tuning a tiny BERT: the result, the time budget, interruption, and what is refused."""

import json
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import Run, write_jsonl
from tuning_made_up import articles

from retriever import Retriever
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import DEFAULT_ENCODER
from retriever.errors import EncoderUnavailable, MissingExtra, Misuse, RetrieverError

pytest.importorskip("accelerate")
pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.heavy


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pairs, single precision, a high learning rate, and an evaluation every ten steps."""
    monkeypatch.setattr("retriever.tune.texts.LEAST_PAIRS", 640)
    monkeypatch.setattr("retriever.tune.training.LEARNING_RATE", 1e-2)
    monkeypatch.setattr("retriever.tune.training.FIRST_GAP", 10)
    monkeypatch.setattr("retriever.tune.training.GAP", 10**9)
    monkeypatch.setattr("retriever.tune.training.MOST_STEPS", 40)
    monkeypatch.setattr("retriever.tune.state.PATIENCE", 10**6)
    monkeypatch.setattr("retriever.tune.model.has_bfloat16", lambda device: False)
    monkeypatch.setattr("retriever.tune.training.has_bfloat16", lambda device: False)
    monkeypatch.setattr("retriever.tune.model.cores", lambda: 1)


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def same(first: Path, second: Path) -> bool:
    one, other = weights(first), weights(second)
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def tune(*args: Any, **options: Any) -> Any:
    from retriever.tune.run import tune as run

    return run(*args, device="cpu", **options)


class Stop:
    """Progress that interrupts the run after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, stage: str, done: int, total: int | None, detail: str = "") -> None:
        if f"step {self.step}," in detail:
            raise KeyboardInterrupt


def test_the_result_is_an_ordinary_encoder(tiny_bert: str, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    found = tune(tiny_bert, articles(250), tmp_path / "tuned")
    assert found.after.agreement > found.before.agreement + 0.02
    assert found.after.loss < found.before.loss
    assert found.evaluations[0].step == 0 and found.after in found.evaluations
    assert not (tmp_path / "tuned" / ".tuning").exists() and not list(tmp_path.rglob("*.bin"))
    report = json.loads((tmp_path / "tuned" / "tuning.json").read_text())
    assert [one["step"] for one in report["evaluations"]] == [one.step for one in found.evaluations]

    texts = ["The ship of the captain.", "bread and butter", "x"]
    ours = Encoder(str(tmp_path / "tuned"))
    assert ours.identity.pooling == "mean" and ours.identity.max_length == 128
    assert ours.identity.tokenizer == Encoder(tiny_bert).identity.tokenizer
    theirs = SentenceTransformer(str(tmp_path / "tuned"), device="cpu")
    assert theirs.max_seq_length == 128
    assert np.allclose(ours.encode(texts), theirs.encode(texts), atol=1e-4)
    with Retriever.build(articles(30), tmp_path / "collection", encoder=str(tmp_path / "tuned")) as retriever:
        assert len(retriever.search("ship harbour captain")) > 0


@pytest.mark.slow
def test_an_interrupted_run_continues_and_gives_the_same_encoder(tiny_bert: str, tmp_path: Path) -> None:
    documents = articles(250)
    tune(tiny_bert, documents, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        tune(tiny_bert, documents, tmp_path / "parts", progress=Stop(3))  # before the first checkpoint
    with pytest.raises(KeyboardInterrupt):
        tune(tiny_bert, documents, tmp_path / "parts", progress=Stop(14))
    assert (tmp_path / "parts" / ".tuning" / "checkpoint-10").is_dir()
    with pytest.raises(Misuse, match="unfinished run with another seed"):
        tune(tiny_bert, documents, tmp_path / "parts", seed=1)
    with pytest.raises(Misuse, match="unfinished run with another corpus"):
        tune(tiny_bert, documents[:200], tmp_path / "parts")
    steps: list[str] = []
    tune(tiny_bert, documents, tmp_path / "parts", progress=lambda stage, done, total, detail="": steps.append(detail))
    assert not any("step 10," in step for step in steps) and any("step 11," in step for step in steps)
    assert same(tmp_path / "whole", tmp_path / "parts")
    tune(tiny_bert, documents, tmp_path / "again")
    assert same(tmp_path / "whole", tmp_path / "again")


def test_the_time_budget_is_kept(tiny_bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retriever.tune.training.MOST_STEPS", 10**6)
    steps: list[str] = []

    def note(stage: str, done: int, total: int | None, detail: str = "") -> None:
        steps.append(detail)

    with suppress(RetrieverError):  # only imports what the run below needs
        tune(tiny_bert, articles(250), tmp_path / "warm", minutes=0.05)
    began = time.monotonic()
    with suppress(RetrieverError):  # on a slow machine, too few steps are made to improve
        tune(tiny_bert, articles(250), tmp_path / "tuned", minutes=15 / 60, progress=note)
    assert 5 < time.monotonic() - began < 17
    assert any("step 3," in step for step in steps)


def test_an_encoder_that_does_not_improve_is_left_alone(
    tiny_bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retriever.tune.training.LEARNING_RATE", 0.0)
    monkeypatch.setattr("retriever.tune.state.PATIENCE", 1)
    with pytest.raises(RetrieverError, match="tuning did not help, so no encoder was written"):
        tune(tiny_bert, articles(250), tmp_path / "tuned")
    assert not (tmp_path / "tuned").exists()


def test_an_encoder_that_was_tuned_before_is_recognised(tiny_bert: str) -> None:
    from retriever.corpus.python_docs import stdlib_documents
    from retriever.tune.evidence import Evidence
    from retriever.tune.texts import read_texts

    documents = list(islice(stdlib_documents(), 0, 4000, 16))
    for name, tuned in ((DEFAULT_ENCODER, True), (tiny_bert, False)):
        encoder = Encoder(name, max_length=64, device="cpu")
        assert Evidence(read_texts(documents, encoder), 0).looks_tuned(encoder) is tuned


def test_refusals(tiny_bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    with pytest.raises(Misuse, match="full is not empty"):
        tune(tiny_bert, articles(250), full)
    with pytest.raises(Misuse, match="is a file"):
        tune(tiny_bert, articles(250), full / "notes.txt")
    with pytest.raises(Misuse, match="`minutes` must be more than 0"):
        tune(tiny_bert, articles(250), tmp_path / "tuned", minutes=0)
    with pytest.raises(EncoderUnavailable, match="no model folder"):
        tune("./nowhere", articles(250), tmp_path / "tuned")
    with pytest.raises(RetrieverError, match="too short to tune this encoder"):
        tune(tiny_bert, articles(250), tmp_path / "tuned", minutes=1e-6)
    monkeypatch.setitem(__import__("sys").modules, "accelerate", None)
    with pytest.raises(MissingExtra, match=r"needs accelerate; install it with: pip install 'flow-retriever\[tune\]'"):
        tune(tiny_bert, articles(250), tmp_path / "tuned")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_the_command(tiny_bert: str, tmp_path: Path, run: Run) -> None:
    source = write_jsonl(tmp_path / "articles.jsonl", [{"text": text} for text in articles(250)])
    result = run("tune", tiny_bert, "--corpus", source, "--out", tmp_path / "tuned", "--device", "cpu")
    assert "agreement with BM25" in result.output and "Use it: retriever index" in result.output
    result = run("tune", tiny_bert, "--corpus", source, "--out", tmp_path / "tuned", "--device", "cpu", code=2)
    assert "tuned is not empty; --out must be a new folder." in result.output
