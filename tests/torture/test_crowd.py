"""Readers of every habit while a writer never rests: no error, no mix, no wrong score."""

from pathlib import Path

import pytest
from crowd import HABITS, gather


@pytest.mark.parametrize("seconds", [pytest.param(5, id="quick"), pytest.param(16, id="long", marks=pytest.mark.slow)])
def test_a_crowd(tmp_path: Path, tiny_bert: str, seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    support = Path(__file__).parents[1] / "support"
    monkeypatch.setenv("PYTHONPATH", f"{support.parents[1]}:{support}")
    found = gather(tmp_path / "c", tiny_bert, readers=len(HABITS), seconds=seconds)
    assert not found.problems, "\n".join(found.problems[:2])
    assert found.searches > len(HABITS) and found.writes > 0 and found.publications > 1
