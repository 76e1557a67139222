"""One run of `benchmarks.scale.engines`, in a process of its own; prints what it took and held as JSON."""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from retriever import Corpus, Retriever

LOOK_SECONDS = 0.5
KINDS = {b"driver": "driver", b"ray::Worker": "worker", b"ray::Reader": "reader"}


class Looked:
    """What this process and the cluster's processes below it held at most and used, looked at while it lasts."""

    def __init__(self) -> None:
        self.bytes = {"driver": 0}
        self._cpu: dict[int, float] = {}
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)

    @property
    def cpu_seconds(self) -> float:
        """Of all cores, by all of these processes, Ray's own too; of those that ended, until they were last seen."""
        return sum(self._cpu.values())

    def __enter__(self) -> "Looked":
        self._looking.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._looking.join()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                pid = int(path.parent.name)
                try:
                    if _below(pid, os.getpid()):
                        title = b"driver" if pid == os.getpid() else path.read_bytes()
                        self._note(pid, next((kind for word, kind in KINDS.items() if title.startswith(word)), None))
                except (OSError, ValueError):  # it has ended meanwhile
                    continue

    def _note(self, pid: int, kind: str | None) -> None:
        self._cpu[pid] = _cpu_seconds(pid)
        if kind:
            self.bytes[kind] = max(_peak(pid), self.bytes.get(kind, 0))


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def _peak(pid: int) -> int:
    return 1024 * _status(pid, "VmHWM")


def _cpu_seconds(pid: int) -> float:
    user, kernel = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(kernel)) / os.sysconf("SC_CLK_TCK")


def _below(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = _status(pid, "PPid")
    return pid == ancestor


def main(source: str, folder: str, encoder: str, precision: str, engine: str) -> None:
    times: list[float] = []

    def update(self: Retriever, *args: Any, **kwargs: Any) -> None:
        times.append(time.perf_counter())
        original(self, *args, **kwargs)
        times.append(time.perf_counter())

    original = Retriever._ingest
    Retriever._ingest = update  # type: ignore[method-assign]
    began = time.perf_counter()
    with Looked() as looked:
        built = Retriever.build(
            Corpus([source]), folder, encoder=encoder, precision=precision, transform="none", engine=engine
        )
    whole = time.perf_counter() - began
    assert built.report.texts_embedded
    built.close()
    found = {"seconds": times[1] - times[0], "whole_seconds": whole, "cpu_seconds": looked.cpu_seconds}
    print(json.dumps({**found, "peak_bytes": looked.bytes}))


if __name__ == "__main__":
    main(*sys.argv[1:6])
