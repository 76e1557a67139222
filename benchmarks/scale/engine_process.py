"""One run of `benchmarks.scale.engines`, in a worker's process: its seconds and its memory."""

import os
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.speed.process import cpu_seconds_of, status_of
from retriever import Corpus, Retriever

EVERY_SECONDS = 0.5
KINDS = {b"driver": "driver", b"ray::Worker": "worker", b"ray::Reader": "reader"}


class ProcessWatch:
    """Samples the peak memory and CPU time of this process and its descendants, among them the cluster's."""

    def __init__(self) -> None:
        self.bytes = {"driver": 0}
        self._cpu: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def cpu_seconds(self) -> float:
        """The sum over all processes, Ray's own included; of a process that ended, up to its last sample."""
        return sum(self._cpu.values())

    def __enter__(self) -> "ProcessWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                pid = int(path.parent.name)
                try:
                    if _below(pid, os.getpid()):
                        title = b"driver" if pid == os.getpid() else path.read_bytes()
                        self._note(pid, next((kind for word, kind in KINDS.items() if title.startswith(word)), None))
                except (OSError, ValueError):  # it has ended meanwhile
                    continue

    def _note(self, pid: int, kind: str | None) -> None:
        self._cpu[pid] = cpu_seconds_of(pid)
        if kind:
            self.bytes[kind] = max(1024 * status_of(pid, "VmHWM"), self.bytes.get(kind, 0))


def _below(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = status_of(pid, "PPid")
    return pid == ancestor


def index(source: str, folder: str, engine: str, **options: str) -> dict[str, Any]:
    times: list[float] = []

    def ingest(self: Retriever, *args: Any, **kwargs: Any) -> None:
        times.append(time.perf_counter())
        original(self, *args, **kwargs)
        times.append(time.perf_counter())

    original = Retriever._ingest
    Retriever._ingest = ingest  # type: ignore[method-assign]
    began = time.perf_counter()
    with ProcessWatch() as watch:
        built = Retriever.build(Corpus([source]), folder, transform="none", engine=engine, **options)  # type: ignore[arg-type]
    whole = time.perf_counter() - began
    assert built.report.texts_embedded
    built.close()
    took = {"seconds": times[1] - times[0], "whole_seconds": whole, "cpu_seconds": watch.cpu_seconds}
    return {**took, "peak_bytes": watch.bytes}
