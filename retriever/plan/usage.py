"""CPU time and memory of this process, and children that are asked to use some: JSON lines out, one request in."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np

import retriever
from retriever.errors import Misuse, RetrieverError
from retriever.progress import Progress, silent

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
MISUSE = 2
CACHES_BYTES = 64_000_000
# Threads of OpenMP and OpenBLAS wait for each other in a loop, which is CPU time and no work: where others use the
# machine, a whitening took ten times its CPU, and training a small index a hundred times. Told so, they sleep.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_THREAD_TIMEOUT": "4"}
# As `retriever serve` has it: a thread on every core searches for somebody, and libraries begin none beside it.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def cpu_seconds() -> float:
    """Of all threads of this process since it began."""
    return time.process_time()


def peak_bytes() -> int:
    """The most memory this process has had, since the peak was last forgotten where the system can forget it.

    `ru_maxrss` would count what its parent had when it was started.
    """
    if STATUS.is_file():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def forget_peak() -> None:
    """Have the peak begin anew at what is in use now; elsewhere than on Linux it stays, and is an upper bound."""
    try:
        CLEAR.write_text(RESET_PEAK)
    except OSError:
        return


def cpu_ms_between(work: Callable[[], object], times: int = 9) -> float:
    """CPU milliseconds of some work, the least of some times: whoever else uses the machine can only add to it.

    Before each, the processor's caches are emptied: between two queries the encoder runs, and leaves little of an
    index there.
    """
    elsewhere = np.zeros(CACHES_BYTES // 8)
    took = []
    for _ in range(times + 1):
        elsewhere += 1.0
        began = cpu_seconds()
        work()
        took.append(cpu_seconds() - began)
    return 1000 * min(took[1:])


def memory_of_machine() -> int:
    """What this machine has, or as much of it as a container may use."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return min(whole, int(Path(path).read_text()))
        except (OSError, ValueError):
            continue
    return whole


def ask(
    module: str, request: Mapping[str, Any], progress: Progress = silent, extra: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a module of this room in a process of its own and give it a request; what it answers in the end.

    `extra` are variables of its environment.
    """
    with TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**environment(), **(extra or {})},
            text=True,
            encoding="utf-8",
        )
        try:
            assert process.stdin and process.stdout
            process.stdin.write(json.dumps(dict(request)))
            process.stdin.close()
            answer: dict[str, Any] = {}
            for line in process.stdout:
                told = json.loads(line)
                if "stage" in told:
                    progress(told["stage"], told["done"], told["total"])
                else:
                    answer = told
            process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
        if "error" in answer:
            raise (Misuse if answer["exit_code"] == MISUSE else RetrieverError)(answer["error"])
        if "answer" not in answer:
            raise RetrieverError(f"the rehearsal ended before it was done: {_last_line(errors) or 'it was killed'}")
        return dict(answer["answer"])


def answer_with(work: Callable[[dict[str, Any], Progress], dict[str, Any]]) -> None:
    """The other side of `ask`: what the module does with the request."""
    # Whatever a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(told: dict[str, Any]) -> None:
        answers.write(json.dumps(told) + "\n")
        answers.flush()

    def progress(stage: str, done: int, total: int | None, detail: str = "") -> None:
        tell({"stage": stage, "done": done, "total": total})

    try:
        tell({"answer": work(json.load(sys.stdin), progress)})
    except RetrieverError as error:
        tell({"error": str(error), "exit_code": error.exit_code})


def environment() -> dict[str, str]:
    """Ours, with this very package first to be found, and CPU time that is work."""
    here = str(Path(retriever.__file__).parents[1])
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **WAITING, "PYTHONPATH": os.pathsep.join(paths)}


def _last_line(file: IO[bytes]) -> str:
    file.seek(0)
    lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""
