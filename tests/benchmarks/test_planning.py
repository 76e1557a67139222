"""`python -m benchmarks plan`: predicted beside measured, and a size that was measured is not measured again."""

import json
from pathlib import Path
from typing import Any

import pytest
from rates_made_up import RATES
from samples import Run
from similarity import sentences

import retriever.cli.main as cli
from benchmarks.scale import planning
from benchmarks.scale.planning import within
from retriever.plan.rehearsal import measure_search

SIZES = (60, 120)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in this process: a process of its own for each costs seconds."""
    done: list[str] = []

    def rehearse(sample: Any, options: Any, documents: int, progress: Any) -> Any:
        done.append(f"rehearse {documents}")
        return RATES

    def run_whole(command: list[str], extra: Any) -> dict[str, float]:
        done.append(command[3])
        cli.main(command[3:], standalone_mode=False)
        return {"cpu_seconds": 1.0, "wall_seconds": 1.0, "peak_bytes": 1e9}

    def run_child(task: str, request: dict[str, Any], environment: Any) -> dict[str, Any]:
        done.append(task)
        return measure_search(request)

    for name, function in (("rehearse", rehearse), ("run_whole", run_whole), ("run_child", run_child)):
        monkeypatch.setattr(planning, name, function)
    return done


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.txt"
    path.write_text("".join(f"{line}\n" for line in dict.fromkeys(sentences(2 * SIZES[-1], 5))), encoding="utf-8")
    return path


@pytest.mark.heavy
def test_predicted_beside_measured(run: Run, calls: list[str], source: Path, tmp_path: Path, tiny_bert: str) -> None:
    out = tmp_path / "out"
    words = ["plan", source, "--encoder", tiny_bert, "--sample", 50, "--index-type", "sq8", "--out", out]
    words += [word for size in SIZES for word in ("--documents", size)]
    shown = run(*words).output
    assert calls == [word for size in SIZES for word in (f"rehearse {size}", "index", "search", "rebuild", "search")]
    for word in ("60 documents", "120 documents", "peak memory", "query, CPU ms", "sq8", "4 runs measured"):
        assert word in shown
    rows = json.loads((out / "results.json").read_text())
    found = {(row["dataset"], row["split"], row["transform"]): row for row in rows}
    assert set(found) == {(str(n), t, w) for n in SIZES for t in ("flat", "sq8") for w in ("predicted", "measured")}
    assert {path.name for path in out.iterdir()} == {"results.json", "provenance.json", ".lock"}

    calls.clear()
    assert "0 runs measured, 4 taken" in run(*words).output
    assert calls == []
    assert json.loads((out / "results.json").read_text()) == rows


def test_one_of_the_two(run: Run, source: Path, tmp_path: Path) -> None:
    assert "but not both" in run("plan", code=2).output
    assert "but not both" in run("plan", source, "--data", tmp_path, code=2).output


def test_within_a_fifth() -> None:
    assert [within(ratio) for ratio in (0.79, 0.81, 1.19, 1.21)] == [False, True, True, False]
