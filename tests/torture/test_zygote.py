"""The process that forks the jobs of the crash tests: a job that misbehaves fails its own test and no other."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from crashes import Zygote

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    made = Zygote(tmp_path_factory.mktemp("zygote"), "no encoder", jobs="misbehaving_jobs")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def later_jobs_get_their_own_answers(zygote: Zygote) -> Iterator[None]:
    zygote.seconds = 30
    yield
    zygote.seconds = 30
    for value in range(3):
        assert zygote.run("echo", value=value)["result"] == {"returned": value}


def test_an_exception_outside_of_the_try(zygote: Zygote) -> None:
    answer = zygote.run("raise outside of the try")
    assert answer["status"] == 1 and answer["result"] is None
    assert "ValueError: this error cannot be told" in (zygote.scratch / "said.log").read_text()


def test_a_result_that_cannot_be_sent(zygote: Zygote) -> None:
    answer = zygote.run("return what is no JSON")
    assert answer["status"] == 1 and answer["result"] is None
    assert "not JSON serializable" in (zygote.scratch / "said.log").read_text()


def test_a_signal_while_the_result_is_written_down(zygote: Zygote) -> None:
    answer = zygote.run("interrupt while telling")
    assert answer["status"] == 128 + signal.SIGINT and answer["result"] is None


def test_a_job_that_exits(zygote: Zygote) -> None:
    assert zygote.run("exit")["status"] == 7
    answer = zygote.run("quit")
    assert answer["status"] == 0 and answer["result"]["raised"] == "SystemExit"


def test_a_job_that_is_killed(zygote: Zygote) -> None:
    assert zygote.run("kill itself") | {"id": 0} == {"id": 0, "status": -signal.SIGKILL, "result": None}
    pid = zygote.begin("hang")
    zygote.let_go()
    os.kill(pid, signal.SIGKILL)
    assert zygote.ended()["status"] == -signal.SIGKILL


def test_a_job_that_is_killed_before_it_begins(zygote: Zygote) -> None:
    pid = zygote.begin("echo", value=1)
    os.kill(pid, signal.SIGKILL)
    zygote.let_go()
    assert zygote.ended()["status"] == -signal.SIGKILL


@pytest.mark.parametrize("deaf", [False, True])
def test_a_job_that_hangs(zygote: Zygote, deaf: bool) -> None:
    zygote.seconds = 0.2
    pid = zygote.begin("hang", deaf=deaf)
    zygote.let_go()
    with pytest.raises(AssertionError, match=r"did not end within 0\.2 s"):
        zygote.ended()
    with pytest.raises(ProcessLookupError):  # it would sleep for ten minutes
        os.kill(pid, 0)


def test_a_job_that_leaves_a_process_behind(zygote: Zygote) -> None:
    left = zygote.run("leave a process")["result"]["returned"]
    os.kill(left, signal.SIGKILL)  # it is still there, so the answer did not wait for its end


def test_a_test_that_fails_before_it_lets_its_job_go(zygote: Zygote) -> None:
    pid = zygote.begin("hang")
    assert zygote.run("echo", value="mine")["result"] == {"returned": "mine"}
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_test_that_fails_before_it_reads_its_answer(zygote: Zygote) -> None:
    zygote.begin("echo", value="theirs")
    zygote.let_go()
    assert zygote.run("echo", value="mine")["result"] == {"returned": "mine"}


def test_no_telemetry_begins_in_it(
    tmp_path: Path, tiny_bert: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread would be missing in every job; ONNX Runtime begins none where CI is set."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    cache = tmp_path / "cache"
    cache.mkdir()
    if own_cache.exists():
        (cache / own_cache.name).symlink_to(own_cache)  # exported encoders
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("HOME", str(tmp_path))
    Zygote(tmp_path / "zygote", tiny_bert).close()
    assert {path.name for path in cache.iterdir()} == {own_cache.name}
