"""Consoles, progress bars, lines and tables for the output of the commands."""

import contextlib
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from retriever.progress import Progress as ProgressReport
from retriever.retriever import Retriever
from retriever.terminal import duration as duration
from retriever.terminal import one_line
from retriever.terminal import plural as plural
from retriever.terminal import size as size

MOST_LISTED = 50
QUIET_SECONDS = 10.0

# Names and texts come from users, so [markup] and :emoji: in them must not be interpreted.
out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)


# ---- progress --------------------------------------------------------------------------------------------


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        left = task.time_remaining
        shown = f"{speed:,.0f}/s" if speed else ""
        return Text(f"{shown}  {duration(left)} left" if left else shown, style="cyan")


@contextlib.contextmanager
def progress_bar() -> Iterator[ProgressReport]:
    """Show one progress bar per stage, with the rate and the time left.

    If standard error is not a terminal, print a plain line every QUIET_SECONDS instead.
    """
    if not err.is_terminal:
        yield _PlainProgress()
        return
    count = TextColumn("{task.fields[count]}")
    columns = (TextColumn("{task.description}"), BarColumn(), count, _Rate(), TimeElapsedColumn())
    with Progress(*columns, console=err, speed_estimate_period=20) as bars:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int | None, detail: str = "") -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total, count="")
            bars.update(tasks[stage], completed=done, total=total, count=_count(done, total, detail))

        yield report


def announce(stage: str, done: int, total: int | None, detail: str = "") -> None:
    """Print one line when a stage starts. For work that is usually instant and sometimes takes seconds."""
    if done == 0:
        err.print(f"{stage[0].upper()}{stage[1:]}…", style="dim")


class _PlainProgress:
    def __init__(self) -> None:
        self._stage = ""
        self._began = self._shown = time.monotonic()
        self._first = 0

    def __call__(self, stage: str, done: int, total: int | None, detail: str = "") -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._began, self._shown, self._first = stage, now, now, done
        elif now - self._shown >= QUIET_SECONDS:
            rate = (done - self._first) / (now - self._began)
            left = f", {duration((total - done) / rate)} left" if total and rate else ""
            err.print(f"{stage}: {_count(done, total, detail)}, {rate:,.0f}/s{left}")
            self._shown = now


def _count(done: int, total: int | None, detail: str) -> str:
    return f"{done:,}{f' of {total:,}' if total else ''}{f' ({detail})' if detail else ''}"


@contextlib.contextmanager
def opened(index: str | Path, **options: Any) -> Iterator[Retriever]:
    """Open a collection, and show a progress bar for the work that is done with it."""
    with progress_bar() as progress, Retriever.open(index, progress=progress, **options) as retriever:
        yield retriever


# ---- lines and tables ------------------------------------------------------------------------------------


def command(name: str, index: str | Path) -> str:
    """Return a command line that the user can copy."""
    return f"retriever {name} --index {one_line(shlex.quote(str(index)))}"


def table(*headings: str, title: str | None = None) -> Table:
    """Return a table without lines. A column is right-aligned if its heading starts with >."""
    made = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in headings:
        justify = "right" if heading.startswith(">") else "left"
        made.add_column(heading.removeprefix(">"), justify=justify, overflow="ellipsis")  # type: ignore[arg-type]
    return made


def warn(sentence: str, style: str = "yellow") -> None:
    err.print(sentence, style=style, soft_wrap=True)


def show_notes(notes: Sequence[str]) -> None:
    """Print warnings about degraded operation, e.g. torch is used because the ONNX export failed."""
    for note in notes:
        warn(f"Note: {one_line(note)}", style="dim")


def show_list(mark: str, style: str, sentences: Sequence[str]) -> None:
    for sentence in sentences[:MOST_LISTED]:
        out.print(Text().append(mark, style=style).append(f" {one_line(sentence)}"), soft_wrap=True)
    if len(sentences) > MOST_LISTED:
        out.print(f"… and {len(sentences) - MOST_LISTED:,} more.")


def show_files(files: Iterable[Path]) -> None:
    for file in files:
        out.print(f"{one_line(str(file))}  {size(file.stat().st_size)}", soft_wrap=True)
