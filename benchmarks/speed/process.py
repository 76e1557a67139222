"""Processes that are measured: a worker that answers requests, and a command that runs once."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, Self

import benchmarks
from benchmarks.speed.rivals import OURS, OURS_AUTOMATIC
from retriever.errors import RetrieverError

# No system may use the network during a measurement.
QUIET = {
    "ANONYMIZED_TELEMETRY": "False",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "true",
}


class MeasuredProcess:
    """A `benchmarks.speed.worker` in its own process; messages call it `name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._errors: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.speed.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment(),
            text=True,
            encoding="utf-8",
        )

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin and self._process.stdout
        if kind is None:
            self._process.stdin.close()  # it then ends by itself
        else:
            self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def run_cold(command: Sequence[str]) -> dict[str, float]:
    """Wall and CPU seconds of a command."""
    cost = run_whole(command)
    return {name: cost[name] for name in ("wall_seconds", "cpu_seconds")}


def run_whole(command: Sequence[str], extra: Mapping[str, str] | None = None) -> dict[str, float]:
    """Wall and CPU seconds and peak memory of a command; `extra` is added to its environment."""
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


def cold_command(system: str, store: Path, model: str, query: str) -> list[str]:
    """A search as a user would start it: our command, or a script that uses the system."""
    if system in (OURS, OURS_AUTOMATIC):
        return [sys.executable, "-m", "retriever", "search", "--index", str(store), "-k", "10", "--", query]
    return [sys.executable, "-m", "benchmarks.speed.cold", system, str(store), model, query]


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def environment() -> dict[str, str]:
    """The environment, with this package first on the path."""
    here = str(Path(benchmarks.__file__).parents[1])
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(paths)}


def _last_line(file: IO[bytes]) -> str:
    file.seek(0)
    lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""
