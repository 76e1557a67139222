"""The maps of a served collection, which a separate process makes, and the colours of points by metadata.

The server shows the newest map until the next one is complete. It keeps the previous map for pages that still show it.
"""

import base64
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from indexes.sqlite.documents import DocumentStore
from retriever.errors import NotACollection, first_line
from retriever.maps.map import Map, cached, load
from retriever.maps.mapping import DocumentState
from retriever.search.facets import Facet, field_values
from retriever.serve.collections import ServedCollection
from retriever.serve.map_process import PROGRESS
from retriever.serve.problems import Problem, log

PACKAGES = Path(__file__).parents[2]
KEPT_MAPS = 2
RETRY_AFTER = 30.0
LINES_LOGGED = 50

NO_COLOUR = 255
GREATEST_CODE = 254
MOST_CATEGORIES = 20
LONGEST_NAME = 200
# A field with at most this many different numbers is categorical, e.g. grades.
FEW_NUMBERS = 12
# A field has a numeric scale if at least this share of its values are numbers.
MOSTLY = 0.9


@dataclass(frozen=True)
class MapProgress:
    """The progress of a map that is being made: the completed share from 0 to 1, and the current stage."""

    done: float
    what: str


class CollectionMaps:
    """The maps of one collection. Call `newest` only in the collection's thread for slow reads."""

    def __init__(self, served: ServedCollection) -> None:
        self.served = served
        self._maps: list[Map] = []
        self._version: tuple[int, ...] | None = None
        self._current = False
        self._missing = 0
        self._progress: MapProgress | None = None
        self._process: subprocess.Popen[str] | None = None
        self._failed_at: float | None = None
        self._lock = threading.Lock()

    def newest(self) -> tuple[Map, int] | MapProgress:
        """Return the newest map, and how many of the collection's documents are not on it.

        If there is no map yet, return the progress of the first one. If the collection has changed, start a new map.
        """
        version = self.served.retriever.local.store.data_version
        if version != self._version or not self._current:
            self._compare()
            self._version = version
        with self._lock:
            if self._maps:
                return self._maps[-1], self._missing
            if self._progress:
                return self._progress
            raise Problem(503, f"the map of {self.served.name!r} could not be made; the server's log says why.")

    def named(self, key: str) -> Map:
        """Return the map with this key. Raise a problem if the server no longer has it."""
        with self._lock:
            for one in self._maps:
                if one.key == key:
                    return one
        raise Problem(404, "this map no longer exists; /v1/map returns the newest.")

    def close(self) -> None:
        """Terminate the process that is making a map, if there is one."""
        with self._lock:
            if self._process:
                self._process.terminate()

    def _compare(self) -> None:
        """Compare the newest map with the collection, and start a new map if they differ."""
        collection = self.served.retriever.local
        published = collection.published()
        if published is None:
            raise NotACollection(f"{collection.folder} has no index yet.")
        generation = published[2]
        state = DocumentState(collection.store)
        newest = self._maps[-1] if self._maps else None
        if newest is None or newest.generation != generation:
            found = cached(generation)
            if found is not None:
                self._add(found)
                newest = found
        with self._lock:
            self._current = (
                newest is not None and newest.generation == generation and newest.shows(state.numbers, state.signatures)
            )
            self._missing = len(np.setdiff1d(state.numbers, newest.numbers)) if newest is not None else len(state)
            waiting = self._failed_at is not None and time.monotonic() - self._failed_at < RETRY_AFTER
            if not self._current and self._progress is None and not waiting:
                self._progress = MapProgress(0.0, "reading")
                threading.Thread(target=self._make, name=f"making-map-{self.served.name}", daemon=True).start()

    def _add(self, found: Map) -> None:
        with self._lock:
            self._maps = [*(one for one in self._maps if one.key != found.key), found][-KEPT_MAPS:]

    def _make(self) -> None:
        found = None
        try:
            with TemporaryDirectory() as folder:
                target = Path(folder) / "map.npz"
                self._run(target)
                found = load(target)
        except Exception as error:  # after any error, the next attempt must be possible
            log.error("the map of %s: %s", self.served.name, first_line(error), exc_info=error)
        if found is not None:
            self._add(found)
        with self._lock:
            self._progress, self._process, self._current = None, None, False
            self._failed_at = None if found is not None else time.monotonic()

    def _run(self, target: Path) -> None:
        """Run the process until it ends. Follow its progress, and log its errors."""
        folder = self.served.retriever.local.folder.resolve()
        # The process must import the package that the server uses, not one in the current folder (-P).
        paths = os.pathsep.join(filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-P", "-m", "retriever.serve.map_process", str(folder), str(target)]
        pipe = subprocess.PIPE
        output: deque[str] = deque(maxlen=LINES_LOGGED)
        with subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": paths},
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as process:
            with self._lock:
                self._process = process
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(PROGRESS):
                    _, done, stage = line.split(maxsplit=2)
                    with self._lock:
                        self._progress = MapProgress(float(done), stage.strip())
                else:
                    output.append(line)
        if process.returncode not in (0, -signal.SIGTERM):  # SIGTERM is sent by `close`
            text = "".join(output).strip()
            log.error("the map of %s: its process ended with status %d. %s", self.served.name, process.returncode, text)


def colour_fields(facets: Sequence[Facet]) -> list[str]:
    """Return the fields that are useful for colours: those with numbers, or with values that documents share."""

    def useful(facet: Facet) -> bool:
        if not facet.values:
            return False
        numbers = sum(_number(one.value) is not None for one in facet.values)
        return facet.values[0].count > 1 or (numbers > 1 and numbers >= MOSTLY * len(facet.values))

    return [facet.name for facet in facets if useful(facet)]


def colours(store: DocumentStore, shown: Map, field: str) -> dict[str, Any] | None:
    """Return a colour code for every point, or None if no document has the field.

    The code is 255 for a document without a value, and for a value that is not among the most frequent.
    """
    by_number = {
        number: value
        for number, metadata in store.each_metadata()
        for value in islice((value for name, value in field_values(metadata) if name == field), 1)
    }
    if not by_number:
        return None
    values = [by_number.get(number) for number in shown.numbers.tolist()]
    numbers = [_number(value) for value in values]
    known = [number for number in numbers if number is not None]
    if len(set(known)) > FEW_NUMBERS and len(known) >= MOSTLY * sum(value is not None for value in values):
        least, greatest = min(known), max(known)
        # Both are halved, because the difference of the two largest floats would be infinite.
        span = greatest / 2 - least / 2
        codes = [NO_COLOUR if n is None else round(GREATEST_CODE * (n / 2 - least / 2) / span) for n in numbers]
        return {"kind": "number", "least": least, "greatest": greatest, "codes": _base64(codes)}
    names = [None if value is None else _name(value) for value in values]
    counts = Counter(name for name in names if name is not None)
    ranked = sorted(counts, key=lambda name: (-counts[name], name))[:MOST_CATEGORIES]
    code = {name: number for number, name in enumerate(ranked)}
    codes = [NO_COLOUR if name is None else code.get(name, NO_COLOUR) for name in names]
    return {"kind": "category", "values": ranked, "codes": _base64(codes)}


def _number(value: Any) -> float | None:
    """Return the value as a number, or None. Texts are parsed, because all values of a CSV file are texts."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _name(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)[:LONGEST_NAME]


def _base64(codes: list[int]) -> str:
    return base64.b64encode(bytes(codes)).decode("ascii")
