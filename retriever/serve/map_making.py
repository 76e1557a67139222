"""The map of a served collection: read from the cache, or made in a process of its own while searches go on.

The map that is there is shown until a newer one is done, and the one before it stays for who still looks at it.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

import numpy as np

from retriever.errors import NotACollection, first_line
from retriever.maps.files import cached, load
from retriever.maps.mapping import Map, document_state
from retriever.serve.problems import Problem, log
from retriever.serve.served import Served

PACKAGES = Path(__file__).parents[2]
KEPT_MAPS = 2
RETRY_AFTER = 30.0
COMPLAINTS_LOGGED = 4_000
STAGES = {"reading": (0.0, 0.05), "laying out": (0.05, 0.75), "placing": (0.8, 0.15), "naming": (0.95, 0.05)}
"""Where each stage begins, and how much of the whole it takes."""


@dataclass(frozen=True)
class Making:
    """How far a map is that is being made."""

    done: float
    what: str


class Maps:
    """The maps of one collection. All that reads goes through one thread, whose connection sees every change."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.reading = ThreadPoolExecutor(1, f"map-{served.name}")
        self._maps: list[Map] = []
        self._version: tuple[int, ...] | None = None
        self._current = False
        self._missing = 0
        self._making: Making | None = None
        self._process: subprocess.Popen[str] | None = None
        self._failed: tuple[float, str] | None = None
        self._changing = threading.Lock()
        self._coloured: dict[tuple[Any, ...], dict[str, Any]] = {}

    def look(self) -> tuple[Map, int] | Making:
        """The newest map and how many documents are not on it, or how far the first is; starts making a newer one."""
        store = self.served.retriever.local.store
        version = store.data_version
        if version != self._version or not self._current:
            self._compare()
            self._version = version
        with self._changing:
            if self._maps:
                return self._maps[-1], self._missing
            if self._making:
                return self._making
            assert self._failed is not None
            raise Problem(503, f"the map of {self.served.name!r} could not be made: {self._failed[1]}")

    def named(self, key: str) -> Map:
        """The map with this key; a problem for the client where it is no longer there."""
        with self._changing:
            for one in self._maps:
                if one.key == key:
                    return one
        raise Problem(404, "there is no such map any more; ask for the newest at /v1/map.")

    def remembered(self, key: tuple[Any, ...], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What was made for a key as long as the collection has not changed; called in the reading thread alone."""
        versioned = (*key, self.served.retriever.local.store.data_version)
        if versioned not in self._coloured:
            self._coloured = dict([*self._coloured.items(), (versioned, make())][-16:])
        return self._coloured[versioned]

    def close(self) -> None:
        """End the process that makes a map, if one does."""
        with self._changing:
            process = self._process
        if process:
            process.terminate()
        self.reading.shutdown()

    def _compare(self) -> None:
        """Hold the newest map against the collection, and have a newer one made where they differ."""
        collection = self.served.retriever.local
        published = collection.published()
        if published is None:
            raise NotACollection(f"{collection.folder} has no index yet.")
        numbers, signatures = document_state(collection.store)

        def fits(one: Map) -> bool:
            same = np.array_equal(one.numbers, numbers) and np.array_equal(one.signatures, signatures)
            return one.generation == published[2] and same

        with self._changing:
            if self._maps and fits(self._maps[-1]):
                self._current, self._missing = True, 0
                return
            newest = self._maps[-1] if self._maps else None
        if newest is None or newest.generation != published[2]:
            found = cached(published[2])
            if found is not None:
                self._take(found)
                newest = found
        with self._changing:
            self._current = newest is not None and fits(newest)
            self._missing = len(np.setdiff1d(numbers, newest.numbers)) if newest is not None else len(numbers)
            waiting = self._failed is not None and time.monotonic() - self._failed[0] < RETRY_AFTER
            if not self._current and self._making is None and not waiting:
                self._making = Making(0.0, "reading")
                threading.Thread(target=self._make, name=f"making-map-{self.served.name}", daemon=True).start()

    def _take(self, found: Map) -> None:
        with self._changing:
            self._maps = [*(one for one in self._maps if one.key != found.key), found][-KEPT_MAPS:]

    def _make(self) -> None:
        reason = "it ended without a word."
        try:
            with TemporaryDirectory() as folder:
                target = Path(folder) / "map.npz"
                reason = self._run(target) or reason
                found = load(target)
        except Exception as error:  # or nobody would ever try again
            log.error("the map of %s: %s", self.served.name, first_line(error), exc_info=error)
            found, reason = None, "the log of the server says why."
        if found is not None:
            self._take(found)
        with self._changing:
            self._making, self._process, self._current = None, None, False
            self._failed = None if found is not None else (time.monotonic(), reason)

    def _run(self, target: Path) -> str:
        """Run the process to its end; returns what it says went wrong."""
        with TemporaryFile() as complaints:
            reason, status = self._follow(target, complaints)
            if not reason and status not in (0, -signal.SIGTERM):  # as `close` ends it
                complaints.seek(max(0, complaints.seek(0, os.SEEK_END) - COMPLAINTS_LOGGED))
                said = complaints.read().decode("utf-8", "replace").strip()
                log.error("the map of %s: its process ended with %s. %s", self.served.name, status, said)
                reason = "the log of the server says why."
        return reason

    def _follow(self, target: Path, complaints: IO[bytes]) -> tuple[str, int]:
        folder = self.served.retriever.local.folder.resolve()
        # The very package that runs here, and never one that lies where the server was started (-P).
        paths = os.pathsep.join(filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")]))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "retriever.maps.process", str(folder), str(target)],
            env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        reason = ""
        with process:
            with self._changing:
                self._process = process
            assert process.stdout is not None
            for line in process.stdout:
                told = _told(line)
                if "error" in told:
                    log.error("the map of %s: %s", self.served.name, told["error"])
                    reason = "the log of the server says why."
                    continue
                if not isinstance(told.get("done"), int | float) or told.get("what") not in STAGES:
                    continue
                begins, takes = STAGES[told["what"]]
                with self._changing:
                    self._making = Making(round(begins + takes * min(told["done"], 1.0), 3), told["what"])
        return reason, process.returncode


def _told(line: str) -> dict[str, Any]:
    """What the process says of itself; nothing where a library of its prints."""
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
