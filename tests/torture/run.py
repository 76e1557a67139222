"""`make torture`: everything that tries to break a collection, for as long as it takes, and a table of what was found.

    python tests/torture/run.py --only crashes,crowd --points 10000 --seconds 600 --out results/torture

Every suite's line is written to OUT/torture.json when it is done, with the date, the commit and a digest of the code of
the product. A suite that is there, with as many points and seconds, of the same code and without failures, is not run
again. So a stopped run goes on with what is missing. `--again` runs it anew. OUT/torture.md is the table for
docs/promises.md.
"""

import argparse
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parents[1] / "support"
ROOT = SUPPORT.parents[1]
sys.path[:0] = [str(SUPPORT), str(ROOT)]

from collection_jobs import KINDS  # noqa: E402
from crashes import Disturber, Outcome, Zygote, strace_works  # noqa: E402

EXAMPLES_KEPT = 20
MOST_SLOWER = 3
"""How much slower searches may be beside a client that misbehaves. Only a long run can tell."""
LONG_RUNS = 3 * 12
"""Of tests/torture/test_state_machine.py in its three places, when it is asked for its long ones."""


@dataclass
class Line:
    """One line of the table."""

    suite: str
    what: str
    tried: int = 0
    came_to: dict[str, int] = field(default_factory=dict)
    """How many of them ended how."""
    failures: int = 0
    examples: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0

    def fail(self, problem: str) -> None:
        self.failures += 1
        if len(self.examples) < EXAMPLES_KEPT:
            self.examples.append(problem)


@dataclass
class Place:
    """Where to work, and how much."""

    scratch: Path
    out: Path
    encoder: str
    points: int
    seconds: int


# ---- the suites ------------------------------------------------------------------------------------------


def crashes(place: Place) -> Line:
    line = Line("crashes", f"SIGKILL at every call that changes a file, {len(KINDS)} jobs, other documents each round")
    return _disturbed(place, line, place.points, lambda seed, kind: (kind, seed, "signal=SIGKILL", None))


