"""Damage done to a collection, case by case, and what the collection makes of it: counted, with every failure named.

`files` takes the derived files, `database` documents.sqlite and its log, `log` that alone, `flips` single bits of the
tables that lead from a vector to a hit. Each case damages a copy of the folder, and runs in a child process in batches,
so that a crash of the process itself is a failure with a name.
Children cannot use libraries whose threads run in their parent: a process that has searched calls `tortured`, which
has a fresh one do it. By hand: python tests/support/damages.py database FOLDER SCRATCH COUNT SEED
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from damaged_collection import DELETED, QUERIES, contents

from indexes.errors import Damaged, RetrieverError
from indexes.folder.verify import refuse_broken_log
from retriever import Hit, Retriever
from retriever.recovery.salvage import salvage

BATCH = 100
SECONDS_A_CASE = 30
PAGE = 4096
DATABASE = "documents.sqlite"
LOG = f"{DATABASE}-wal"
INDEX = f"{DATABASE}-shm"
TRUNCATIONS = 5
"""For each other case of a kind; a collection has some hundred pages."""
ROUNDING = 1e-6
"""Between scores of an index and of the same index made again: on some processors (AMD's, Intel's without AVX-512) the
last bit of a transformed vector depends on how many others are transformed with it."""
TREES = ("passages", "passages_by_vector", "sqlite_autoindex_documents_1", "unused", "documents", "vectors")
"""What leads from a vector to a hit."""


@dataclass
class Outcomes:
    """How many cases ended how."""

    tried: int = 0
    harmless: int = 0
    """Nothing was found, and nothing was changed by it."""
    found: int = 0
    repaired: int = 0
    salvaged: int = 0
    nothing_left: int = 0
    """Cases in which there was nothing sound to salvage, and that was said."""
    told: int = 0
    """Cases in which a search refused to answer."""
    unnoticed: int = 0
    """Cases in which searches gave fewer hits, or other ones by words, that only `verify` could tell of."""
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Outcomes") -> None:
        self.tried += other.tried
        self.harmless += other.harmless
        self.found += other.found
        self.repaired += other.repaired
        self.salvaged += other.salvaged
        self.nothing_left += other.nothing_left
        self.told += other.told
        self.unnoticed += other.unnoticed
        self.failures += other.failures


@dataclass(frozen=True)
class Damage:
    """One damage to one file, named so that it can be done again."""

    file: str
    kind: str
    place: int = 0
    length: int = 0

    def __str__(self) -> str:
        return f"{self.file}: {self.kind} at {self.place:,} ({self.length})"

    def do(self, folder: Path) -> None:
        path = folder / self.file
        if self.kind == "remove":
            path.unlink()
            return
        if self.kind == "add":
            path.write_bytes(b"stray")
            return
        data = bytearray(path.read_bytes())
        if self.kind == "truncate":
            del data[self.place :]
        elif self.kind == "zero":
            data[self.place : self.place + self.length] = bytes(min(self.length, len(data) - self.place))
        elif self.kind == "flip":
            data[self.place] ^= self.length
        elif self.kind == "garbage":
            noise = random.Random(self.place).randbytes(self.length)
            data[self.place : self.place + self.length] = noise[: len(data) - self.place]
        path.write_bytes(data)

    def pages(self, size: int) -> set[int]:
        """The pages of a database that it touches."""
        if self.kind == "truncate":
            return set(range(self.place // PAGE + 1, size // PAGE + 2))
        if self.kind == "remove":
            return set(range(1, size // PAGE + 2))
        last = self.place if self.kind == "flip" else self.place + self.length - 1
        return set(range(self.place // PAGE + 1, last // PAGE + 2))


Ranking = list[list[tuple[str, float]]]
"""Of each query the hits by meaning, then of each those by words: id, passage and metadata as one text, and score."""


def ranking(retriever: Retriever) -> Ranking:
    dense = [_shown(hits) for hits in retriever.search_many(QUERIES, 300, mode="dense")]
    return [*dense, *(_shown(retriever.search(query, 300, mode="lexical")) for query in QUERIES)]


def _same(found: Ranking, expected: Ranking) -> bool:
    """Whether the hits are the same, with the same scores but for rounding, best first."""
    return all(
        dict(hits).keys() == dict(sound).keys()
        and all(abs(score - dict(sound)[shown]) <= ROUNDING for shown, score in hits)
        and hits == sorted(hits, key=lambda hit: -hit[1])
        for hits, sound in zip(found, expected, strict=True)
    )


def _shown(hits: Sequence[Hit]) -> list[tuple[str, float]]:
    return [(json.dumps([hit.id, hit.title, hit.passage, hit.metadata]), hit.score) for hit in hits]


def refuse_wrong_hits(found: Ranking, expected: Ranking) -> None:
    """Whatever the damage, a hit must be one that was stored, with the passage and the score it had."""
    for hits, sound in zip(found[: len(QUERIES)], expected, strict=False):
        wrong = set(map(tuple, hits)) - set(map(tuple, sound))
        assert not wrong, f"a hit that is none: {sorted(wrong)[:2]}"
    for hits in found[len(QUERIES) :]:
        unknown = {_id(shown) for shown, _ in hits} - {_id(shown) for shown, _ in expected[0]}
        assert not unknown, f"by words a hit that was never stored: {sorted(unknown)[:2]}"


def _id(shown: str) -> str:
    return str(json.loads(shown)[0])


def tortured(what: str, original: Path, scratch: Path, count: int, seed: int) -> Outcomes:
    """`files`, `database`, `log` or `flips` in a process of its own."""
    command = [sys.executable, __file__, what, str(original), str(scratch), str(count), str(seed)]
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    )
    assert done.returncode == 0, done.stderr
    return Outcomes(**json.loads(done.stdout.splitlines()[-1]))


# ---- the loop --------------------------------------------------------------------------------------------

Judge = Callable[[Path, Damage, Outcomes], None]


def run(cases: Sequence[Damage], original: Path, scratch: Path, judge: Judge) -> Outcomes:
    """Every case on a copy of its own, in children of this process."""
    outcomes = Outcomes()
    for start in range(0, len(cases), BATCH):
        batch = list(cases[start : start + BATCH])
        while batch:
            batch = _in_a_child(batch, original, scratch, judge, outcomes)
    return outcomes


def _in_a_child(batch: list[Damage], original: Path, scratch: Path, judge: Judge, outcomes: Outcomes) -> list[Damage]:
    """Run these cases in a child; returns those after one that brought it down."""
    results = scratch / "results.jsonl"
    results.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            with results.open("w") as file:
                for case in batch:
                    own = Outcomes(tried=1)
                    signal.alarm(SECONDS_A_CASE)
                    _one(case, original, scratch / "case", judge, own)
                    file.write(json.dumps(own.__dict__) + "\n")
                    file.flush()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    done = [Outcomes(**json.loads(line)) for line in results.read_text().splitlines()]
    for own in done:
        outcomes.add(own)
    if len(done) < len(batch):
        outcomes.add(Outcomes(tried=1, failures=[f"{batch[len(done)]}: the process ended with status {status}"]))
    return batch[len(done) + 1 :]


def _one(case: Damage, original: Path, folder: Path, judge: Judge, own: Outcomes) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copytree(original, folder / "c")
    case.do(folder / "c")
    try:
        judge(folder, case, own)
    except BaseException as error:
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        own.failures.append(f"{case}: {type(error).__name__} at {where}: {str(error)[:400]}")


# ---- derived files ---------------------------------------------------------------------------------------


def files(original: Path, scratch: Path, count: int, seed: int) -> Outcomes:
    """Truncate, flip, remove and add files of the generation, and the collection's small ones."""
    expected = _in_a_process(lambda: _ranking_of_copy(original, scratch / "sound"), scratch)
    return run(list(file_cases(original, count, seed)), original, scratch, _files_judge(expected))


