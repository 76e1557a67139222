"""A process that has imported everything and forks a child for each job: a job then begins in milliseconds.

    python zygote.py MODULE ENCODER     MODULE has the functions that may be run, JOBS, and `warm(ENCODER)`

It reads one JSON object a line, {"id": N, "job": NAME, "arguments": {...}, "held": BOOL, "seconds": S}, and answers
with one line a job: {"id": N, "status": the child's exit status, "result": what the job returned or raised}. With
"held" it first answers {"id": N, "pid": ...} and lets the child begin when it reads {"id": N} again, so that a tracer
can attach. A job that takes more than S seconds prints where its threads are and is killed. Its answer has "timed_out".

A child leaves by `os._exit` in every case: the exit handlers of libraries whose threads did not survive the fork may
wait for ever.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import select
import signal
import socket
import sqlite3
import sys
import time
import traceback
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # its thread would not survive the fork
os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
sys.path.insert(0, str(Path(__file__).parent))

STOPPED = 128 + signal.SIGINT


def main() -> None:
    jobs = importlib.import_module(sys.argv[1])
    jobs.warm(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a job prints is no answer

    def answer(**facts: Any) -> None:
        print(json.dumps(facts), file=answers, flush=True)

    answer(ready=True)
    waiting = sys.stdin.readline()
    while waiting:
        request = json.loads(waiting)
        waiting = ""
        child = Child(jobs.JOBS[request["job"]], request["arguments"])
        if request["held"]:
            answer(id=request["id"], pid=child.pid)
            waiting = sys.stdin.readline()
            if not waiting or json.loads(waiting) != {"id": request["id"]}:  # the test failed before it let the job go
                child.kill()
                continue
        child.let_go()
        answer(id=request["id"], **child.ended(request["seconds"]))
        waiting = sys.stdin.readline()


class Child:
    """One job in a process of its own, which waits until it is let go."""

    def __init__(self, job: Any, arguments: dict[str, Any]) -> None:
        self._results, to_parent = socket.socketpair()  # writing to it is no call that a tracer counts
        from_parent, self._go = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                _run(job, arguments, self._results, to_parent, self._go, from_parent)
            finally:  # a signal that came after the last `except`
                os._exit(STOPPED)
        to_parent.close()
        os.close(from_parent)

    def let_go(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it was killed before it began
            os.write(self._go, b"x")

    def kill(self) -> int:
        """End the process, and return its status."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self._go)
        self._results.close()
        return os.waitstatus_to_exitcode(status)

    def ended(self, seconds: float) -> dict[str, Any]:
        """Status and result, once it has ended or its time has; what it sent in part is no result."""
        deadline = time.monotonic() + seconds
        sent, process = bytearray(), os.pidfd_open(self.pid)
        watched: list[Any] = [self._results, process]
        while process in watched:
            ready, _, _ = select.select(watched, [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            if self._results in ready:
                received = self._results.recv(1 << 16)
                sent += received
                if not received:
                    watched.remove(self._results)
            elif process in ready:  # and all that it sent was received
                watched.remove(process)
        os.close(process)
        timed_out = {"timed_out": seconds} if process in watched else {}
        if timed_out:
            os.kill(self.pid, signal.SIGUSR1)
            time.sleep(1)
        status = self.kill()  # one that has ended keeps its status
        result = None
        with contextlib.suppress(ValueError):
            result = json.loads(sent)
        return {"status": status, "result": result, **timed_out}


def _run(
    job: Any, arguments: dict[str, Any], results: socket.socket, to_parent: socket.socket, go: int, from_parent: int
) -> None:
    """What the child does; it never returns."""
    status = 1
    try:
        faulthandler.register(signal.SIGUSR1)
        results.close()
        os.close(go)
        if os.read(from_parent, 1):  # else the zygote has ended
            to_parent.sendall(json.dumps(_result(job, arguments)).encode())
            status = 0
    except KeyboardInterrupt:
        status = STOPPED
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _result(job: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    from retriever.errors import RetrieverError

    try:
        return {"returned": job(**arguments)}
    except BaseException as error:
        trace = traceback.format_exc(limit=-6)
        # What the command line turns into a sentence.
        told = isinstance(error, RetrieverError | OSError | sqlite3.DatabaseError | KeyboardInterrupt)
        return {"raised": type(error).__name__, "message": str(error), "trace": trace, "told": told}


if __name__ == "__main__":
    main()
