"""The study of contextual layers: token whitening whitens the tokens, and every variant is shown."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from beir_made_up import write_beir
from samples import Run

from benchmarks.studies.contextual import Layers, TokenMoments
from retriever.encoder.encoder import Encoder


def test_token_moments_gathered_in_parts_whiten_all_tokens() -> None:
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((3000, 6)) @ rng.standard_normal((6, 6)) + 5).astype(np.float32)
    moments = TokenMoments()
    for own in np.array_split(rows, 7):
        moments.add(own)
    white = moments.whitening(0.0)(rows)
    assert np.abs(white.mean(axis=0)).max() < 1e-2
    assert np.abs(np.cov(white.T) - np.eye(6)).max() < 1e-2


def test_pooled_vectors_do_not_depend_on_the_batch_and_moments_count_every_token(tiny_bert: str) -> None:
    layers = Layers(Encoder(tiny_bert), 64)
    moments: dict[str, TokenMoments] = defaultdict(TokenMoments)
    texts = ["wing", "the flow over a wing at high speed"]
    together = layers.poolings(texts, moments)
    for name, rows in together.items():
        alone = np.concatenate([layers.poolings([text])[name] for text in texts])
        np.testing.assert_allclose(rows, alone, atol=0.05)
    tokens = sum(len(own) for own in layers.tokenizer.encode_batch(texts, add_special_tokens=False))
    assert {one.count for one in moments.values()} == {tokens}


@pytest.mark.heavy
def test_the_command_shows_every_pooling(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    write_beir(tmp_path / "made-up")
    (tmp_path / "sts").mkdir()
    pairs = [f"test\tx\t{n % 6}\tthe wing is number {n}\ta wing has number {n + n % 6}" for n in range(40)]
    (tmp_path / "sts" / "stsb.tsv").write_text("\n".join(["split\tsource\tscore\tsentence1\tsentence2", *pairs]) + "\n")
    shown = run("contextual", "--data", tmp_path, "--set", "made-up", "--encoder", tiny_bert).output
    for variant in ("mean, first-last, Zipfian 0.1", "diagonal, head 0", "prompt, whiten", "word table"):
        assert variant in shown
