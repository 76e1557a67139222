"""Jobs on collections, killed at a chosen system call or made to fail there, and what is found afterwards.

strace does it: it counts how often each thread makes each call that changes a file, and at the Nth time kills the
process or has the call fail. What is found then is written down as one `Outcome` a point.
"""

import contextlib
import itertools
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import power
from collection_jobs import TALLY, TALLY_BYTES
from power import Recording

CALLS = (
    "write,pwrite64,writev,pwritev,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,ftruncate,fallocate,"
    "mkdir,mkdirat,rmdir"
).split(",")

DATABASE = "documents.sqlite"
SAID = "said.log"
"""What jobs print, those that did not end in time included."""
SAID_SHOWN = 6000
HOLD_OPEN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
print("open", flush=True)
sys.stdin.read()
"""

ENDED_BY_SIGNAL = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGINT, 128 + signal.SIGTERM}


def strace_works() -> bool:
    """Whether this machine lets strace trace a process."""
    try:
        done = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, timeout=20)
    except OSError:
        return False
    return done.returncode == 0


@dataclass
class Outcome:
    """What one disturbance did."""

    what: str
    """Such as "add 3, kill at 17"."""
    reached: bool
    """Whether the job came so far; one that ended before is no point."""
    told: str = ""
    """The error that the job ended with, if it was not killed."""
    problems: list[str] = field(default_factory=list)
    embedded: int = 0
    """Tokens embedded in all, by the job that was disturbed and the one that went on."""
    again: int = 0
    """Tokens embedded once more than they had to be."""
    in_hand: int = 0
    """Tokens in the two largest batches: with one thread of the encoder, what can be embedded and not yet stored is the
    batch that is being stored and the one finished meanwhile."""

    @property
    def too_much_again(self) -> bool:
        """Whether more was embedded again than a run can have had in its hands."""
        return self.again > self.in_hand


class Zygote:
    """The process that forks the jobs, on one core, with a folder of its own."""

    def __init__(
        self, scratch: Path, encoder: str, core: int | None = None, jobs: str = "collection_jobs", seconds: float = 120
    ) -> None:
        """`jobs` is the module that has them, `seconds` the time limit of each."""
        scratch.mkdir(parents=True, exist_ok=True)
        self.scratch = scratch
        self.tally = Path(tempfile.mkstemp(dir=scratch, prefix="tally")[1])
        self.encoder = encoder
        self.seconds = seconds
        self._ids = itertools.count(1)
        environment = os.environ | {TALLY: str(self.tally)}
        command = [sys.executable, str(Path(__file__).with_name("zygote.py")), jobs, encoder]
        cores = sorted(os.sched_getaffinity(0))
        if core is not None and shutil.which("taskset"):
            command = ["taskset", "-c", str(cores[core % len(cores)]), *command]
        root = str(Path(__file__).parents[2])
        environment["PYTHONPATH"] = os.pathsep.join([root, environment.get("PYTHONPATH", "")])
        with (scratch / SAID).open("w") as said:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, env=environment
            )
        self.forget_embedded()
        assert self._line() == {"ready": True}

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the process that forks the jobs has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def _answer(self) -> dict[str, Any]:
        """The answer to the last request; one to an earlier request, whose test failed before it read it, is dropped.

        A job that was killed because its time was over fails the test that runs it.
        """
        while (found := self._line())["id"] != self._id:
            pass
        if "timed_out" in found:
            said = (self.scratch / SAID).read_text(errors="replace")[-SAID_SHOWN:]
            raise AssertionError(f"the job did not end within {found['timed_out']} s. It printed last:\n{said}")
        return found

    def _send(self, request: dict[str, Any]) -> None:
        assert self.process.stdin
        print(json.dumps(request), file=self.process.stdin, flush=True)

    def _request(self, job: str, arguments: dict[str, Any], held: bool) -> None:
        self._id = next(self._ids)
        self._send({"id": self._id, "job": job, "arguments": arguments, "held": held, "seconds": self.seconds})

    def forget_embedded(self) -> None:
        self.tally.write_bytes(bytes(TALLY_BYTES))

    def begin(self, job: str, **arguments: Any) -> int:
        """Fork a child for a job that waits for `let_go`; its process number."""
        self._request(job, arguments, held=True)
        return int(self._answer()["pid"])

    def let_go(self) -> None:
        self._send({"id": self._id})

    def ended(self) -> dict[str, Any]:
        """Status and result of the job, once it has ended."""
        return self._answer()

    def run(self, job: str, **arguments: Any) -> dict[str, Any]:
        self._request(job, arguments, held=False)
        return self._answer()

    def run_traced(self, call: str, inject: str, job: str, **arguments: Any) -> dict[str, Any]:
        """Run a job while strace does something to one of its calls, such as `signal=SIGKILL:when=7`."""
        return self._traced(["-e", f"trace={call}", "-e", f"inject={call}:{inject}", "-o", os.devnull], job, arguments)

    def calls(self, job: str, **arguments: Any) -> list[tuple[str, int]]:
        """The calls of the job that change a file, each with how often the thread makes it that makes it most."""
        log = self.scratch / "calls.log"
        self._traced(["-e", f"trace={','.join(CALLS)}", "-o", str(log)], job, arguments)
        found = [re.match(r"(\d+) +(\w+)\(", line) for line in log.read_text().splitlines()]
        made = Counter(match.groups() for match in found if match)
        return [(call, max(made[who, what] for who, what in made if what == call)) for call in {c for _, c in made}]

    def recorded(self, job: str, **arguments: Any) -> list[tuple[str, str]]:
        """The calls of the job that change a file, in their order: each with what it was given, paths included."""
        log = self.scratch / "recorded.log"
        self._traced(["-y", "-e", f"trace={','.join(CALLS)}", "-o", str(log)], job, arguments)
        # A call during which another thread calls is written in two parts; where it ends does not matter here.
        found = [re.match(r"\d+ +(\w+)\((.*)", line) for line in log.read_text().splitlines()]
        return [(match[1], match[2]) for match in found if match]

    def _traced(self, options: list[str], job: str, arguments: dict[str, Any]) -> dict[str, Any]:
        pid = self.begin(job, **arguments)
        # Without -f, what its threads do would be left alone.
        command = ["strace", "-f", "-p", str(pid), *options]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr
            attached = tracer.stderr.readline()
            assert "attached" in attached, attached
            self.let_go()
            return self.ended()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def _opened(folder: Path) -> Iterator[None]:
    """Another process that has the collection open meanwhile, if there is one, and is killed in the end."""
    if not (folder / DATABASE).exists():
        yield
        return
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_OPEN, folder / DATABASE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout and holder.stdout.readline() == "open\n"
        try:
            yield
        finally:
            holder.kill()


@dataclass
class Disturber:
    """Runs the points of scenarios, each on a fresh copy of the collection before the job."""

    zygote: Zygote
    _prepared: dict[tuple[str, int], Path] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def _before(self, kind: str, seed: int) -> Path:
        key = (kind, seed)
        if key not in self._prepared:
            for old in self._prepared.values():
                shutil.rmtree(old, ignore_errors=True)
            self._prepared.clear()
            folder = self.zygote.scratch / f"before-{next(self._numbers)}"
            answer = self.zygote.run("prepare", kind=kind, seed=seed, encoder=self.zygote.encoder, folder=str(folder))
            assert "raised" not in (answer["result"] or {}), answer
            self._prepared[key] = folder
        return self._prepared[key]

    @contextmanager
    def _copy(self, kind: str, seed: int) -> Iterator[Path]:
        before = self._before(kind, seed)
        folder = self.zygote.scratch / f"c{next(self._numbers)}"
        if before.exists():
            shutil.copytree(before, folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def points(
        self, kind: str, seed: int, how: str, most: int | None = None, *, job: str = "act", beside: bool = False
    ) -> Iterator[Outcome]:
        """Have strace disturb the job at every call that changes a file, or at so many of them, evenly apart.

        `beside` another process that has the collection open. A `job` of "stumble" goes on after a fault.
        """
        with self._copy(kind, seed) as folder:
            arguments = {"kind": kind, "seed": seed, "encoder": self.zygote.encoder, "folder": str(folder)}
            made = self.zygote.calls(job, **arguments)
        places = [(call, number) for call, count in sorted(made) for number in range(1, count + 1)]
        count = len(places) if most is None else min(most, len(places))
        first = random.Random(f"{kind} {seed} {how}").random()
        for call, number in (places[int((place + first) * len(places) / count)] for place in range(count)):
            yield self.point(kind, seed, call, f"{how}:when={number}", job=job, beside=beside)

    def point(self, kind: str, seed: int, call: str, inject: str, *, job: str = "act", beside: bool = False) -> Outcome:
        """Disturb the job once, look at what is left, and have it go on."""

        def act(arguments: dict[str, Any]) -> dict[str, Any]:
            return self.zygote.run_traced(call, inject, job, **arguments)

        def act_beside(arguments: dict[str, Any]) -> dict[str, Any]:
            folder = Path(arguments["folder"])
            there = (folder / DATABASE).exists()
            problems: list[str] = []

            def write() -> None:
                # With nothing in the log before, the next writer begins it anew, and nothing is left over.
                if there:
                    problems.extend(_found(self.zygote.run("small write", folder=str(folder)), "small write"))

            with _opened(folder):
                write()
                answer = act(arguments)
                problems += _found(self.zygote.run("look", **arguments), "look, beside another process")
                write()
                problems += _found(self.zygote.run("look", **arguments), "look again, beside another process")
            return answer | {"problems": problems}

        return self._disturbed(kind, seed, f"{job} {call} {inject}", act_beside if beside else act)

    def at_a_moment(self, kind: str, seed: int, seconds: float, *signals: signal.Signals) -> Outcome:
        """Send signals to the job so long after it has begun, by default SIGKILL."""
        sent = signals or (signal.SIGKILL,)

        def act(arguments: dict[str, Any]) -> dict[str, Any]:
            pid = self.zygote.begin("act", **arguments)
            self.zygote.let_go()
            _wait(pid, seconds)
            for one in sent:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, one)
            return self.zygote.ended()

        return self._disturbed(kind, seed, f"{' '.join(one.name for one in sent)} after {seconds:.3f} s", act)

    def with_small_files(self, kind: str, seed: int, largest: int) -> Outcome:
        """Have the system write no file beyond so many bytes: the last write is a short one, the next an error."""
        what = f"no file beyond {largest} bytes"
        return self._disturbed(
            kind, seed, what, lambda arguments: self.zygote.run("act", **arguments, largest_file=largest)
        )

    @contextmanager
    def recorded(self, kind: str, seed: int) -> Iterator[Recording]:
        """Run the job undisturbed, and record what it writes."""
        with self._copy(kind, seed) as folder:
            recording, log = Recording(folder), self.zygote.scratch / "power.log"
            arguments = {"kind": kind, "seed": seed, "encoder": self.zygote.encoder, "folder": str(folder)}
            answer = self.zygote._traced([*power.OPTIONS, "-o", str(log)], "act", arguments)
            assert "raised" not in (answer["result"] or {}), answer
            recording.replay(log)
            log.unlink()
            made = self.zygote.scratch / "recorded"
            recording.final(made)
            try:
                assert _files(made) == _files(folder), "the recording is not complete"
            finally:
                shutil.rmtree(made)
        yield recording

    def power_failures(self, kind: str, seed: int, count: int) -> Iterator[Outcome]:
        """Run the job once, and look at so many folders that a power failure in the middle of it could have left."""
        with self.recorded(kind, seed) as recording:
            for moment, order, rng in power.images(recording, count, seed):
                target = self.zygote.scratch / f"c{next(self._numbers)}"
                recording.image(moment, order, rng, target)
                written = len(recording.operations)
                outcome = Outcome(f"{kind} {seed}, power lost at {moment} of {written}, pending: {order}", reached=True)
                arguments = {"kind": kind, "seed": seed, "encoder": self.zygote.encoder, "folder": str(target)}
                try:
                    self.zygote.forget_embedded()
                    if moment == written:  # the job has told that it is done
                        outcome.problems += _found(self.zygote.run("all there", **arguments), "all there")
                    outcome.problems += _found(self.zygote.run("look", **arguments), "look")
                    outcome.problems += _found(self.zygote.run("go on", **arguments), "go on")
                finally:
                    shutil.rmtree(target, ignore_errors=True)
                yield outcome

    def _disturbed(self, kind: str, seed: int, what: str, act: Callable[[dict[str, Any]], dict[str, Any]]) -> Outcome:
        with self._copy(kind, seed) as folder:
            arguments = {"kind": kind, "seed": seed, "encoder": self.zygote.encoder, "folder": str(folder)}
            self.zygote.forget_embedded()
            answer = act(arguments)
            result = answer["result"] or {}
            killed, raised = answer["status"] in ENDED_BY_SIGNAL, result.get("raised", "")
            outcome = Outcome(f"{kind} {seed}, {what}", reached=killed or bool(raised), told=raised)
            if not killed and answer["status"] != 0:
                outcome.problems.append(f"the process ended with {answer['status']}")
            if raised and not result["told"]:
                outcome.problems.append(f"raised {result['trace']}")
            outcome.problems += answer.get("problems", [])
            outcome.problems += _found(self.zygote.run("look", **arguments), "look")
            went_on = self.zygote.run("go on", **arguments)
            outcome.problems += _found(went_on, "go on")
            if returned := (went_on["result"] or {}).get("returned"):
                outcome.embedded = returned["embedded"]
                outcome.again, outcome.in_hand = returned["again"], returned["in_hand"]
        return outcome


def _files(folder: Path) -> dict[str, bytes]:
    """Every file that is on disk. The index of SQLite's log is shared memory."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def _wait(pid: int, seconds: float) -> None:
    """Wait so long, or until the process has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([process], [], [], seconds)
    os.close(process)


def _found(answer: dict[str, Any], when: str) -> list[str]:
    if answer["status"] != 0:
        return [f"{when}: the process ended with {answer['status']}"]
    result = answer["result"]
    if "raised" in result:
        return [f"{when}: raised {result['trace']}"]
    found = result["returned"]
    problems = found["problems"] if isinstance(found, dict) else found or []
    return [f"{when}: {problem}" for problem in problems]
