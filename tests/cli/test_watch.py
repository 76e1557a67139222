"""`retriever index --watch`: changes are indexed until it is stopped, those made during the first index too."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from retriever import Corpus, Retriever
from retriever.cli.index import _changes


def test_an_edit_during_the_first_index_is_not_missed(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("Owls hunt at night.")
    changes = _changes(Corpus([notes]), tmp_path / "c")
    (notes / "b.txt").write_text("Bees dance.")
    assert [item.id for item in next(changes)] == ["a.txt", "b.txt"]  # type: ignore[union-attr]
    changes.close()  # type: ignore[attr-defined]


@pytest.mark.heavy
def test_an_edited_file_is_found_until_a_signal_stops_it(tmp_path: Path, tiny_bert: str) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("Owls hunt at night.")
    command = [sys.executable, "-m", "retriever", "index", "notes", "-i", "c", "--encoder", tiny_bert, "--watch"]
    with (tmp_path / "said").open("w+") as said:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=said, env={**os.environ, "NO_COLOR": "1"})
        try:
            wait(process, lambda: "Watching for changes" in (tmp_path / "said").read_text())
            (notes / "a.txt").write_text("Penguins swim.")
            wait(process, lambda: "1 changed" in (tmp_path / "said").read_text())
            process.send_signal(signal.SIGINT)
            process.wait(60)
        finally:
            process.kill()
            process.wait()
    assert "Traceback" not in (tmp_path / "said").read_text()
    with Retriever.open(tmp_path / "c") as retriever:
        assert retriever.search("penguins", mode="lexical")[0].passage == "Penguins swim."


def wait(process: subprocess.Popen[bytes], met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 200
    while not met():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
