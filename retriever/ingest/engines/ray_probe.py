"""Whether a Ray cluster answers at an address, found out by a process that can be given up on.

    python -m retriever.engines.ray_probe ADDRESS

connects, prints what came of it as JSON, and ends.
"""

import json
import subprocess
import sys
from importlib import import_module
from typing import Any, NamedTuple

# By ray://, a process of the cluster is begun for each who connects.
CONNECT_SECONDS = 60
MARK = "probed: "


class Probed(NamedTuple):
    """The class and the message of the error that connecting raised; both are empty where it went well."""

    error: str = ""
    message: str = ""


def probed(address: str) -> Probed:
    """What comes of connecting to an address, waited for as long as is sensible."""
    command = [sys.executable, "-m", "retriever.ingest.engines.ray_probe", address]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CONNECT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Probed("Timeout", f"nothing that Ray understands was answered within {CONNECT_SECONDS} s.")
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return Probed(**json.loads(line.removeprefix(MARK)))
    lines = done.stderr.strip().splitlines()
    return Probed("NoAnswer", lines[-1] if lines else f"the trying process ended with {done.returncode}.")


def main(address: str) -> None:
    ray: Any = import_module("ray")
    found = Probed()
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        ray.cluster_resources()
    except BaseException as error:
        found = Probed(type(error).__name__, str(error))
    print(MARK + json.dumps(found._asdict()), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
