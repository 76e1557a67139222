"""`retriever bench lexical`: correlation with edit distance, and the share of the way to the gold scores."""

import json
from pathlib import Path

import numpy as np
import pytest
from samples import Run
from scipy.stats import spearmanr
from similarity import write_set

from retriever.encoder.encoder import Encoder
from retriever.evaluate.measures.similarity import edit_distance


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_set(tmp_path / "data", "stsb", pairs=90).parent


def test_correlations_and_shares(run: Run, data: Path, tmp_path: Path, tiny_bert: str) -> None:
    out = tmp_path / "out"
    command = ["bench", "lexical", "--data", data, "--encoder", tiny_bert, "--cache", tmp_path / "cache", "--out", out]
    result = run(*command, "--transform", "whiten")
    rows = json.loads((out / "results.json").read_text())
    lines = [line.split("\t") for line in (data / "stsb.tsv").read_text().split("\n")[1:-1]]
    dev = [line for line in lines if line[0] == "dev"]
    distances = [edit_distance(line[3], line[4]) for line in dev]
    gold = 100 * spearmanr([float(line[2]) for line in dev], distances).statistic
    model = Encoder(tiny_bert, device="cpu")
    a, b = (model.encode([line[n] for line in dev]).astype(np.float64) for n in (3, 4))
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    raw = 100 * spearmanr(cosines, distances).statistic

    def value(metric: str, encoder: str, transform: str) -> float:
        found = [
            r["value"]
            for r in rows
            if (r["metric"], r["encoder"], r["transform"]) == (metric, encoder, transform) and r["split"] == "dev"
        ]
        assert len(found) == 1
        return float(found[0])

    label = Path(tiny_bert).name
    assert value("edit_distance_spearman", "gold", "") == pytest.approx(gold)
    assert value("edit_distance_spearman", label, "none") == pytest.approx(raw, abs=1e-3)
    assert value("share_of_way_to_gold", label, "none") == 0
    whitened = value("edit_distance_spearman", label, "whiten")
    share = value("share_of_way_to_gold", label, "whiten")
    assert share == pytest.approx(100 * (whitened - raw) / (gold - raw), abs=0.1)
    assert value("edit_distance_spearman", "bert-base (published)", "none") == -50.49
    assert value("edit_distance_spearman", "gold (published)", "") == -24.61
    assert f"{share:.1f}" in result.output and "-28.0" in result.output
    assert (out / "lexical.png").read_bytes().startswith(b"\x89PNG")
    assert "0 runs measured, 2 taken" in run(*command, "--transform", "whiten").output
    assert "2 runs measured" in run(*command, "--transform", "whiten", "--unit", "character").output


def test_a_split_that_is_not_there(run: Run, data: Path, tiny_bert: str) -> None:
    output = run("bench", "lexical", "--data", data, "--encoder", tiny_bert, "--split", "validation", code=2).output
    assert "0 pairs in the split 'validation'" in output and "train, dev, test" in output


@pytest.mark.shared
def test_the_gold_scores_come_near_the_published_figure(shared_data: Path) -> None:
    from retriever.evaluate.data.sts_sets import read_sets
    from retriever.evaluate.sts import LexicalScorer

    pairs = read_sets(shared_data, ["stsb"]).sets[0].of("dev")
    assert LexicalScorer(pairs, "word").gold_correlation == pytest.approx(-24.61, abs=1)
