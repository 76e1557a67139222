"""Code run in a process of its own with little memory, for input that may run away with it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[2]
MIB = 1 << 20

# How often each fuzz is tried: RETRIEVER_FUZZ=10000 for a long run.
FUZZED = settings(
    max_examples=int(os.environ.get("RETRIEVER_FUZZ") or 100),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

PRELUDE = """
import json, resource, sys
def tell(**facts):
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    print(json.dumps({"peak": peak // 1024, **facts}))
def limit(mib):
    resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
"""


def limited(code: str, *args: object, mib: int = 2048, seconds: int = 120, stdin: Any = None) -> dict[str, Any]:
    """What the code tells by `tell(...)`, with the most memory it held in MiB as `peak`.

    It fails where the process needs more than `mib` of address space, or more than `seconds`.
    """
    done = subprocess.run(
        [sys.executable, "-c", f"{PRELUDE}\nlimit({mib})\n{code}", *map(str, args)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=stdin if stdin is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, f"exit code {done.returncode}:\n{done.stderr[-3000:]}"
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told
