"""The write-ahead log, left by processes that were killed, cut, flipped and lost, with its index and without.

Opening a collection does not look at its log; `retriever verify` does, before it opens it.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from damaged_collection import contents
from samples import Run

from indexes.folder.collection import DATABASE
from indexes.folder.verify import refuse_broken_log
from indexes.pages import wal
from retriever import Retriever
from retriever.errors import Damaged
from retriever.recovery.salvage import salvage

LOCKS = Path("/proc/locks")

LOG, INDEX = f"{DATABASE}-wal", f"{DATABASE}-shm"
SOME = [f"d{number}" for number in range(40, 100)]


def killed_after(folder: Path, target: Path, work: Callable[[Retriever], object]) -> Path:
    """The collection as it is when a process is killed that has done this work."""
    own = Path(shutil.copytree(folder, target.with_name(f"{target.name}-open")))
    with Retriever.open(own) as retriever:
        work(retriever)
        return Path(shutil.copytree(own, target))


@pytest.fixture
def begun(collection: Path, tmp_path: Path) -> Path:
    """With one transaction in the log."""
    return killed_after(collection, tmp_path / "begun", lambda retriever: retriever.delete(["d1"]))


@pytest.fixture
def left_over(begun: Path, tmp_path: Path) -> Path:
    """One writer was killed in the sync of a large transaction, and a small one has overwritten its beginning."""
    large = killed_after(begun, tmp_path / "large", lambda retriever: retriever.delete(SOME))
    small = killed_after(begun, tmp_path / "small", lambda retriever: retriever.delete(["d2"]))
    behind = (large / LOG).read_bytes()[(small / LOG).stat().st_size :]
    assert behind
    with (small / LOG).open("ab") as log:
        log.write(behind)
    return small


def all_but_two(collection: Path) -> dict[str, tuple[str, str, str]]:
    return {id_: document for id_, document in contents(collection).items() if id_ not in ("d1", "d2")}


@pytest.fixture
def expected(collection: Path, tmp_path: Path) -> dict[str, tuple[str, str, str]]:
    return all_but_two(Path(shutil.copytree(collection, tmp_path / "expected")))


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_what_a_killed_writer_left_in_the_log_is_no_damage(
    left_over: Path, expected: dict[str, tuple[str, str, str]], tmp_path: Path
) -> None:
    report = salvage(tmp_path / "saved", left_over)
    assert not report.notes and not report.lost
    assert contents(tmp_path / "saved") == expected
    refuse_broken_log(left_over)
    with Retriever.open(left_over) as retriever:
        assert retriever.verify().problems == []
        retriever.delete(["d3"])
        assert retriever.verify().problems == []
    del expected["d3"]
    assert contents(left_over) == expected
    assert not (left_over / "quarantine").exists()


def test_without_its_index_verify_tells_and_changes_nothing(
    left_over: Path, expected: dict[str, tuple[str, str, str]], tmp_path: Path, run: Run
) -> None:
    (left_over / INDEX).unlink()
    before = (left_over / LOG).read_bytes()
    salvage(tmp_path / "saved", left_over)
    assert expected.items() <= contents(tmp_path / "saved").items(), "nothing is lost by what may not have happened"
    for options in ([], ["--repair"]):
        said = run("verify", "--index", left_over, *options, code=1).output
        assert "interrupted write" in said and "salvage" in said
    assert (left_over / LOG).read_bytes() == before
    with Retriever.open(left_over) as retriever:
        assert len(retriever) == len(expected) and retriever.verify().clean
    assert contents(left_over) == expected
    run("verify", "--index", left_over)


def test_damage_before_what_was_left_over_is_found(left_over: Path) -> None:
    refuse_broken_log(left_over)
    sound = wal.read(left_over / DATABASE).sound
    flip(left_over / LOG, wal.HEADER + (sound - 1) * (4096 + wal.FRAME_HEADER) + 2000)
    with pytest.raises(Damaged, match="retriever salvage NEW"):
        refuse_broken_log(left_over)


@pytest.mark.parametrize("place", [-100, -4100, 3000])
def test_a_bit_of_what_was_acknowledged_is_never_lost_silently(begun: Path, place: int, run: Run) -> None:
    flip(begun / LOG, place)
    before = (begun / LOG).read_bytes()
    for _ in range(2):
        said = run("verify", "--index", begun, code=1).output
        assert "frames were acknowledged" in said and "retriever salvage NEW" in said
    assert (begun / LOG).read_bytes() == before


def test_a_log_that_ends_before_what_was_acknowledged(begun: Path) -> None:
    data = (begun / LOG).read_bytes()
    for length in (len(data) - 1, len(data) // 2, 40, 0):
        (begun / LOG).write_bytes(data[:length])
        with pytest.raises(Damaged, match="salvage"):
            refuse_broken_log(begun)
    (begun / LOG).unlink()
    with pytest.raises(Damaged, match="missing or empty"):
        refuse_broken_log(begun)
    (begun / LOG).write_bytes(data)
    refuse_broken_log(begun)
    with Retriever.open(begun) as retriever:
        assert retriever.verify().clean


def test_an_index_that_is_damaged_counts_for_nothing(begun: Path) -> None:
    headers = wal._index_headers(begun / DATABASE)
    assert len(headers) == 2 and headers[0] == headers[1] and headers[0].frames == wal.read(begun / DATABASE).sound > 0
    flip(begun / INDEX, 16)
    assert wal._index_headers(begun / DATABASE) == headers[1:]
    flip(begun / INDEX, 48 + 16)
    assert wal._index_headers(begun / DATABASE) == []
    refuse_broken_log(begun)
    with Retriever.open(begun) as retriever:
        assert retriever.verify().clean


def test_verify_of_an_open_collection_finds_transactions_behind_a_break(
    collection_with_log: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(collection_with_log, tmp_path / "c"))
    with Retriever.open(folder) as retriever:
        assert retriever.verify().clean
        flip(folder / LOG, 500)
        report = retriever.verify()
        assert report.database_broken and "frame 1 is wrong" in report.problems[0]


@pytest.mark.skipif(not LOCKS.exists(), reason="the system does not list its locks")
def test_verify_lets_go_of_no_lock(begun: Path) -> None:
    def locks() -> list[str]:
        inode = str((begun / INDEX).stat().st_ino)
        return sorted(line.split(":", 1)[1] for line in LOCKS.read_text().splitlines() if f":{inode} " in line)

    with Retriever.open(begun) as retriever, Retriever.open(begun) as other:
        assert len(retriever) == len(other)
        before = locks()
        assert before
        assert retriever.verify().clean
        assert locks() == before
        with Retriever.open(begun) as third:
            assert len(third) == len(other)
        assert locks() == before
