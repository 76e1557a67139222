"""`make torture`: what is done is not run again on the same code, and a suite that fails does not end the others."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import samples


@pytest.fixture
def torture(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("torture_run", Path(__file__).with_name("run.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "torture_run", module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(module)
    monkeypatch.setattr(samples, "make_bert", lambda folder: folder)
    monkeypatch.setattr(module, "_show", lambda lines: None)
    return module


def test_what_was_done_counts_for_the_same_code(
    torture: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def good(place: object) -> object:
        ran.append("good")
        return torture.Line("good", "nothing", 1)

    def bad(place: object) -> object:
        ran.append("bad")
        raise OSError("no space")

    monkeypatch.setattr(torture, "SUITES", {"bad": bad, "good": good})
    monkeypatch.setattr(sys, "argv", ["run.py", "--only", "bad,good", "--out", str(tmp_path)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for code, runs in (("one", ["bad", "good"]), ("one", ["bad"]), ("other", ["bad", "good"])):
        monkeypatch.setattr(torture, "_code", lambda code=code: code)
        with pytest.raises(SystemExit, match="1"):
            torture.main()
        assert ran == runs
        ran.clear()
    lines = json.loads((tmp_path / "torture.json").read_text())
    assert lines["good"]["asked"]["code"] == "other" and lines["good"]["commit"]
    assert lines["bad"]["failures"] == 1 and "no space" in lines["bad"]["examples"][0]


def test_the_digest_is_that_of_the_product(
    torture: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torture, "ROOT", tmp_path)
    (tmp_path / "retriever").mkdir()
    (tmp_path / "retriever" / "a.py").write_text("1")
    before = torture._code()
    (tmp_path / "docs.md").write_text("2")
    assert torture._code() == before
    (tmp_path / "retriever" / "a.py").write_text("2")
    assert torture._code() != before
