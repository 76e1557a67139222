"""Every input that once broke a parser, the seeds of the fuzzing, and some seconds of fuzzing itself."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import run
from targets import TARGETS

CASES = Path(__file__).parent / "cases"


@pytest.mark.heavy
@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_broke_a_parser(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target = TARGETS[name]
    parse = target.make(tmp_path)
    cases = sorted((CASES / name).iterdir()) if (CASES / name).is_dir() else []
    for data in [b"", *target.seeds(), *(path.read_bytes() for path in cases)]:
        parse(data)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris has no wheel for this Python or system")
@pytest.mark.parametrize("name", TARGETS)
def test_some_seconds_of_fuzzing(name: str, tmp_path: Path) -> None:
    result = run.run(name, 5, tmp_path)
    assert not result["findings"], (tmp_path / f"{name}.log").read_text(errors="replace")[-5000:]
    assert int(str(result["inputs"])) > 10 and int(str(result["branches"])) > 40
