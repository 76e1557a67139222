"""The power fails during a job: whatever the disk then holds, every document is as before the job or as after it."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from collection_jobs import KINDS
from crashes import Disturber, Zygote, strace_works

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux"),
    pytest.mark.skipif(not strace_works(), reason="strace is not installed, or may not trace here"),
    pytest.mark.timeout(3600),
]


@pytest.fixture(scope="module")
def disturber(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Iterator[Disturber]:
    zygote = Zygote(tmp_path_factory.mktemp("power"), tiny_bert, core=0)
    yield Disturber(zygote)
    zygote.close()


@pytest.mark.parametrize("images", [pytest.param(4, id="quick"), pytest.param(21, id="often", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_power_fails(disturber: Disturber, kind: str, images: int) -> None:
    outcomes = list(disturber.power_failures(kind, images, images))
    assert len(outcomes) == images
    bad = [f"{outcome.what}: {problem}" for outcome in outcomes for problem in outcome.problems]
    assert not bad, "\n".join(bad[:3])


def test_what_is_not_synced_is_missed(disturber: Disturber, tmp_path: Path) -> None:
    """Without its syncs, the job would lose what it has told to be stored; so the tests above can fail."""
    with disturber.recorded("add", 1) as recording:
        ended = len(recording.operations)
        arguments = {"kind": "add", "seed": 1, "encoder": disturber.zygote.encoder}
        recording.image(ended, "none", random.Random(0), tmp_path / "synced")
        there = disturber.zygote.run("all there", folder=str(tmp_path / "synced"), **arguments)
        assert there["result"] == {"returned": []}
        for operation in recording.operations:
            operation.synced_at = None
        recording.image(ended, "none", random.Random(0), tmp_path / "lost")
        lost = disturber.zygote.run("all there", folder=str(tmp_path / "lost"), **arguments)
        assert lost["result"].get("raised") or lost["result"]["returned"]
