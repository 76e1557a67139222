"""What is acknowledged is on disk: the calls that force it there are made, and in the right order.

No test can cut the power. But a tracer sees every write, and whether the file was synced between that and the moment
when something relies on it: a commit that names the files of a generation, or an answer that says that all is stored.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from collection_jobs import MARK
from crashes import Disturber, Zygote, strace_works

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux"),
    pytest.mark.skipif(not strace_works(), reason="strace is not installed, or may not trace here"),
]

WRITES = ("write", "pwrite64", "writev", "pwritev", "ftruncate", "fallocate")
SYNCS = ("fsync", "fdatasync")
RENAMES = ("rename", "renameat", "renameat2")


@pytest.fixture(scope="module")
def disturber(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Iterator[Disturber]:
    zygote = Zygote(tmp_path_factory.mktemp("durability"), tiny_bert, core=0)
    yield Disturber(zygote)
    zygote.close()


class Calls:
    """What a job did, in the order it did it."""

    def __init__(self, made: list[tuple[str, str]]) -> None:
        self.made = made
        self.acknowledged = next(place for place, (_, given) in enumerate(made) if MARK in given)

    def _of(self, calls: tuple[str, ...], path: Path) -> list[int]:
        return [
            place
            for place, (call, given) in enumerate(self.made)
            if call in calls and re.match(r"\d+<([^>]*)>", given) and self._path(given) == str(path)
        ]

    @staticmethod
    def _path(given: str) -> str:
        return re.sub(r"^\d+<([^>]*?)( \(deleted\))?>.*", r"\1", given)

    def writes(self, path: Path) -> list[int]:
        return self._of(WRITES, path)

    def syncs(self, path: Path) -> list[int]:
        return self._of(SYNCS, path)

    def rename(self, target: Path) -> tuple[int, str]:
        """When something took this name, and what was its name before."""
        for place, (call, given) in enumerate(self.made):
            names = re.findall(r'"([^"]*)"', given)
            if call in RENAMES and names[-1] == str(target):
                return place, names[0]
        raise AssertionError(f"nothing took the name {target}")

    def is_synced(self, path: Path, before: int, after: int = -1) -> bool:
        """Whether all that was written to it until then was synced until then, and after that other moment."""
        last = max([place for place in self.writes(path) if place < before], default=after)
        return any(max(last, after) < place < before for place in self.syncs(path))


@pytest.mark.parametrize("kind", ["first run", "next run", "add", "delete", "rebuild"])
def test_the_log_is_synced_before_anything_is_acknowledged(disturber: Disturber, kind: str) -> None:
    with disturber._copy(kind, 11) as folder:
        arguments = {"kind": kind, "seed": 11, "encoder": disturber.zygote.encoder, "folder": str(folder)}
        calls = Calls(disturber.zygote.recorded("acknowledge", **arguments))
        log = folder / "documents.sqlite-wal"
        assert calls.writes(log), "the job wrote nothing"
        assert calls.is_synced(log, before=calls.acknowledged)
        if kind == "first run":
            assert calls.is_synced(folder, before=calls.acknowledged)
            assert calls.is_synced(folder.parent, before=calls.acknowledged)


@pytest.mark.parametrize("kind", ["first run", "rebuild", "repair"])
def test_a_generation_is_on_disk_before_a_commit_names_it(disturber: Disturber, kind: str) -> None:
    with disturber._copy(kind, 12) as folder:
        arguments = {"kind": kind, "seed": 12, "encoder": disturber.zygote.encoder, "folder": str(folder)}
        calls = Calls(disturber.zygote.recorded("acknowledge", **arguments))
        generation = max((folder / "generations").iterdir())
        renamed, aside = calls.rename(generation)
        for path in generation.iterdir():
            written = Path(aside, path.name)
            assert calls.writes(written) or path.stat().st_size == 0, f"{path.name} was not seen to be written"
            assert calls.is_synced(written, before=renamed), f"{path.name} is not synced"
        assert calls.is_synced(Path(aside), before=renamed, after=max(calls.syncs(Path(aside, "manifest.json"))))
        committed = min(place for place in calls.writes(folder / "documents.sqlite-wal") if place > renamed)
        assert calls.is_synced(generation.parent, before=committed, after=renamed)
        assert calls.is_synced(folder, before=committed, after=renamed)


def test_what_is_written_aside_is_on_disk_before_it_takes_its_name(disturber: Disturber) -> None:
    target = disturber.zygote.scratch / "target"
    calls = Calls(disturber.zygote.recorded("write aside", target=str(target)))
    renamed, aside = calls.rename(target)
    for name in ("one.txt", "inner/two.txt", "inner", "."):
        assert calls.is_synced(Path(aside, name), before=renamed), f"{name} is not synced"
    assert calls.is_synced(target.parent, before=calls.acknowledged, after=renamed)
    assert (target / "inner" / "two.txt").read_text() == "two"
    shutil.rmtree(target)
