"""Every job on a collection, killed, interrupted or refused by the disk at many places: nothing is lost, all goes on.

`make torture` does the same at ten thousand places; see tests/support/crashes.py for how.
"""

import itertools
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from collection_jobs import KINDS
from crashes import Disturber, Outcome, Zygote, strace_works

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")

traced = pytest.mark.skipif(not strace_works(), reason="strace is not installed, or may not trace here")
OFTEN = [pytest.param(16, id="quick"), pytest.param(3, id="often", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def disturber(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Iterator[Disturber]:
    """On one core, so that the encoder has one thread."""
    zygote = Zygote(tmp_path_factory.mktemp("crashes"), tiny_bert, core=0)
    yield Disturber(zygote)
    zygote.close()


def check(outcomes: list[Outcome]) -> None:
    bad = [f"{outcome.what}: {problem}" for outcome in outcomes for problem in outcome.problems]
    assert not bad, "\n".join(bad[:3])


@traced
@pytest.mark.parametrize("step", OFTEN)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_call_that_changes_a_file(disturber: Disturber, kind: str, step: int) -> None:
    outcomes = list(disturber.points(kind, step, "signal=SIGKILL", step))
    check(outcomes)
    assert sum(outcome.reached for outcome in outcomes) > len(outcomes) / 2
    # With one thread of the encoder: the batch being stored, and the one finished meanwhile.
    assert all(outcome.again <= 2 * outcome.batch for outcome in outcomes)


@traced
@pytest.mark.parametrize("step", OFTEN)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_any_call_that_changes_a_file_may_fail(disturber: Disturber, kind: str, error: str, step: int) -> None:
    step = 4 * step if step > 3 else 8
    outcomes = list(disturber.points(kind, step, f"error={error}", step))
    check(outcomes)
    assert any(outcome.told for outcome in outcomes) or len(outcomes) < 3


@pytest.mark.parametrize("kind", ["first run", "next run", "add", "rebuild", "repair"])
def test_writes_that_are_cut_short(disturber: Disturber, kind: str) -> None:
    """No file may grow beyond a size: a write is done in part, and the next one fails."""
    outcomes = [disturber.with_small_files(kind, 5, largest) for largest in (0, 700, 4096, 5000, 33_000, 150_000)]
    check(outcomes)
    assert any(outcome.told for outcome in outcomes)


@pytest.mark.parametrize("kind", ["first run", "next run", "add", "rebuild"])
@pytest.mark.parametrize("sent", [[signal.SIGKILL], [signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 2])
def test_signals_at_any_moment(disturber: Disturber, kind: str, sent: list[signal.Signals]) -> None:
    rng = random.Random(f"{kind} {sent}")
    outcomes = [disturber.at_a_moment(kind, seed, rng.uniform(0, 0.12), *sent) for seed in range(5)]
    check(outcomes)
    if sent in ([signal.SIGINT], [signal.SIGTERM]):
        assert not any(outcome.again for outcome in outcomes if outcome.told), "what was in hand is stored first"


def test_a_job_that_is_left_alone_embeds_nothing_twice(disturber: Disturber) -> None:
    outcomes = [disturber.at_a_moment(kind, 1, 3.0) for kind in ("first run", "add")]
    check(outcomes)
    assert not any(outcome.again or outcome.reached for outcome in outcomes)


def test_the_jobs_differ(tiny_bert: str) -> None:
    from collection_jobs import Scenario

    made = [Scenario.make(kind, seed, tiny_bert) for kind, seed in itertools.product(KINDS, range(20))]
    assert {scenario.settings["index_type"] for scenario in made} == {"flat", "sq8"}
    assert all(scenario.uncertain for scenario in made if scenario.kind not in ("rebuild", "older version"))


def test_a_folder_on_a_disk_that_is_too_small(disturber: Disturber, tmp_path: Path) -> None:
    """A real file system, full: ENOSPC as the kernel gives it, and room made afterwards."""
    import subprocess

    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("no right to mount a file system")
    try:
        arguments = {"kind": "first run", "seed": 3, "encoder": disturber.zygote.encoder, "folder": str(small / "c")}
        for size in ("64k", "100k", "160k", "256k", "400k"):
            subprocess.run(["mount", "-o", f"remount,size={size}", small], check=True)
            answer = disturber.zygote.run("act", **arguments)
            assert answer["status"] == 0 and answer["result"].get("told", True), answer
            assert disturber.zygote.run("look", **arguments)["result"]["returned"] == []
        subprocess.run(["mount", "-o", "remount,size=8m", small], check=True)
        disturber.zygote.forget_embedded()
        assert disturber.zygote.run("go on", **arguments)["result"]["returned"]["problems"] == []
    finally:
        subprocess.run(["umount", small], check=True)


@traced
@pytest.mark.parametrize("step", [pytest.param(30, id="quick"), pytest.param(5, id="often", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "first run"])
def test_killed_while_another_process_has_it_open(disturber: Disturber, kind: str, step: int) -> None:
    """The log is then not read anew by the next one: what was left in it is overwritten, in part."""
    outcomes = list(disturber.points(kind, step, "signal=SIGKILL", step, beside=True))
    check(outcomes)
    assert any(outcome.reached for outcome in outcomes)


@traced
@pytest.mark.parametrize("kind", ["add", "delete", "next run"])
@pytest.mark.parametrize("how", ["signal=SIGKILL", "error=EIO"])
def test_the_sync_of_the_log_beside_another_process(disturber: Disturber, kind: str, how: str) -> None:
    outcomes = [disturber.point(kind, 7, "fdatasync", f"{how}:when={number}", beside=True) for number in (1, 2, 3)]
    check(outcomes)
    assert any(outcome.reached for outcome in outcomes)


@traced
@pytest.mark.parametrize("step", [pytest.param(30, id="quick"), pytest.param(5, id="often", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["next run", "add", "delete", "rebuild"])
def test_a_process_that_goes_on_after_a_fault(disturber: Disturber, kind: str, step: int) -> None:
    outcomes = list(disturber.points(kind, step, "error=EIO", step, job="stumble"))
    outcomes += [  # the first two are the small write's before
        disturber.point(kind, 8, "fdatasync", f"error=EIO:when={place}", job="stumble") for place in ("3", "4", "3..4")
    ]
    check(outcomes)
    assert all(outcome.reached for outcome in outcomes)