def file_cases(original: Path, count: int, seed: int) -> Iterator[Damage]:
    rng = random.Random(seed)
    paths = sorted(path for path in original.glob("generations/*/*") if path.is_file())
    for path in paths:
        name, size = str(path.relative_to(original)), path.stat().st_size
        yield from (Damage(name, "truncate", place) for place in range(0, size, PAGE))
        yield Damage(name, "truncate", size - 1)
        yield Damage(name, "remove")
        places = {0, size - 1, *(rng.randrange(size) for _ in range(count))}
        yield from (Damage(name, "flip", place, 1 << rng.randrange(8)) for place in sorted(places))
    yield Damage(f"{paths[0].parent.relative_to(original)}/stray.bin", "add")
    for name in ("checked.json", "writer.lock"):
        if (original / name).exists():
            size = (original / name).stat().st_size
            yield Damage(name, "remove")
            yield Damage(name, "truncate", 0)
            yield from (Damage(name, "flip", rng.randrange(size), 1 << rng.randrange(8)) for _ in range(5))


def _files_judge(expected: Ranking) -> Judge:
    def judge(folder: Path, case: Damage, own: Outcomes) -> None:
        derived = case.file.startswith("generations/") and case.kind != "add"
        with Retriever.open(folder / "c") as retriever:
            try:
                found = ranking(retriever)
                assert found == expected, "the results differ"
                assert not derived, "the damaged file was searched"
            except Damaged as error:
                assert "verify --repair" in str(error), f"no advice: {error}"
            report = retriever.verify()
            if report.clean:
                assert not derived, "verify found nothing"
                own.harmless += 1
                return
            own.found += 1
            assert Path(case.file).name in " ".join(report.problems), f"not named: {report.problems}"
            assert retriever.verify(repair=True).left == [], "left after the repair"
            assert retriever.verify().clean, "not clean after the repair"
        with Retriever.open(folder / "c") as retriever:
            assert _same(ranking(retriever), expected), "the repaired index ranks or scores otherwise"
        kept = [path.name for path in (folder / "c" / "quarantine").rglob("*")]
        assert case.kind == "remove" or Path(case.file).name in kept, "what was damaged was not kept"
        own.repaired += 1

    return judge


