"""`python -m benchmarks gpu`: its half on the CPU, and what it says where there is no GPU. No test asserts a time."""

import json
from pathlib import Path

import numpy as np
import pytest
from samples import Run
from similarity import sentences

from benchmarks.speed import gpu
from indexes.faiss.vectors import gpu_count, unit_rows

COUNT = 240
PARTS = ["encoder", "flow", "FAISS flat", "FAISS ivf", "FAISS IVF64,SQfp16", "FAISS IVF64,SQ8"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.txt"
    lines = list(dict.fromkeys(sentences(2 * COUNT, 5)))[:COUNT]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.heavy
@pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU")
def test_without_a_gpu_the_cpu_is_measured_and_the_report_says_why(
    run: Run, source: Path, tmp_path: Path, tiny_bert: str
) -> None:
    out = tmp_path / "out"
    result = run("gpu", source, "--documents", COUNT, "--encoder", tiny_bert, "--queries", 20, "--out", out)
    assert "neither torch nor FAISS finds a GPU" in result.stderr and "report.md" in result.stderr
    found = json.loads((out / "results.json").read_text())
    assert [part["part"] for part in found["parts"]] == PARTS
    assert {part["device"] for part in found["parts"]} == {"cpu"}
    assert all(part["seconds"] > 0 and part["peak_bytes"] > 1e7 for part in found["parts"])
    assert all(part["same_nearest"] == 1.0 and part["gpu_bytes"] == 0 for part in found["parts"])
    assert found["sentences"] == COUNT and found["queries"] == 20 and found["machine"]["torch"]
    report = (out / "report.md").read_text()
    assert all(f"| {name} | cpu |" in report for name in PARTS) and "neither torch nor FAISS finds a GPU" in report


@pytest.mark.heavy
@pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU")
def test_a_part_that_fails_on_the_gpu_is_named(
    run: Run, source: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This process believes in a GPU, and the one that measures finds none.
    monkeypatch.setattr(gpu, "gpu_count", lambda: 1)
    monkeypatch.setattr(gpu, "INDEX_TYPES", ("flat",))
    result = run("gpu", source, "--documents", 60, "--encoder", tiny_bert, "--queries", 5, "--json")
    found = json.loads(result.stdout)
    assert [part["part"] for part in found["parts"]] == PARTS[:3]
    assert [problem.partition(":")[0] for problem in found["problems"]] == PARTS[:3]
    assert "torch finds no CUDA GPU" in found["problems"][0]
    assert "cannot be searched on a GPU" in found["problems"][2]


def test_the_same_nearest_are_those_of_brute_force() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((90, 8)).astype(np.float32)
    moved = rows + rng.normal(0, 0.4, rows.shape).astype(np.float32)

    def nearest(vectors: np.ndarray) -> list[set[int]]:
        scores = unit_rows(vectors).astype(np.float64) @ unit_rows(vectors).astype(np.float64).T
        return [set(np.argsort(-own)[:10].tolist()) for own in scores]

    expected = np.mean([len(a & b) / 10 for a, b in zip(nearest(rows), nearest(moved), strict=True)])
    assert 0.2 < expected < 0.95
    assert gpu._same_nearest(moved, rows) == pytest.approx(expected)
    assert gpu._same_nearest(rows, rows) == 1.0


def test_bad_input(run: Run, tmp_path: Path) -> None:
    assert "but not both" in run("gpu", code=2).output
    assert "wiki_sentences" in run("gpu", "--data", tmp_path, code=2).output
