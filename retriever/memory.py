"""Measure the memory of this process and of this machine."""

import os
import re
import resource
import sys
from contextlib import suppress
from pathlib import Path


def peak_bytes() -> int:
    """Return the peak memory of this process in bytes.

    On Linux, the value comes from /proc, because `ru_maxrss` would include the memory of the parent process.
    """
    with suppress(OSError):
        found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        if found:
            return 1024 * int(found[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def machine_bytes() -> int:
    """Return the memory of this machine in bytes, or the limit of the container if that is lower."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        return min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return memory
