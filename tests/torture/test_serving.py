"""A server at full load: every answer is right, through publications, restarts and a client that misbehaves."""

import sys
from pathlib import Path

import pytest
from serving_load import load


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no second loopback address")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seconds", "runs"), [pytest.param(12, 2, id="quick"), pytest.param(40, 3, id="long", marks=pytest.mark.torture)]
)
def test_full_load(tmp_path: Path, tiny_bert: str, seconds: int, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    support = Path(__file__).parents[1] / "support"
    monkeypatch.setenv("PYTHONPATH", f"{support.parents[1]}:{support}")
    found = load(tmp_path / "c", tiny_bert, seconds=seconds, runs=runs)
    assert not found.problems, "\n".join(found.problems[:3])
    assert found.searches > 0 and found.writes > 0 and found.misbehaved > 0
