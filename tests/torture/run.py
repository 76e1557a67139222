"""`make torture`: everything that tries to break a collection, for as long as it takes, and a table of what was found.

    python tests/torture/run.py --only crashes,crowd --points 10000 --seconds 600 --out results/torture

Every suite's line is written to OUT/torture.json when it is done, and kept there when only others are run again.
"""

import argparse
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
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parents[1] / "support"
ROOT = SUPPORT.parents[1]
sys.path[:0] = [str(SUPPORT), str(ROOT)]

from collection_jobs import KINDS  # noqa: E402
from crashes import Disturber, Outcome, Zygote, strace_works  # noqa: E402

EXAMPLES_KEPT = 20
LONG_RUNS = 12
"""Of tests/torture/test_state_machine.py, when it is asked for its long ones."""


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
    encoder: str
    points: int
    seconds: int


# ---- the suites ------------------------------------------------------------------------------------------


def crashes(place: Place) -> Line:
    line = Line("crashes", "SIGKILL at every call that changes a file, seven jobs, other documents each round")
    return _disturbed(place, line, place.points, lambda seed, kind: (kind, seed, "signal=SIGKILL", None))


def faults(place: Place) -> Line:
    line = Line("faults", "EIO or ENOSPC from such a call, once")

    def of(seed: int, kind: str) -> Points:
        return kind, seed, f"error={'EIO' if seed % 2 else 'ENOSPC'}", 40

    return _disturbed(place, line, place.points // 4, of)


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
    zygote = Zygote(place.scratch / line.suite.replace(" ", "-"), place.encoder, core=0)
    disturber, came_to = Disturber(zygote), Counter[str]()
    for seed, kind in ((seed, kind) for seed in itertools.count(200) for kind in KINDS for _ in range(5)):
        _count(line, came_to, point(disturber, kind, seed))
        line.tried += 1
        if line.tried >= wanted:
            break
    zygote.close()
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
        outcomes = damages.tortured(what, original, cases, place.points // 100, seed=7)
        line.tried += outcomes.tried
        for name, count in asdict(outcomes).items():
            if isinstance(count, int) and name != "tried":
                line.came_to[name] = line.came_to.get(name, 0) + count
        for failure in outcomes.failures:
            line.fail(failure)
    return line


def machine(place: Place) -> Line:
    times = max(1, place.points // 1000)
    line = Line("state machine", f"{LONG_RUNS * times} runs of 15 steps, kills among them, beside a plain model")
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


SUITES: dict[str, Callable[[Place], Line]] = {
    "crashes": crashes,
    "faults": faults,
    "beside": beside,
    "stumbles": stumbles,
    "short-writes": short_writes,
    "moments": moments,
    "signals": signals,
    "damaged-files": damaged_files,
    "damaged-database": damaged_database,
    "flipped-bits": flipped,
    "machine": machine,
    "fuzz": fuzz,
    "crowd": crowd,
}
TRACED = ("crashes", "faults", "beside", "stumbles")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SUITES), help="suites, with commas between them")
    parser.add_argument("--points", type=int, default=10_000, help="crash points; the other suites go by it")
    parser.add_argument("--seconds", type=int, default=600, help="how long the crowd stays")
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
    lines: dict[str, dict[str, object]] = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory(prefix="torture") as scratch:
        os.environ["XDG_CACHE_HOME"] = str(Path(scratch) / "cache")
        encoder = str(make_bert(Path(scratch) / "tiny"))
        place = Place(Path(scratch), encoder, options.points, options.seconds)
        for name in chosen:
            print(f"{name}…", flush=True)
            before = sum(os.times()[:4])
            line = SUITES[name](place)
            line.cpu_seconds = round(sum(os.times()[:4]) - before, 1)
            lines[name] = asdict(line)
            path.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    _show(lines)
    sys.exit(1 if any(line["failures"] for line in lines.values()) else 0)


def _show(lines: dict[str, dict[str, object]]) -> None:
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