def faults(place: Place) -> Line:
    line = Line("faults", "EIO or ENOSPC from such a call, once")

    def of(seed: int, kind: str) -> Points:
        return kind, seed, f"error={'EIO' if seed % 2 else 'ENOSPC'}", 40

    return _disturbed(place, line, place.points // 2, of)


def beside(place: Place) -> Line:
    line = Line("beside", "SIGKILL at such a call, while another process has the collection open")
    return _disturbed(
        place, line, place.points // 4, lambda seed, kind: (kind, seed, "signal=SIGKILL", None), beside=True
    )


def stumbles(place: Place) -> Line:
    line = Line("stumbles", "EIO from such a call, then another write by the same process, then SIGKILL")
    return _disturbed(
        place, line, place.points // 10, lambda seed, kind: (kind, seed, "error=EIO", None), job="stumble"
    )


Points = tuple[str, int, str, int | None]


def _disturbed(place: Place, line: Line, wanted: int, of: Callable[[int, str], Points], **how: Any) -> Line:
    """One worker a core, each with its own zygote, over the rounds of all jobs until so many points were reached."""
    rounds = ((seed, kind) for seed in itertools.count(100) for kind in KINDS)
    taking, counting = threading.Lock(), threading.Lock()
    came_to: Counter[str] = Counter()

    def work(core: int) -> None:
        zygote = Zygote(place.scratch / f"{line.suite}-{core}", place.encoder, core=core)
        disturber = Disturber(zygote)
        try:
            while came_to["reached"] < wanted:
                with taking:
                    seed, kind = next(rounds)
                for outcome in disturber.points(*of(seed, kind), **how):
                    with counting:
                        _count(line, came_to, outcome)
                    if came_to["reached"] >= wanted:
                        break
        except BaseException as error:
            line.fail(f"the suite itself: {error!r}")
            raise
        finally:
            zygote.close()

    workers = [threading.Thread(target=work, args=[core]) for core in range(len(os.sched_getaffinity(0)))]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        time.sleep(20)
        print(f"  {line.suite}: {came_to['reached']:,} of {wanted:,}, {line.failures} failures", flush=True)
    line.tried, line.came_to = came_to["reached"], dict(came_to)
    return line


def _count(line: Line, came_to: "Counter[str]", outcome: Outcome) -> None:
    came_to["reached" if outcome.reached else "without effect"] += 1
    if outcome.told:
        came_to[f"told as {outcome.told}"] += 1
    came_to["embedded again: nothing" if not outcome.again else "embedded again: no more than was in hand"] += 1
    if outcome.too_much_again:
        line.fail(f"{outcome.what}: {outcome.again} tokens embedded again, and at most {outcome.in_hand} were in hand")
    for problem in outcome.problems:
        line.fail(f"{outcome.what}: {problem}")


def short_writes(place: Place) -> Line:
    line = Line("short writes", "no file may grow beyond some size: a write is done in part, the next fails")
    rng = random.Random(0)
    return _moments(
        place,
        line,
        place.points // 20,
        lambda disturber, kind, seed: disturber.with_small_files(kind, seed, int(10 ** rng.uniform(1, 5.3))),
    )


def moments(place: Place) -> Line:
    line, rng = Line("moments", "SIGKILL at a random moment, with both cores busy"), random.Random(1)
    with _load():
        return _moments(
            place, line, place.points // 20, lambda d, kind, seed: d.at_a_moment(kind, seed, rng.uniform(0, 0.2))
        )


def signals(place: Place) -> Line:
    line, rng = Line("signals", "Ctrl-C or SIGTERM at a random moment, once or twice"), random.Random(2)
    sent = [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 2, [signal.SIGTERM] * 2]

    def point(disturber: Disturber, kind: str, seed: int) -> Outcome:
        chosen = sent[seed % 4]
        outcome = disturber.at_a_moment(kind, seed, rng.uniform(0, 0.08), *chosen)
        if len(chosen) == 1 and outcome.told and outcome.again:
            outcome.problems.append(f"{outcome.again} tokens were embedded again after a clean end")
        return outcome

    return _moments(place, line, place.points // 20, point)


def _moments(place: Place, line: Line, wanted: int, point: Callable[[Disturber, str, int], Outcome]) -> Line:
    came_to = Counter[str]()
    with closing(Zygote(place.scratch / line.suite.replace(" ", "-"), place.encoder, core=0)) as zygote:
        disturber = Disturber(zygote)
        for seed, kind in ((seed, kind) for seed in itertools.count(200) for kind in KINDS for _ in range(5)):
            _count(line, came_to, point(disturber, kind, seed))
            line.tried += 1
            if line.tried >= wanted:
                break
    line.came_to = dict(came_to)
    return line


@contextmanager
def _load() -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def power(place: Place) -> Line:
    """Folders that a power failure could have left: 21 of every recorded job, other documents each round."""
    line = Line("power", "power lost: what was not synced is there in part, in another order, or not at all")
    wanted = place.points // 5
    came_to = Counter[str]()
    with closing(Zygote(place.scratch / "power", place.encoder, core=0)) as zygote:
        disturber = Disturber(zygote)
        for seed, kind in ((seed, kind) for seed in itertools.count(300) for kind in KINDS):
            for outcome in disturber.power_failures(kind, seed, min(21, wanted - line.tried)):
                line.tried += 1
                came_to[f"folders after {kind}"] += 1
                for problem in outcome.problems:
                    line.fail(f"{outcome.what}: {problem}")
            if line.tried >= wanted:
                break
    line.came_to = dict(came_to)
    return line


def damaged_files(place: Place) -> Line:
    return _damaged(place, Line("damaged files", "truncated, flipped, removed, added: the derived files"), "files")


def damaged_database(place: Place) -> Line:
    return _damaged(place, Line("damaged database", "truncated, zeroed, flipped: the database, its log"), "database")


def flipped(place: Place) -> Line:
    return _damaged(place, Line("flipped bits", "single bits of the tables that lead from a vector to a hit"), "flips")


def _damaged(place: Place, line: Line, what: str) -> Line:
    import damages
    from damaged_collection import make

    variants = [(False, False), (True, False), (True, True)] if what == "database" else [(False, False)]
    for logged, noted in variants:
        name = f"{what}-{logged}-{noted}"
        original = make(place.scratch / name / "c", place.encoder, with_log=logged, with_index=noted)
        cases = place.scratch / f"{name}-cases"
        cases.mkdir()
        outcomes = damages.tortured(what, original, cases, place.points // 50, seed=7)
        line.tried += outcomes.tried
        for name, count in asdict(outcomes).items():
            if isinstance(count, int) and name != "tried":
                line.came_to[name] = line.came_to.get(name, 0) + count
        for failure in outcomes.failures:
            line.fail(failure)
    return line


def machine(place: Place) -> Line:
    times = max(1, place.points // 1000)
    what = (
        f"{LONG_RUNS * times} runs of 15 steps in a folder (with kills), in Milvus Lite and over HTTP, beside a model"
    )
    line = Line("state machine", what)
    return _by_pytest(
        line, LONG_RUNS * times, ["tests/torture/test_state_machine.py", "-k", "long"], RETRIEVER_TORTURE=times
    )


def fuzz(place: Place) -> Line:
    line = Line("hostile input", f"every test of hostile input, fuzzed ones {place.points // 10:,} times")
    return _by_pytest(line, place.points // 10, ["tests/hostile"], RETRIEVER_FUZZ=place.points // 10)


def _by_pytest(line: Line, tried: int, arguments: list[str], **environment: int) -> Line:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-o", "timeout=0", "-p", "no:cacheprovider", *arguments]
    values = {name: str(value) for name, value in environment.items()}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | values, capture_output=True, text=True)
    line.tried = tried
    line.came_to = {done.stdout.strip().splitlines()[-1][:100]: 1}
    if done.returncode:
        line.fail(done.stdout[-3000:])
    return line


def crowd(place: Place) -> Line:
    from crowd import gather

    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(SUPPORT)])
    found = gather(place.scratch / "crowd" / "c", place.encoder, readers=8, seconds=place.seconds)
    line = Line("crowd", f"8 reader processes and a writer for {place.seconds} s", found.searches)
    line.came_to = {"searches": found.searches, "writes": found.writes, "publications": found.publications}
    for problem in found.problems:
        line.fail(problem)
    return line


def serving(place: Place) -> Line:
    from serving_load import load

    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(SUPPORT)])
    runs = max(2, place.seconds // 120)
    found = load(place.scratch / "serving" / "c", place.encoder, seconds=place.seconds, runs=runs)
    what = f"4 clients, a writer, restarts and a client that misbehaves for {place.seconds} s"
    line = Line("serving", what, found.searches)
    line.came_to = {
        "searches": found.searches,
        "writes": found.writes,
        "publications": found.publications,
        "restarts": found.restarts,
        "requests that misbehave": found.misbehaved,
        "p99 in ms": round(1000 * found.p99(False)),
        "p99 in ms, beside the client that misbehaves": round(1000 * found.p99(True)),
    }
    for problem in found.problems:
        line.fail(problem)
    if found.p99(True) > MOST_SLOWER * found.p99(False):
        line.fail(f"p99 beside the client that misbehaves is more than {MOST_SLOWER} times that without it")
    return line


def forks(place: Place) -> Line:
    line = Line("forks", "a child that is forked after opening works and ends, 1,000 times in each of four ways")
    return _by_pytest(line, 4000, ["tests/encoder/test_forks.py", "-m", "torture"])


def parsers(place: Place) -> Line:
    """Fuzzing of every parser, guided by coverage."""
    out = place.out / "fuzz"  # findings must outlive the run
    command = [sys.executable, "tests/fuzz/run.py", "--seconds", str(place.seconds // 6), "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=False)
    done = json.loads((out / "fuzz.json").read_text())
    line = Line("parsers", f"each parser of foreign bytes fuzzed for {place.seconds // 6} s, guided by coverage")
    line.tried = sum(one["inputs"] for one in done.values())
    line.came_to = {f"inputs for {name}": one["inputs"] for name, one in done.items()}
    for name, one in done.items():
        for finding in one["findings"]:
            line.fail(f"{name}: {finding}")
    return line


SUITES: dict[str, Callable[[Place], Line]] = {
    "crashes": crashes,
    "faults": faults,
    "beside": beside,
    "stumbles": stumbles,
    "short-writes": short_writes,
    "moments": moments,
    "signals": signals,
    "power": power,
    "damaged-files": damaged_files,
    "damaged-database": damaged_database,
    "flipped-bits": flipped,
    "machine": machine,
    "fuzz": fuzz,
    "forks": forks,
    "parsers": parsers,
    "crowd": crowd,
    "serving": serving,
}
TRACED = ("crashes", "faults", "beside", "stumbles", "power")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SUITES), help="suites, with commas between them")
    parser.add_argument("--points", type=int, default=10_000, help="crash points; the other suites go by it")
    parser.add_argument("--seconds", type=int, default=3600, help="how long the crowd stays, and the server serves")
    parser.add_argument("--again", action="store_true", help="run suites that are done, too")
    parser.add_argument("--out", type=Path, default=Path("results/torture"))
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(SUITES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(SUITES)}")
    if set(chosen) & set(TRACED) and not strace_works():
        parser.error(f"strace is needed, and must be allowed to trace: install it, or leave out {', '.join(TRACED)}")

    from samples import make_bert

    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "torture.json"
    lines: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    lines = {name: line for name, line in lines.items() if "asked" in line}
    with tempfile.TemporaryDirectory(prefix="torture") as scratch:
        os.environ["XDG_CACHE_HOME"] = str(Path(scratch) / "cache")
        encoder = str(make_bert(Path(scratch) / "tiny"))
        place = Place(Path(scratch), options.out.resolve(), encoder, options.points, options.seconds)
        for name in chosen:
            asked = {"points": options.points, "seconds": options.seconds, "code": _code()}
            done = lines.get(name)
            if done and not options.again and done["asked"] == asked and not done["failures"]:
                print(f"{name} was done on {done['date']} with the same code, as {done['commit']}", flush=True)
                continue
            print(f"{name}…", flush=True)
            before, commit = sum(os.times()[:4]), _commit()
            try:
                line = SUITES[name](place)
            except Exception:
                line = Line(name, "ended by an error of the suite itself")
                line.fail(traceback.format_exc()[-3000:])
            line.cpu_seconds = round(sum(os.times()[:4]) - before, 1)
            lines[name] = {**asdict(line), "asked": asked, "date": date.today().isoformat(), "commit": commit}
            path.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    (options.out / "torture.md").write_text(_markdown(lines), encoding="utf-8")
    _show(lines)
    sys.exit(1 if any(line["failures"] for line in lines.values()) else 0)


def _code() -> str:
    """Return a digest of the product's files."""
    digest = hashlib.sha256()
    for path in sorted(
        path for name in ("retriever", "indexes") for path in (ROOT / name).rglob("*") if path.is_file()
    ):
        if path.suffix != ".pyc":
            digest.update(f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def _markdown(lines: dict[str, dict[str, Any]]) -> str:
    """Return the table as the documentation shows it."""
    rows = [
        "| suite | what was tried | how often | what came of it | failures | date and commit |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines.values():
        came_to = "; ".join(f"{name}: {count:,}" for name, count in sorted(line["came_to"].items()))
        when = f"{line['date']}, {line['commit']}"
        cells = [line["suite"], line["what"], f"{line['tried']:,}", came_to, str(line["failures"]), when]
        rows.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(rows) + "\n"


def _show(lines: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("suite", "what was tried", "how often", "what came of it", "failures", title="torture")
    for line in lines.values():
        came_to = line["came_to"]
        assert isinstance(came_to, dict)
        shown = "\n".join(f"{name}: {count:,}" for name, count in sorted(came_to.items()))
        table.add_row(str(line["suite"]), str(line["what"]), f"{line['tried']:,}", shown, str(line["failures"]))
    Console(width=140).print(table)
    for line in lines.values():
        examples = line["examples"]
        assert isinstance(examples, list)
        for example in examples[:3]:
            print(f"{line['suite']}: {example}")


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
