"""`python -m benchmarks engines`: both engines really run, and the ratio is of pairs."""

import json
from pathlib import Path

import pytest
from samples import Run

from benchmarks.speed.engines import EngineFigures, EngineRun


def test_the_ratio_is_the_median_of_pairs() -> None:
    figures = EngineFigures("bert", "fp32")
    for local, ray in ((10.0, 20.0), (30.0, 30.0), (12.0, 10.0)):
        figures.runs += [
            EngineRun(100, "local", local, local + 1, 5.0, {}),
            EngineRun(100, "ray", ray, ray + 9, 6.0, {}),
        ]
    assert figures.ratio(100) == 1.0
    assert figures.ratio(100, "whole_seconds") == pytest.approx(13 / 19)
    assert figures.runs[0].per_second == 10


@pytest.mark.slow
def test_both_engines_run(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'flow-retriever[ray]'")
    (tmp_path / "sentences.txt").write_text("".join(f"Sentence number {i} of some.\n" for i in range(5000)))
    options = ["--documents", 4000, "--encoder", tiny_bert, "--out", tmp_path / "out", "--json"]
    found = json.loads(run("engines", tmp_path / "sentences.txt", *options).stdout)
    assert [(one["engine"], one["documents"]) for one in found["runs"]] == [("local", 4000), ("ray", 4000)]
    assert set(found["runs"][1]["peak_bytes"]) == {"driver", "worker", "reader"}
    assert found["runs"][1]["cpu_seconds"] > 0 and "cpu_seconds" in found["ratios"]["4000"]
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == found
