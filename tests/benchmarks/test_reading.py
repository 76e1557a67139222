"""`python -m benchmarks reading`: files are read by format, PDF also by its library, and unchanged files again."""

import json
from pathlib import Path

import files_made_up as made
import pytest
from samples import Run


@pytest.mark.slow
@pytest.mark.heavy
def test_formats_and_unchanged_files_are_measured(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.scale import reading

    monkeypatch.setattr(reading, "MOST_COPIES", 20)
    files = tmp_path / "files"
    files.mkdir()
    for ending in ("md", "html", "pdf"):
        (files / f"a.{ending}").write_bytes(made.every_format("The tapir sleeps under the old bridge.")[ending])
    found = json.loads(run("reading", files, "--unchanged", 3, "--json").output)
    assert {one["format"]: (one["files"], one["documents"]) for one in found["readings"]} == {
        "md": (20, 20),
        "html": (20, 20),
        "pdf": (20, 20),
    }
    for one in found["readings"]:
        assert one["cpu_seconds"] > 0 and (one["library_seconds"] is not None) == (one["format"] == "pdf")
    assert found["unchanged_files"] == 3 and found["unchanged_cpu_seconds"] > 0
    assert "beside the library" in run("reading", files, "--unchanged", 0).output
