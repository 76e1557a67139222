"""What a piece of work costs: seconds by the clock and of all cores, and the memory of a process."""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROC = Path("/proc")


@contextmanager
def measured() -> Iterator[dict[str, float]]:
    """Seconds by the clock and of all cores, of this process and its children; filled in at the end."""
    cost: dict[str, float] = {}
    wall, cpu = time.perf_counter(), cpu_seconds()
    yield cost
    cost |= {"wall_seconds": time.perf_counter() - wall, "cpu_seconds": cpu_seconds() - cpu}


def cpu_seconds() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def cpu_seconds_of(pid: int) -> float:
    """CPU seconds of a process over all cores; 0 on a system without /proc, OSError if the process has ended."""
    if not PROC.is_dir():
        return 0.0
    user, kernel = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(kernel)) / os.sysconf("SC_CLK_TCK")


def status_of(pid: int, name: str) -> int:
    """A number from the status of a process, e.g. VmHWM in KiB; 0 and OSError as above."""
    if not PROC.is_dir():
        return 0
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)
