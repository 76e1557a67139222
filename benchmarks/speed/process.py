"""Run and measure processes: a worker that answers requests, and a command that runs once."""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any, Self

import benchmarks
from retriever.errors import RetrieverError

# No system may use the network during a measurement.
QUIET = {
    "ANONYMIZED_TELEMETRY": "False",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "true",
}
PROC = Path("/proc")


class MeasuredProcess:
    """A `benchmarks.speed.worker` in its own process. Error messages call it `name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._errors: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed with the process
        command = [sys.executable, "-m", "benchmarks.speed.worker"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self._process = subprocess.Popen(command, env=environment(), text=True, encoding="utf-8", **pipes)

    def request(self, what: str, **given: Any) -> dict[str, Any]:
        """Send a request and wait for the answer."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps({"do": what, "with": given}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = json.loads(line) if line else {"error": f"its process ended. {_last_line(self._errors)}"}
        if "error" in answer:
            raise RetrieverError(f"{self.name} could not {what}: {answer['error']}")
        return dict(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()  # closes its input, at which the worker ends by itself
        self._errors.close()


def run_whole(command: Sequence[str], extra: Mapping[str, str] | None = None) -> dict[str, float]:
    """Run a command with `extra` in its environment. Return its wall and CPU seconds and its peak memory."""
    with TemporaryFile() as printed, TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=printed, stderr=errors, env={**environment(), **(extra or {})})
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode or not printed.tell():
            raise RetrieverError(f"{' '.join(command[:4])} … failed. {_last_line(errors)}")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"wall_seconds": wall, "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_bytes": float(peak)}


def environment() -> dict[str, str]:
    """Return the environment of a measured process, with this package first on the path."""
    here = str(Path(benchmarks.__file__).parents[1])
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(paths)}


def _last_line(file: IO[bytes]) -> str:
    file.seek(0)
    lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def measured() -> Iterator[dict[str, float]]:
    """Measure wall and CPU seconds of this process and its children.

    The yielded dict is filled at the end of the block.
    """
    cost: dict[str, float] = {}
    wall, cpu = time.perf_counter(), _cpu_seconds()
    yield cost
    cost |= {"wall_seconds": time.perf_counter() - wall, "cpu_seconds": _cpu_seconds() - cpu}


def _cpu_seconds() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU seconds of a process over all cores: 0 without /proc, OSError if the process has ended."""
    if not PROC.is_dir():
        return 0.0
    user, kernel = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(kernel)) / os.sysconf("SC_CLK_TCK")


def status_of(pid: int, name: str) -> int:
    """Return a number of a process, e.g. VmHWM in KiB: 0 without /proc, OSError if the process has ended."""
    if not PROC.is_dir():
        return 0
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


@contextmanager
def work_folder(out: Path | None) -> Iterator[Path]:
    """Yield a folder for temporary files. In --out it is removed only after success, so that a killed run can go on."""
    if out is None:
        with TemporaryDirectory() as name:
            yield Path(name)
        return
    folder = out / "work"
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    shutil.rmtree(folder)