# ---- the database ----------------------------------------------------------------------------------------


def log(original: Path, scratch: Path, count: int, seed: int) -> Outcomes:
    """The log alone."""
    return database(original, scratch, count, seed, log_only=True)


def database(original: Path, scratch: Path, count: int, seed: int, *, log_only: bool = False) -> Outcomes:
    """Truncate, zero, overwrite and flip the database and its log."""
    expected = _in_a_process(lambda: _ranking_of_copy(original, scratch / "sound"), scratch)
    stored = contents(scratch / "sound")
    pages = pages_of_documents(scratch / "sound", original)
    cases = [case for case in database_cases(original, count, seed) if case.file == LOG or not log_only]
    return run(cases, original, scratch, _database_judge(expected, stored, pages, original))


def database_cases(original: Path, count: int, seed: int) -> Iterator[Damage]:
    rng = random.Random(seed)
    size = (original / DATABASE).stat().st_size
    boundaries = list(range(0, size, PAGE))
    # In the long run at every boundary.
    yield from (Damage(DATABASE, "truncate", place) for place in _some(rng, boundaries, count * TRUNCATIONS))
    yield from (Damage(DATABASE, "zero", place, PAGE) for place in _some(rng, boundaries, count))
    yield from (Damage(DATABASE, "garbage", place, PAGE) for place in _some(rng, boundaries, count // 2))
    yield from (Damage(DATABASE, "flip", place, 1 << rng.randrange(8)) for place in _some(rng, range(100), count // 2))
    yield from (
        Damage(DATABASE, "flip", place, 1 << rng.randrange(8)) for place in _some(rng, range(100, PAGE), count // 2)
    )
    yield from (  # where pages tell what they hold
        Damage(DATABASE, "flip", page + rng.randrange(40), 1 << rng.randrange(8))
        for page in _some(rng, boundaries, count)
    )
    yield from (Damage(DATABASE, "flip", rng.randrange(size), 1 << rng.randrange(8)) for _ in range(2 * count))
    log = (original / LOG).stat().st_size if (original / LOG).exists() else 0
    if log:
        yield Damage(LOG, "remove")
        yield from (Damage(LOG, "truncate", place) for place in _some(rng, range(0, log, PAGE), count // 2))
        yield from (Damage(LOG, "zero", place, PAGE) for place in _some(rng, range(0, log, PAGE), count // 2))
        yield from (Damage(LOG, "flip", place, 1 << rng.randrange(8)) for place in _some(rng, range(56), count // 4))
        yield from (Damage(LOG, "flip", rng.randrange(log), 1 << rng.randrange(8)) for _ in range(count))


def _some(rng: random.Random, places: Sequence[int], count: int) -> list[int]:
    return list(places) if len(places) <= count else sorted(rng.sample(list(places), count))


def _database_judge(
    expected: Ranking, stored: dict[str, tuple[str, str, str]], pages: dict[str, set[int]], original: Path
) -> Judge:
    def judge(folder: Path, case: Damage, own: Outcomes) -> None:
        collection = folder / "c"
        before = _bytes_of(collection)
        shutil.copytree(collection, folder / "kept")
        clean, found = _looked_at(collection)
        cut = case.file == LOG and case.kind in ("truncate", "remove", "zero")
        if clean and cut and not (original / INDEX).exists():
            # A log that ends early is a sound log of an earlier time, and nothing in it can tell.
            assert not set(DELETED) & set(contents(collection)), "a deleted document is back"
            own.harmless += 1
            return
        if clean:
            assert contents(collection) == stored, "verify is clean, but documents differ"
            assert found == expected, "verify is clean, but results differ"
            own.harmless += 1
            return
        own.found += 1
        if found is None:
            own.told += 1
        elif case.file == DATABASE:  # a log that is cut short is an earlier time, with the hits of then
            refuse_wrong_hits(found, expected)
            own.unnoticed += found != expected
        try:
            report = salvage(folder / "saved", folder / "kept")
        except Damaged as error:
            assert "nothing could be salvaged" in str(error), error
            assert not (folder / "saved").exists(), "something was left at the target"
            untouched = _untouched(case, pages, original)
            assert not untouched or case.file == LOG or "`encoder`" in str(error), (
                f"there was {sorted(untouched)[:3]}: {error}"
            )
            own.nothing_left += 1
            return
        assert _bytes_of(folder / "kept") == before, "the damaged collection was changed"
        saved = contents(folder / "saved")
        may_return = any("deleted" in note for note in report.notes)
        for id_, content in saved.items():
            assert id_ in stored or may_return, f"{id_} was deleted and is back"
            assert stored.get(id_, content) == content or may_return, f"{id_} is not what was stored"
            assert id_ not in DELETED or may_return, f"{id_} was deleted and is back"
        missing = _untouched(case, pages, original) - set(saved)
        assert not missing or case.file == LOG, f"lost though untouched: {sorted(missing)[:5]}"
        with Retriever.open(folder / "saved") as retriever:
            assert retriever.verify().clean, retriever.verify().problems
            again = ranking(retriever)
        if report.transform.startswith("the original one"):
            scores = {_id(shown): score for shown, score in expected[0]}
            same = [(_id(shown), score) for shown, score in again[0] if _id(shown) in scores]
            changed = [(i, score) for i, score in same if stored[i] == saved[i] and abs(scores[i] - score) > ROUNDING]
            assert not changed, f"scores changed: {changed[:3]}"
        own.salvaged += 1

    return judge


# ---- single bits -----------------------------------------------------------------------------------------


def flips(original: Path, scratch: Path, count: int, seed: int) -> Outcomes:
    """Flip so many bits in each of the tables and indexes that lead from a vector to a hit."""
    expected = _in_a_process(lambda: _ranking_of_copy(original, scratch / "sound"), scratch)
    return run(list(flip_cases(original, count, seed)), original, scratch, _flips_judge(expected))


def flip_cases(original: Path, count: int, seed: int) -> Iterator[Damage]:
    rng = random.Random(seed)
    for tree in TREES:
        pages = pages_of_tree(original / DATABASE, tree)
        for _ in range(count):
            yield Damage(DATABASE, "flip", (rng.choice(pages) - 1) * PAGE + rng.randrange(PAGE), 1 << rng.randrange(8))


def pages_of_tree(database: Path, name: str) -> list[int]:
    """The pages of a table or an index, without those that long rows go on in."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [name]).fetchone()
    data, found, left = database.read_bytes(), [], [root]
    while left:
        number = left.pop()
        found.append(number)
        page = data[(number - 1) * PAGE : number * PAGE]
        if page[0] in (2, 5):  # inside of the tree
            places = struct.unpack(
                f">{struct.unpack('>H', page[3:5])[0]}H", page[12 : 12 + 2 * page[4] + 512 * page[3]]
            )
            left += [struct.unpack(">I", page[place : place + 4])[0] for place in (8, *places)]
    return sorted(found)


def _flips_judge(expected: Ranking) -> Judge:
    """Told, or the same results, or at least named by `verify`; and never a hit that is none."""

    def judge(folder: Path, case: Damage, own: Outcomes) -> None:
        clean, found = _looked_at(folder / "c", repair=False)
        assert not clean or found == expected, "verify is clean, but " + (
            "a search fails" if found is None else "results differ"
        )
        own.found, own.harmless, own.told = int(not clean), int(clean), int(found is None)
        if found is not None:
            refuse_wrong_hits(found, expected)
            own.unnoticed = int(found != expected)

    return judge


def _looked_at(collection: Path, *, repair: bool = True) -> tuple[bool, Ranking | None]:
    """Whether all is well with it, and what it finds; nothing but a RetrieverError may come out."""
    try:
        refuse_broken_log(collection)
        retriever = Retriever.open(collection)
    except RetrieverError:
        return False, None
    found = None
    with retriever:
        try:
            found = ranking(retriever)
            retriever.info()
        except RetrieverError:
            found = None
        asks: list[Callable[[], object]] = [
            lambda: retriever.similar("d7"),
            lambda: retriever.document("long"),
            lambda: len(retriever),
            lambda: retriever.search("Number 8", where=["n >= 3"], mode="hybrid"),
        ]
        for ask in asks:
            with contextlib.suppress(RetrieverError):
                ask()
        report = retriever.verify()
        if not repair:
            return report.clean, found
        if not report.clean and not report.database_broken:
            try:
                retriever.verify(repair=True)
            except Damaged as error:
                assert "salvage" in str(error), f"no advice: {error}"
        if not report.clean and report.database_broken:
            try:
                retriever.verify(repair=True)
                raise AssertionError("a broken database was repaired in its place")
            except Damaged as error:
                assert "retriever salvage" in str(error), f"no advice: {error}"
    return report.clean, found


def _bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _untouched(case: Damage, pages: dict[str, set[int]], original: Path) -> set[str]:
    """The documents none of whose pages the damage touches."""
    if case.file != DATABASE:
        return set(pages)
    touched = case.pages((original / DATABASE).stat().st_size)
    return {id_ for id_, own in pages.items() if not own & touched}


def pages_of_documents(sound: Path, original: Path) -> dict[str, set[int]]:
    """The pages that each document's own row lies on, those it goes on in included."""
    from indexes.pages.carving import TABLE_LEAF, Carver
    from indexes.pages.page_file import Page, Pages

    found: dict[str, set[int]] = {}
    there = contents(sound)
    with Pages(original / DATABASE) as pages:
        asked: set[int] = set()
        read = pages.page

        def noting(number: int) -> bytes:
            asked.add(number)
            return read(number)

        pages.page = noting  # type: ignore[method-assign]
        carver = Carver(pages)
        for number in range(1, len(pages) + 1):
            if number in pages.free:
                continue
            data = read(number)
            if data[100 if number == 1 else 0] != TABLE_LEAF:
                continue
            start = 108 if number == 1 else 8
            for cell in range(int.from_bytes(data[start - 5 : start - 3], "big")):
                asked.clear()
                one = bytearray(data)
                one[start - 5 : start - 3] = (1).to_bytes(2, "big")
                one[start : start + 2] = data[start + 2 * cell : start + 2 * cell + 2]
                for _, values, _ in carver._cells(Page(number, bytes(one)), 8, table=True):
                    if len(values) == 8 and values[1] in there and values[3] == there[values[1]][1]:
                        in_log = {page for page in {number, *asked} if page in pages.log.images}
                        found.setdefault(str(values[1]), {number, *asked} - in_log)
    assert set(found) == set(there)
    return found


def _ranking_of_copy(original: Path, folder: Path) -> Ranking:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    with Retriever.open(folder) as retriever:
        return ranking(retriever)


def _in_a_process(work: Callable[[], Ranking], scratch: Path) -> Ranking:
    """In a child too: threads that libraries start here would be dead in every child that comes after."""
    answer = scratch / "answer.json"
    child = os.fork()
    if child == 0:
        try:
            answer.write_text(json.dumps(work()))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return [[(id_, score) for id_, score in hits] for hits in json.loads(answer.read_text())]


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # its thread would not survive the fork
    import faiss  # noqa: F401 - once here instead of once in every child
    import onnxruntime  # noqa: F401
    import scipy.linalg  # noqa: F401
    import tokenizers  # noqa: F401

    task = {"files": files, "database": database, "log": log, "flips": flips}[sys.argv[1]]
    print(json.dumps(task(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])).__dict__))
