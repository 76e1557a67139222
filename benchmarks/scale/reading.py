"""Measure the cost of reading files: CPU time by format, PDF compared with its library alone, and unchanged files
again.

CPU time is that of all processes. Files of a format are repeated until there is enough to measure.
"""

import gc
import itertools
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.table import Table

from benchmarks.options import Figures
from benchmarks.speed.process import measured, run_whole
from retriever.corpus import Corpus, Document
from retriever.corpus.files import SETTLED
from retriever.corpus.formats import ALL, format_of
from retriever.errors import Misuse
from retriever.evaluate.report.tables import text_table
from retriever.progress import Progress

ENOUGH = {"pdf": 4 << 20}
ENOUGH_TEXT = 20 << 20
"""The bytes of files that are read at least, unless they are more than `MOST_COPIES` files."""
MOST_COPIES = 2000
ROUNDS = 3
COMMAND = [sys.executable, "-m", "retriever", "index"]


@dataclass(frozen=True)
class Reading:
    """The cost of reading the files of a format."""

    format: str
    files: int
    documents: int
    size: int
    cpu_seconds: float
    """The median of `ROUNDS` rounds, with the start of the process that reads them."""
    library_seconds: float | None = None
    """The same of the library alone, for PDF."""

    @property
    def speed(self) -> float:
        """Return the megabytes read in a second of one core."""
        return self.size / 1e6 / self.cpu_seconds

    @property
    def ratio(self) -> str:
        return f"{self.cpu_seconds / self.library_seconds:.2f} ×" if self.library_seconds else ""


@dataclass
class ReadingFigures(Figures):
    readings: list[Reading] = field(default_factory=list)
    unchanged_files: int = 0
    unchanged_cpu_seconds: float = 0.0
    """The whole command `retriever index` over files of which none has changed."""

    def table(self) -> Table:
        heads = ["", "files", "documents", "MB", "CPU, s", "MB/s a core", "beside the library"]
        table = text_table("Reading files", heads, 1)
        for one in self.readings:
            counts = (f"{one.files:,}", f"{one.documents:,}", f"{one.size / 1e6:.1f}")
            table.add_row(one.format, *counts, f"{one.cpu_seconds:.2f}", f"{one.speed:.1f}", one.ratio)
        if self.unchanged_files:
            count = f"{self.unchanged_files:,}"
            table.add_row("unchanged", count, count, "", f"{self.unchanged_cpu_seconds:.2f}", "", "")
        return table


def measure(folder: Path, unchanged: int, progress: Progress) -> ReadingFigures:
    """Read the files of a folder, format by format. Then index `unchanged` small files twice."""
    figures = ReadingFigures()
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.endswith(".gz")]
    with TemporaryDirectory() as name:
        for format in ALL:
            if files := [path for path in found if format_of(path.name) == format.name]:
                progress(f"reading {format.name}", len(figures.readings), None)
                figures.readings.append(_reading(format.name, files, Path(name) / format.name))
        if not figures.readings:
            raise Misuse(f"{folder}: no file of a known format in this folder")
        if unchanged:
            progress("indexing unchanged files", 0, None)
            figures.unchanged_files = unchanged
            figures.unchanged_cpu_seconds = _unchanged(unchanged, Path(name))
    return figures


def _reading(format: str, files: Sequence[Path], folder: Path) -> Reading:
    folder.mkdir()
    size = count = 0
    enough = ENOUGH.get(format, ENOUGH_TEXT)
    for path in itertools.cycle(files):
        if count >= len(files) and (size >= enough or count >= MOST_COPIES):
            break
        shutil.copyfile(path, folder / f"{count}-{path.name}")
        size += path.stat().st_size
        count += 1
    times, alone = [], []
    for _ in range(ROUNDS):
        gc.collect()
        with measured() as cost:
            documents = sum(isinstance(item, Document) for item in Corpus([folder]))
        times.append(cost["cpu_seconds"])
        if format == "pdf":
            with measured() as cost:
                _library_alone(folder)
            alone.append(cost["cpu_seconds"])
    shutil.rmtree(folder)
    return Reading(
        format, count, documents, size, statistics.median(times), statistics.median(alone) if alone else None
    )


def _library_alone(folder: Path) -> None:
    import pypdfium2

    for path in folder.iterdir():
        document = pypdfium2.PdfDocument(path.read_bytes())
        for page in document:
            page.get_textpage().get_text_range()


def _unchanged(count: int, folder: Path) -> float:
    """Index files, wait until they have settled, and return the CPU seconds of indexing them again."""
    files = folder / "files"
    for number in range(count):
        path = files / f"{number // 100}" / f"{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Note {number}\n\nThis is what note {number} says.\n")
    time.sleep(SETTLED)
    command = [*COMMAND, str(files), "--index", str(folder / "collection"), "--transform", "none"]
    run_whole([*command, "--precision", "int8"])
    return statistics.median(run_whole(command)["cpu_seconds"] for _ in range(ROUNDS))
