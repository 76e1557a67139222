"""Every job on a collection, killed, interrupted or refused by the disk at many places: nothing is lost, all goes on.

`make torture` does the same at ten thousand places; see tests/support/crashes.py for how.
"""

import itertools
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from collection_jobs import KINDS
from crashes import Disturber, Outcome, Zygote, strace_works

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")

traced = pytest.mark.skipif(not strace_works(), reason="strace is not installed, or may not trace here")
EMBEDDING = ("first run", "next run", "add")
"""The jobs that embed texts, each many more than are in hand at once."""


QUICK = ("first run", "add")
"""The jobs that `make test` disturbs, a few times each. `make long` disturbs all of them, more often."""


def often(few: int, many: int, kinds: tuple[str, ...] = KINDS) -> list[Any]:
    quick = [pytest.param(kind, few, id=f"{kind}-quick") for kind in QUICK if kind in kinds]
    return quick + [pytest.param(kind, many, id=f"{kind}-often", marks=pytest.mark.slow) for kind in kinds]


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
@pytest.mark.parametrize(("kind", "points"), often(6, 25))
def test_killed_at_any_call_that_changes_a_file(disturber: Disturber, kind: str, points: int) -> None:
    outcomes = list(disturber.points(kind, points, "signal=SIGKILL", points))
    check(outcomes)
    assert len(outcomes) >= min(points, 30)
    assert sum(outcome.reached for outcome in outcomes) > len(outcomes) / 2
    assert not [outcome for outcome in outcomes if outcome.too_much_again]
    if kind in EMBEDDING:
        assert all(outcome.embedded > 3 * outcome.in_hand > 0 for outcome in outcomes), "else the bound means nothing"


@traced
@pytest.mark.parametrize(("kind", "points"), often(4, 12))
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_any_call_that_changes_a_file_may_fail(disturber: Disturber, kind: str, error: str, points: int) -> None:
    outcomes = list(disturber.points(kind, points, f"error={error}", points))
    check(outcomes)
    assert len(outcomes) == points
    assert sum(bool(outcome.told) for outcome in outcomes) >= points / 3
    assert not [outcome for outcome in outcomes if outcome.too_much_again]


@pytest.mark.parametrize("kind", ["first run", "next run", "add", "rebuild", "repair"])
def test_writes_that_are_cut_short(disturber: Disturber, kind: str) -> None:
    """No file may grow beyond a size: a write is done in part, and the next one fails."""
    outcomes = [disturber.with_small_files(kind, 5, largest) for largest in (0, 700, 4096, 5000, 33_000, 150_000)]
    check(outcomes)
    assert any(outcome.told for outcome in outcomes)


@pytest.mark.parametrize(("kind", "seeds"), often(2, 5, ("first run", "next run", "add", "rebuild")))
@pytest.mark.parametrize("sent", [[signal.SIGKILL], [signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 2])
def test_signals_at_any_moment(disturber: Disturber, kind: str, sent: list[signal.Signals], seeds: int) -> None:
    rng = random.Random(f"{kind} {sent}")
    outcomes = [disturber.at_a_moment(kind, seed, rng.uniform(0, 0.12), *sent) for seed in range(seeds)]
    check(outcomes)
    assert not [outcome for outcome in outcomes if outcome.too_much_again]
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
    assert all(scenario.uncertain for scenario in made if scenario.kind != "rebuild")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 3 MB: ENOSPC as the kernel gives it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("no right to mount a file system")
    yield disk
    subprocess.run(["umount", disk], check=True)


FILLING = [
    pytest.param(kind, marks=() if kind in ("first run", "add", "repair") else pytest.mark.slow) for kind in KINDS
]


@pytest.mark.parametrize("kind", FILLING)
def test_on_a_disk_that_is_too_small(disturber: Disturber, small_disk: Path, kind: str) -> None:
    """With a little room, with a little more, and so on until the job comes to its end."""
    zygote, folder, filler = disturber.zygote, small_disk / "c", small_disk / "filler"
    arguments = {"kind": kind, "seed": 3, "encoder": zygote.encoder, "folder": str(folder)}
    zygote.run("prepare", **arguments | {"folder": str(small_disk.parent / "before")})
    told = 0
    for room in (0, 4, 12, 24, 40, 60, 90, 130, 180, 240, 400, 700, 1500):
        shutil.rmtree(folder, ignore_errors=True)
        if (small_disk.parent / "before").exists():
            shutil.copytree(small_disk.parent / "before", folder)
        filler.write_bytes(bytes(max(0, shutil.disk_usage(small_disk).free - room * 1024)))
        zygote.forget_embedded()
        answer = zygote.run("act", **arguments)
        assert answer["status"] == 0 and answer["result"].get("told", True), answer
        told += "raised" in answer["result"]
        filler.unlink()
        if folder.exists():
            assert zygote.run("look", **arguments)["result"]["returned"] == []
        went_on = zygote.run("go on", **arguments)["result"]["returned"]
        assert went_on["problems"] == [] and went_on["again"] <= went_on["in_hand"], (room, went_on)
        if "raised" not in answer["result"]:
            break
    else:
        raise AssertionError("it never came to its end")
    assert told >= 3, "the disk was full at several places"


@traced
@pytest.mark.parametrize(("kind", "most"), often(3, 8, KINDS[1:]))
def test_killed_while_another_process_has_it_open(disturber: Disturber, kind: str, most: int) -> None:
    """The log is then not read anew by the next one: what was left in it is overwritten, in part."""
    outcomes = list(disturber.points(kind, most, "signal=SIGKILL", most, beside=True))
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
@pytest.mark.parametrize(("kind", "most"), often(3, 8, ("next run", "add", "delete", "rebuild")))
def test_a_process_that_goes_on_after_a_fault(disturber: Disturber, kind: str, most: int) -> None:
    outcomes = list(disturber.points(kind, most, "error=EIO", most, job="stumble"))
    outcomes += [  # the first two are the small write's before
        disturber.point(kind, 8, "fdatasync", f"error=EIO:when={place}", job="stumble") for place in ("3", "4", "3..4")
    ]
    check(outcomes)
    assert all(outcome.reached for outcome in outcomes)
