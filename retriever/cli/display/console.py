"""The output of the commands: consoles, progress bars, lines, tables, hits and documents."""

import contextlib
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from retriever.corpus import Document
from retriever.hits import Answer, Explanation, Hit
from retriever.progress import Progress as ProgressReport
from retriever.retriever import Retriever
from retriever.terminal import cut, duration, excerpt, one_line, size

MOST_LISTED = 50
QUIET_SECONDS = 10.0
PASSAGE_LENGTH = 420
TITLE_LENGTH = 60
MOST_MATCHED = 8
CELL_LENGTH = 60

MOST_COLUMNS = 100
SETTLING_SECONDS = 3.0
"""A rate is not shown before a stage has run this long, because it would be misleading."""


def _console(*, stderr: bool = False) -> Console:
    # Names and texts come from users, so [markup] and :emoji: in them must not be interpreted.
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    made.width = min(made.width, MOST_COLUMNS)
    return made


out, err = _console(), _console(stderr=True)


def say(text: str | Text, style: str | None = None, *, to: Console | None = None) -> None:
    """Print a sentence, to standard output by default. Only a terminal wraps it, so that programs read whole lines."""
    to = to or out
    to.print(text, style=style, soft_wrap=not to.is_terminal)


# ---- progress --------------------------------------------------------------------------------------------


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        if (task.finished_time or task.elapsed or 0) < SETTLING_SECONDS:
            return Text()
        return Text(_pace(task.finished_speed or task.speed, task.time_remaining), style="cyan")


def _pace(rate: float | None, left: float | None) -> str:
    """Format a rate and the time that is left. A slow rate is given per minute or per hour."""
    if not rate:
        return ""
    units = ((1, "s"), (60, "min"), (3600, "h"))
    seconds, unit = next((one for one in units if rate * one[0] >= 1), units[-1])
    shown = f"{rate * seconds:,.0f}/{unit}"
    return f"{shown}, {duration(left)} left" if left else shown


@contextlib.contextmanager
def progress_bar() -> Iterator[ProgressReport]:
    """Show a progress bar for the current stage, with the rate and the time left. It is removed at the end.

    If standard error is not a terminal, print a plain line every QUIET_SECONDS instead.
    """
    if not err.is_terminal:
        yield _PlainProgress()
        return
    count = TextColumn("{task.fields[count]}")
    columns = (TextColumn("{task.description}"), BarColumn(), count, _Rate(), TimeElapsedColumn())
    with Progress(*columns, console=err, speed_estimate_period=20, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int | None, detail: str = "") -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total, count="")
                for other in tasks:
                    bars.update(tasks[other], visible=other == stage)
            bars.update(tasks[stage], completed=done, total=total, count=_count(done, total, detail))

        yield report


def announce(stage: str, done: int, total: int | None, detail: str = "") -> None:
    """Print one line when a stage starts. Use this for work that is usually instant but sometimes takes seconds."""
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
            pace = _pace(rate, (total - done) / rate if total and rate else None)
            err.print(", ".join(filter(None, (f"{stage}: {_count(done, total, detail)}", pace))), soft_wrap=True)
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
    return f"retriever {name} -i {one_line(shlex.quote(str(index)))}"


def table(*headings: str, title: str | None = None) -> Table:
    """Return a table without lines. A column is right-aligned if its heading starts with >."""
    made = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in headings:
        justify = "right" if heading.startswith(">") else "left"
        made.add_column(heading.removeprefix(">"), justify=justify, overflow="ellipsis")  # type: ignore[arg-type]
    return made


def warn(sentence: str, style: str = "yellow") -> None:
    say(sentence, style, to=err)


def show_notes(notes: Sequence[str]) -> None:
    """Print warnings about degraded operation, e.g. torch is used because the ONNX export failed."""
    for note in notes:
        warn(f"Note: {one_line(note)}", style="dim")


def show_list(mark: str, style: str, sentences: Sequence[str]) -> None:
    for sentence in sentences[:MOST_LISTED]:
        say(Text().append(mark, style=style).append(f" {one_line(sentence)}"))
    if len(sentences) > MOST_LISTED:
        out.print(f"… and {len(sentences) - MOST_LISTED:,} more.")


def show_files(files: Iterable[Path]) -> None:
    for file in files:
        say(f"{one_line(str(file))}  {size(file.stat().st_size)}")


# ---- hits and documents -----------------------------------------------------------------------------------


