"""Ctrl-C and SIGTERM at the command line: a clean end that says how to go on, and an end at once."""

import contextlib
import re
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from samples import Run, write_jsonl

DOCUMENTS = 4000


def begun(command: list[str], folder: Path) -> subprocess.Popen[str]:
    """The command, once it has stored some vectors."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while _vectors(folder) < 50 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return process


def _vectors(folder: Path) -> int:
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{folder / 'documents.sqlite'}?mode=ro", uri=True)) as connection,
    ):
        return int(connection.execute("SELECT count(*) FROM vectors").fetchone()[0])
    return 0


@pytest.mark.heavy
@pytest.mark.parametrize("sent", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_index_is_stopped_and_goes_on(run: Run, tmp_path: Path, tiny_bert: str, sent: list[signal.Signals]) -> None:
    records = [{"id": str(i), "text": f"Fact number {i}, one of many facts."} for i in range(DOCUMENTS)]
    source, folder = write_jsonl(tmp_path / "facts.jsonl", records), tmp_path / "c"
    options = [str(source), "--index", str(folder), "--encoder", tiny_bert, "--transform", "none"]
    options += ["--precision", "fp32", "--batch-tokens", "32"]
    process = begun([sys.executable, "-m", "retriever", "index", *options], folder)
    for one in sent:
        process.send_signal(one)
        time.sleep(0.01)
    _, said = process.communicate(timeout=60)
    ends = {128 + sent[0], -sent[0]} if len(sent) > 1 else {128 + sent[0]}  # the second may meet Python at its end
    assert process.returncode in ends, said
    assert "Interrupt again to stop immediately" in said
    assert "Traceback" not in said
    if len(sent) == 1:
        assert "What was stored is kept. Run the same command again to continue." in said
    stored = _vectors(folder)
    assert 50 <= stored < DOCUMENTS
    output = run("index", *options, "-v").output
    embedded, reused = re.findall(r"texts +([\d,]+) embedded, ([\d,]+) reused", output)[0]
    assert int(embedded.replace(",", "")) == DOCUMENTS - stored
    assert int(reused.replace(",", "")) <= stored
    assert "no damage found" in run("verify", "--index", folder).output


IMPORTING = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == interrupted:
            os.kill(os.getpid(), signal.SIGINT)
interrupted = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupting())
from retriever.cli.entry import main
main()
"""


@pytest.mark.parametrize(
    "name", ["retriever.cli.main", "click", "retriever.cli.bench", "retriever.errors", "retriever.cli.display"]
)
def test_ctrl_c_while_modules_are_imported(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-c", IMPORTING, name, "info", "--index", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "\nInterrupted.\n"), done.stderr


def test_the_command_is_the_entry() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"retriever": "retriever.cli.entry:main"}


@pytest.mark.heavy
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_immediate_exit_does_not_wait_for_the_main_thread(number: signal.Signals) -> None:
    """The main thread waits and is not woken, as if the signal had arrived just before it began to wait."""
    program = """
import select, signal
from retriever.signals import exit_immediately

exit_immediately()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
print("waiting", flush=True)
select.select([], [], [])
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout and process.stderr
            assert process.stdout.readline() == b"waiting\n"
            process.send_signal(number)
            assert (process.wait(60), process.stderr.read()) == (128 + number, b"")
        finally:
            process.kill()
