"""The one format of every benchmark: flat rows, a folder that keeps them, and what a row may be taken from again.

`results.json` is a list of rows {bench, dataset, split, encoder, pooling, transform, fit, seed, metric, value}.
`provenance.json` beside it says for each run (a row without metric and value) what it was computed from. A run whose
inputs are all the same is not computed again; both files are replaced whole after each run.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from filelock import FileLock, Timeout

from retriever.errors import Damaged, Locked, Misuse
from retriever.files import atomic_write

RESULTS, PROVENANCE, LOCK = "results.json", "provenance.json", ".lock"
AVERAGE = "average"
RAW = "none"
"""The transform that leaves the encoder's vectors as they are: what all others are compared with."""
PUBLISHED = "(published)"


class Run(NamedTuple):
    """What was measured: everything of a row but the metric and its value."""

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


@dataclass(frozen=True)
class Row:
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
        return Run(*(getattr(self, name) for name in Run._fields))

    @property
    def published(self) -> bool:
        return self.encoder.endswith(PUBLISHED)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def rows_of(run: Run, values: Mapping[str, float]) -> list[Row]:
    return [Row(*run, metric, value) for metric, value in values.items()]


class Results:
    """Rows in a folder, or only in memory where there is none."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._rows: dict[Run, list[Row]] = {}
        self._provenance: dict[str, dict[str, Any]] = {}
        self._lock = FileLock(folder / LOCK) if folder else None

    def __enter__(self) -> Self:
        if self.folder and self._lock:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise Misuse(f"--out {self.folder} cannot be made a folder: a file is in the way.") from None
            try:
                self._lock.acquire(timeout=0)
            except Timeout:
                raise Locked(
                    f"another benchmark is writing to {self.folder}; wait for it or give another --out."
                ) from None
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
                raise Damaged(f"{folder / RESULTS} holds a row that is none ({error}); move the file away.") from error
            self._rows.setdefault(found.run, []).append(found)
        self._provenance = dict(_read(folder / PROVENANCE, dict))
        if not all(isinstance(entry, dict) for entry in self._provenance.values()):
            raise Damaged(f"{folder / PROVENANCE} holds an entry that is none; move the file away.")

    def known(self, run: Run, inputs: Mapping[str, str]) -> bool:
        """Whether this very run was measured before, from the same inputs."""
        return run in self._rows and self.provenance(run).get("inputs") == dict(inputs)

    def provenance(self, run: Run) -> dict[str, Any]:
        return self._provenance.get(str(run), {})

    def add(self, run: Run, values: Mapping[str, float], provenance: Mapping[str, Any]) -> None:
        """Take in the figures of a run, in place of older ones, and write everything down."""
        self._rows[run] = rows_of(run, values)
        self._provenance[str(run)] = dict(provenance)
        self.write()

    def put(self, rows: Iterable[Row]) -> None:
        """Take in rows that no run gave by itself: averages, shares, published figures."""
        for row in (row for row in rows if math.isfinite(row.value)):
            kept = [other for other in self._rows.get(row.run, []) if other.metric != row.metric]
            self._rows[row.run] = [*kept, row]
        self.write()

    def rows(self, runs: Iterable[Run]) -> list[Row]:
        return [row for run in runs for row in self._rows.get(run, [])]

    def write(self) -> None:
        if self.folder:
            rows = [row.to_json() for own in self._rows.values() for row in own]
            write_json(self.folder / RESULTS, rows)
            write_json(self.folder / PROVENANCE, self._provenance)


@dataclass(frozen=True)
class Summary:
    """The mean of a figure over seeds, its sample standard deviation (0 for one seed) and their number."""

    mean: float
    spread: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + (f" ±{self.spread:.1f}" if self.seeds > 1 else "")


def summarise(values: Sequence[float]) -> Summary:
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else 0.0
    return Summary(mean, spread, len(values))


class Configuration(NamedTuple):
    """A line of a table: what is the same over data sets and seeds."""

    encoder: str
    pooling: str
    transform: str
    fit: str


def by_configuration(rows: Iterable[Row], metric: str) -> dict[Configuration, dict[str, Summary]]:
    """For each line of a table, each data set's figure over the seeds."""
    values: dict[Configuration, dict[str, list[float]]] = {}
    for row in rows:
        if row.metric == metric:
            line = values.setdefault(Configuration(row.encoder, row.pooling, row.transform, row.fit), {})
            line.setdefault(row.dataset, []).append(row.value)
    return {key: {name: summarise(own) for name, own in line.items()} for key, line in values.items()}


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file whole, or not at all."""
    with atomic_write(path) as aside:
        aside.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _read(path: Path, kind: type) -> Any:
    if not path.is_file():
        return kind()
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} is not valid JSON ({error}); move it away, and the run starts afresh.") from error
    if not isinstance(found, kind):
        raise Damaged(f"{path} holds no {'list' if kind is list else 'object'}; move it away to start afresh.")
    return found