def show_hits(hits: Sequence[Hit], *, filtered: bool = False, explain: bool = True) -> None:
    """Show rank, score, title and id of each hit, its passage with the matching sentence highlighted, and why."""
    if not hits:
        out.print(f"Nothing found{' among the documents that match the filter' if filtered else ''}.")
    for hit in hits:
        head = Text().append(f"{hit.rank:>3}  ", style="bold").append(f"{hit.relevance:>3.0f}  ", style="cyan")
        say(head + _name(hit.title, hit.id))
        if (place := str(hit.place)) and place != hit.id:
            say(Text(f"     {one_line(place)}", style="dim"))
        shown = excerpt(hit.passage, hit.highlight, PASSAGE_LENGTH)
        passage = Text(shown.before).append(shown.marked, style="bold yellow").append(shown.after)
        for line in passage.wrap(out, max(out.width - 5, 20)):
            out.print(Text("     ") + line)
        if explain and hit.explanation:
            say(Text(f"     {explained(hit.explanation)}", style="dim"))


def explained(explanation: Explanation) -> str:
    """Say in a sentence what each side of the search found."""
    sides = ["the query is its id"] if explanation.same_id else []
    if explanation.meaning is not None:
        rank = f"rank {explanation.meaning_rank}" if explanation.meaning_rank else "not among the best"
        sides.append(f"by meaning {explanation.meaning:.0f} ({rank}, cosine {explanation.cosine:.3f})")
    if explanation.words is not None:
        rank = f"rank {explanation.words_rank}" if explanation.words_rank else "not among the best"
        found = ", ".join(f"“{one_line(word)}”" for word in explanation.matched[:MOST_MATCHED])
        found += ", …" if len(explanation.matched) > MOST_MATCHED else ""
        bm25 = f"{rank}, BM25 {explanation.bm25:.2f}" if explanation.bm25 else "none found"
        sides.append(f"by words {explanation.words:.0f} ({bm25}){': ' + found if found else ''}")
    if None not in (explanation.meaning, explanation.words):
        sides.append(f"meaning counts {explanation.weight:.0%}")
    return "; ".join(sides) + "."


def show_answer_notes(answer: Answer) -> None:
    """Print what the reader of the hits should know, e.g. that the query is far from everything in the collection."""
    if answer.note:
        suggestion = f" Did you mean: {one_line(answer.suggestion)}" if answer.suggestion else ""
        warn(f"Note: {answer.note}{suggestion}", style="dim")
    if answer.strange:
        warn(
            "Note: this query is unlike anything in the collection "
            f"({answer.novelty:.2f} bits per dimension; ordinary short texts stay below {answer.limit:.2f}), "
            "so the hits may be irrelevant."
        )


def show_novel_queries(answered: int, strange: int, first: str) -> None:
    """Warn in one line about the queries of a file that are far from everything in the collection."""
    if strange:
        warn(
            f"Note: {strange:,} of {'1 query is' if answered == 1 else f'{answered:,} queries are'} unlike anything in "
            f"the collection, so their hits may be irrelevant. The first: {one_line(first)}"
        )


def show_comparison(query: str, chosen: Sequence[Hit], raw: Sequence[Hit]) -> None:
    """Show the ranking of the index next to the ranking by raw vectors, and how many ranks each hit moved."""
    if not chosen and not raw:
        out.print("Nothing found.")
        return
    raw_ranks = {hit.id: hit.rank for hit in raw}
    rows = table(">rank", "in the index", ">moved", "raw encoder", title=f"“{one_line(query)}”")
    for rank, (own, other) in enumerate(zip_longest(chosen, raw), 1):
        rows.add_row(str(rank), _cell(own), _moved(own, raw_ranks, len(raw)) if own else Text(), _cell(other))
    out.print(rows)


def show_document(document: Document) -> None:
    say(_name(document.title, document.id))
    for key, value in document.metadata.items():
        say(Text(f"{one_line(str(key))}: {one_line(str(value))}", style="dim"))
    for line in document.text.splitlines():
        say(one_line(line))


def _name(title: str, id_: str) -> Text:
    """Return the title and the id, or only the id if there is no title or it equals the id."""
    title, id_ = cut(one_line(title), TITLE_LENGTH), one_line(id_)
    named = Text().append(title or id_, style="bold")
    return named.append(f"  {id_}", style="dim") if title and title != id_ else named


def _cell(hit: Hit | None) -> Text:
    if hit is None:
        return Text()
    name = cut(one_line(hit.title) or one_line(hit.id), CELL_LENGTH)
    return Text().append(f"{hit.relevance:>3.0f} ", style="cyan").append(name)


def _moved(hit: Hit, raw_ranks: dict[str, int], shown: int) -> Text:
    if hit.id not in raw_ranks:
        return Text(f"new (>{shown})", style="green")
    step = raw_ranks[hit.id] - hit.rank
    return Text(f"▲ {step}", style="green") if step > 0 else Text(f"▼ {-step}", style="red") if step else Text("=")
