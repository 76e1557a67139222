"""Store the results of every benchmark: figures in `results.json`, their origin in `provenance.json`.

`results.json` is a list of rows {bench, dataset, split, encoder, pooling, transform, fit, seed, metric, value}.
`provenance.json` has an entry for each run. A run is a row without its metric and value. A run is not computed again as
long as its inputs are unchanged. Both files are rewritten atomically after each run.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, Self

from filelock import FileLock, Timeout

from retriever.errors import Damaged, Locked, Misuse
from retriever.files import atomic_write

RESULTS, PROVENANCE, LOCK = "results.json", "provenance.json", ".lock"
AVERAGE = "average"
RAW = "none"
"""The transform that leaves the encoder's vectors unchanged. It is the baseline of every comparison."""
PUBLISHED = "(published)"


class Configuration(NamedTuple):
    """A line of a table: everything that is the same for all data sets and seeds."""

    encoder: str
    pooling: str
    transform: str
    fit: str

    @property
    def file_name(self) -> str:
        """Return the configuration as the name of a file or folder."""
        return re.sub(r"[^\w.=,-]+", "__", "__".join(part for part in self if part)).strip("_")


class Run(NamedTuple):
    """One measurement: a row without its metric and value."""

    bench: str
    dataset: str
    split: str
    encoder: str
    pooling: str
    transform: str
    fit: str
    seed: int | None

    def __str__(self) -> str:
        return " | ".join("" if part is None else str(part) for part in self)

    @property
    def configuration(self) -> Configuration:
        return Configuration(self.encoder, self.pooling, self.transform, self.fit)


class Row(NamedTuple):
    """One figure."""

    bench: str
    dataset: str
    split: str
    encoder: str
    pooling: str
    transform: str
    fit: str
    seed: int | None
    metric: str
    value: float

    @property
    def run(self) -> Run:
        return Run(*self[:8])

    @property
    def configuration(self) -> Configuration:
        return self.run.configuration

    @property
    def published(self) -> bool:
        return self.encoder.endswith(PUBLISHED)


def rows_of(run: Run, values: Mapping[str, float]) -> list[Row]:
    return [Row(*run, metric, value) for metric, value in values.items()]


class Results:
    """Rows that are stored in a folder, or only in memory if no folder is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._rows: dict[Run, list[Row]] = {}
        self._provenance: dict[str, dict[str, Any]] = {}
        self._lock = FileLock(folder / LOCK) if folder else None

    def __enter__(self) -> Self:
        if self.folder and self._lock:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._lock.acquire(timeout=0)
            except (FileExistsError, NotADirectoryError):
                raise Misuse(f"{self.folder} is a file; give a folder.") from None
            except Timeout:
                raise Locked(f"another benchmark is writing to {self.folder}; wait or give another folder.") from None
            try:
                self._load(self.folder)
            except BaseException:
                self._lock.release()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock:
            self._lock.release()

    def _load(self, folder: Path) -> None:
        for row in _read(folder / RESULTS, list):
            try:
                found = Row(**row)
            except TypeError as error:
                raise Damaged(f"{folder / RESULTS} has an invalid row ({error}); move the file away.") from error
            self._rows.setdefault(found.run, []).append(found)
        self._provenance = dict(_read(folder / PROVENANCE, dict))
        if not all(isinstance(entry, dict) for entry in self._provenance.values()):
            raise Damaged(f"{folder / PROVENANCE} has an invalid entry; move the file away.")

    def known(self, run: Run, inputs: Mapping[str, str]) -> bool:
        """Return whether this run was measured before with the same inputs."""
        return run in self._rows and self.provenance(run).get("inputs") == dict(inputs)

    def provenance(self, run: Run) -> dict[str, Any]:
        return self._provenance.get(str(run), {})

    def add(self, run: Run, values: Mapping[str, float], provenance: Mapping[str, Any]) -> None:
        """Replace the figures of a run and write the files."""
        self._rows[run] = rows_of(run, values)
        self._provenance[str(run)] = dict(provenance)
        self.write()

    def put(self, rows: Iterable[Row]) -> None:
        """Add rows that were not measured here: averages, shares and published figures."""
        for row in (row for row in rows if math.isfinite(row.value)):
            kept = [other for other in self._rows.get(row.run, []) if other.metric != row.metric]
            self._rows[row.run] = [*kept, row]
        self.write()

    def rows(self, runs: Iterable[Run]) -> list[Row]:
        return [row for run in runs for row in self._rows.get(run, [])]

    def write(self) -> None:
        if self.folder:
            write_json(self.folder / RESULTS, [row._asdict() for own in self._rows.values() for row in own])
            write_json(self.folder / PROVENANCE, self._provenance)


@dataclass(frozen=True)
class Summary:
    """The mean of a figure over seeds, its sample standard deviation (0 for one seed) and the number of seeds."""

    mean: float
    spread: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + (f" ±{self.spread:.1f}" if self.seeds > 1 else "")


def summarise(values: Sequence[float]) -> Summary:
    return Summary(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


def average_rows(rows: Iterable[Row], datasets: Sequence[str]) -> list[Row]:
    """Return the mean over these sets for every configuration, seed and metric that has a figure for all of them."""
    found: dict[tuple[Run, str], dict[str, float]] = {}
    for row in rows:
        found.setdefault((row.run._replace(dataset=AVERAGE), row.metric), {})[row.dataset] = row.value
    complete = {key: values for key, values in found.items() if set(datasets) <= set(values)}
    return [Row(*key, metric, fmean(own[name] for name in datasets)) for (key, metric), own in complete.items()]


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    with atomic_write(path) as aside:
        aside.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _read(path: Path, kind: type) -> Any:
    if not path.is_file():
        return kind()
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} is not valid JSON ({error}); move it away to start again.") from error
    if not isinstance(found, kind):
        raise Damaged(f"{path} is not a JSON {'list' if kind is list else 'object'}; move it away to start again.")
    return found
