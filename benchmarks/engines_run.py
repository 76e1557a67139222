"""One run of `benchmarks.engines`, in a process of its own; prints what it took and held as JSON."""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from retriever import Corpus, Retriever

LOOK_SECONDS = 0.2
KINDS = {b"ray::Worker": "worker", b"ray::Reader": "reader"}


class Peaks:
    """The most that this process and the cluster's processes below it ever held, looked at while it lasts."""

    def __init__(self) -> None:
        self.bytes = {"driver": 0}
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Peaks":
        self._looking.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._looking.join()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._note("driver", _peak(os.getpid()))
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    title = path.read_bytes()
                    kind = next((kind for word, kind in KINDS.items() if title.startswith(word)), None)
                    if kind and _below(int(path.parent.name), os.getpid()):
                        self._note(kind, _peak(int(path.parent.name)))
                except (OSError, ValueError):  # it has ended meanwhile
                    continue

    def _note(self, kind: str, peak: int) -> None:
        self.bytes[kind] = max(peak, self.bytes.get(kind, 0))


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def _peak(pid: int) -> int:
    return 1024 * _status(pid, "VmHWM")


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

    original = Retriever._update
    Retriever._update = update  # type: ignore[method-assign]
    began = time.perf_counter()
    with Peaks() as peaks:
        built = Retriever.build(
            Corpus([source]), folder, encoder=encoder, precision=precision, transform="none", engine=engine
        )
    whole = time.perf_counter() - began
    assert built.report.texts_embedded
    built.close()
    print(json.dumps({"seconds": times[1] - times[0], "whole_seconds": whole, "peak_bytes": peaks.bytes}))


if __name__ == "__main__":
    main(*sys.argv[1:6])
