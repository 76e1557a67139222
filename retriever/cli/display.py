"""What people see in the terminal: progress, hits, tables. Only the command line uses it."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from indexes.folder.verify import Report as VerifyReport
from retriever.card.wording import (
    describe_drift,
)
from retriever.card.wording import describe_index as describe_index
from retriever.card.wording import describe_transform as describe_transform
from retriever.card.wording import duration as duration
from retriever.card.wording import notes as notes
from retriever.card.wording import plural as plural
from retriever.card.wording import size as size
from retriever.corpus import Document
from retriever.ingest.pipeline import IngestReport
from retriever.progress import Progress as ProgressReport
from retriever.recovery.salvage import SalvageReport
from retriever.search.excerpt import excerpt
from retriever.search.searcher import Answer, Hit
from retriever.terminal import cut, one_line
from retriever.transfer.copy import CopyReport

PASSAGE_SHOWN = 420
TITLE_SHOWN = 120
CELL_SHOWN = 60
SKIPPED_SHOWN = 10
PROBLEMS_SHOWN = 50
QUIET_SECONDS = 10.0

# Names and texts come from users: no [markup] and no :emoji: in them means anything.
out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        left = task.time_remaining
        shown = f"{speed:,.0f}/s" if speed else ""
        return Text(f"{shown}  {duration(left)} left" if left else shown, style="cyan")


@contextlib.contextmanager
def progress_bar() -> Iterator[ProgressReport]:
    """A bar a stage, with rate and time left; a plain line now and then where there is no terminal."""
    if not err.is_terminal:
        yield _PlainProgress()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        _Rate(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, speed_estimate_period=20) as bars:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int | None, detail: str = "") -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total, count="")
            count = f"{done:,} of {total:,}" if total else f"{done:,}"
            count = f"{count} ({detail})" if detail else count
            bars.update(tasks[stage], completed=done, total=total, count=count)

        yield report


def announce(stage: str, done: int, total: int | None, detail: str = "") -> None:
    """Progress as one line, for what is mostly done at once and sometimes takes seconds."""
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
            detail = f" ({detail})" if detail else ""
            err.print(f"{stage}: {done:,}{f' of {total:,}' if total else ''}{detail}, {rate:,.0f}/s{left}")
            self._shown = now


# ---- hits ------------------------------------------------------------------------------------------------


def show_hits(hits: Sequence[Hit], *, filtered: bool = False) -> None:
    """Ranked hits: score, title and id, then the passage with its matching sentence highlighted."""
    if not hits:
        out.print("Nothing found among the documents that fit the filter." if filtered else "Nothing found.")
    for hit in hits:
        head = Text().append(f"{hit.rank:>3}  ", style="bold").append(f"{hit.score:.3f}  ", style="cyan")
        out.print(head + _name(hit.title, hit.id), soft_wrap=True)
        for line in _excerpt(hit).wrap(out, max(out.width - 5, 20)):
            out.print(Text("     ") + line)


def show_novelty(answer: Answer) -> None:
    """A warning where the query is far outside what the collection knows."""
    if answer.strange:
        err.print(
            "Note: this query is unlike anything in the collection "
            f"({answer.novelty:.2f} bits per dimension; ordinary short texts stay below {answer.limit:.2f}); "
            "take the hits with care.",
            style="yellow",
            soft_wrap=True,
        )


def show_novelties(answered: int, strange: int, first: str) -> None:
    """The same for a file of queries, in one line."""
    if strange:
        err.print(
            f"Note: {strange:,} of {'1 query is' if answered == 1 else f'{answered:,} queries are'} unlike anything in "
            f"the collection, first: {one_line(first)}; take their hits with care.",
            style="yellow",
            soft_wrap=True,
        )


def _name(title: str, id_: str) -> Text:
    """Title and id, or the id alone where it says all."""
    title, id_ = cut(one_line(title), TITLE_SHOWN), one_line(id_)
    named = Text().append(title or id_, style="bold")
    return named.append(f"  {id_}", style="dim") if title and title != id_ else named


def _excerpt(hit: Hit) -> Text:
    """The passage on one line, cut around its highlighted sentence where it is long."""
    shown = excerpt(hit, PASSAGE_SHOWN)
    return Text(shown.before).append(shown.marked, style="bold yellow").append(shown.after)


def show_comparison(query: str, chosen: Sequence[Hit], raw: Sequence[Hit]) -> None:
    """The index's ranking beside the encoder's own, with who moved."""
    if not chosen and not raw:
        out.print("Nothing found.")
        return
    raw_ranks = {hit.id: hit.rank for hit in raw}
    table = Table(title=f"“{one_line(query)}”", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name, side in (
        ("rank", "right"),
        ("in the index", "left"),
        ("moved", "right"),
        ("raw encoder", "left"),
    ):
        table.add_column(name, justify="right" if side == "right" else "left", overflow="ellipsis")
    for place in range(max(len(chosen), len(raw))):
        own = chosen[place] if place < len(chosen) else None
        other = raw[place] if place < len(raw) else None
        table.add_row(str(place + 1), _cell(own), _moved(own, raw_ranks, len(raw)) if own else Text(), _cell(other))
    out.print(table)


def _cell(hit: Hit | None) -> Text:
    if hit is None:
        return Text()
    name = cut(one_line(hit.title) or one_line(hit.id), CELL_SHOWN)
    return Text().append(f"{hit.score:.3f} ", style="cyan").append(name)


def _moved(hit: Hit, raw_ranks: dict[str, int], shown: int) -> Text:
    if hit.id not in raw_ranks:
        return Text(f"new (>{shown})", style="green")
    step = raw_ranks[hit.id] - hit.rank
    return Text(f"▲ {step}", style="green") if step > 0 else Text(f"▼ {-step}", style="red") if step else Text("=")


def show_document(document: Document) -> None:
    out.print(_name(document.title, document.id), soft_wrap=True)
    for key, value in document.metadata.items():
        out.print(Text(f"{one_line(str(key))}: {one_line(str(value))}", style="dim"), soft_wrap=True)
    for line in document.text.splitlines():
        out.print(one_line(line), soft_wrap=True)


# ---- reports ---------------------------------------------------------------------------------------------


def show_ingest(report: IngestReport) -> None:
    parts = [plural(report.new, "new document")]
    for count, what in (
        (report.changed, "changed"),
        (report.unchanged, "unchanged"),
        (report.pruned, "pruned"),
        (report.skipped, "skipped"),
    ):
        if count:
            parts.append(f"{count:,} {what}")
    out.print(f"{', '.join(parts)}; {plural(report.texts_embedded, 'text')} embedded, {report.texts_reused:,} reused.")
    if report.duplicate_ids:
        times = "once" if report.duplicate_ids == 1 else f"{report.duplicate_ids:,} times"
        out.print(f"An id came again with another text {times}; the later one was taken.")
    for item in report.skipped_list[:SKIPPED_SHOWN]:
        err.print(f"skipped {one_line(item.where)}: {one_line(item.reason)}", style="yellow", soft_wrap=True)
    if report.skipped > SKIPPED_SHOWN:
        err.print(f"… and {report.skipped - SKIPPED_SHOWN:,} more.", style="yellow")
    if report.prune_refused:
        err.print(f"Warning: {one_line(report.prune_refused)}.", style="yellow", soft_wrap=True)


def show_drift(report: IngestReport, rebuild: str) -> None:
    """A warning where much of what was added is unlike what the transform was fitted on."""
    drift = report.drift
    if drift and drift.strong:
        ids = ", ".join(one_line(id_) for id_ in drift.strange_ids)
        err.print(
            f"Warning: {drift.strange:,} of {plural(drift.scored, 'passage')} added are unlike what the transform was "
            f"fitted on (1 % would be ordinary), first: {ids}. To fit it again: {rebuild}",
            style="yellow",
            soft_wrap=True,
        )


def _show_considered(index: dict[str, Any]) -> None:
    """What `auto` chose from: the index types that fit, as they did on the vectors they were tried on."""
    considered = (index["measured"] or {}).get("considered")
    if not considered:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=True)
    table.add_column("index type")
    for heading in ("recall", "ms a query", "size"):
        table.add_column(heading, justify="right")
    for one in sorted(considered, key=lambda one: (not one["reaches"], one["cpu_ms"])):
        style = "bold" if one["factory"] == index["factory"] else ""
        cells = (f"{one['recall']:.3f}", f"{one['cpu_ms']:.2g}", size(one["bytes"]))
        table.add_row(Text(one["factory"]), *cells, style=style)
    out.print(table)
    asked = f"recall {index['recall']:g}" + (f" within {size(index['memory'])}" if index["memory"] else "")
    out.print(f"auto: {asked}, tried on {index['measured']['tried_on']:,} vectors.", soft_wrap=True)


def show_info(info: dict[str, Any]) -> None:
    encoder, transform, index = info["encoder"], info["transform"], info["index"]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("collection", one_line(info["folder"]))
    shared = info["passages"] - (info["vectors"] - index["no_longer_used"])
    table.add_row(
        "documents",
        f"{info['documents']:,} in {plural(info['passages'], 'passage')}"
        + (f", {shared:,} of which share a vector with another" if shared > 0 else ""),
    )
    table.add_row(
        "encoder",
        f"{one_line(encoder['name'])}, {encoder['dimension']} dimensions, {encoder['pooling']} pooling, "
        f"at most {encoder['max_length']} tokens, {encoder.get('precision', 'fp32')}, "
        f"weights {encoder['weights'][:12]}",
    )
    table.add_row("transform", one_line(describe_transform(transform, info["fitted_on"])))
    for note in notes(info):
        table.add_row("", Text(one_line(note), style="yellow"))
    believed = (
        "as much as those of words" if info["hybrid_trust"] == 1 else f"{info['hybrid_trust']:g} of those of words"
    )
    table.add_row("hybrid", f"nats of vectors count {believed}")
    table.add_row("drift", one_line(describe_drift(info["drift"])))
    table.add_row(
        "index",
        f"{one_line(index['type'])} ({one_line(str(index['factory']))}), generation {index['generation']}, "
        f"{plural(index['vectors'], 'vector')}"
        if index["generation"]
        else "none yet: run the same `retriever index` command again to finish it",
    )
    if index["generation"]:
        table.add_row("", one_line(describe_index(index)))
    table.add_row("", f"{index['not_yet_in_it']:,} newer, {index['no_longer_used']:,} no longer used")
    table.add_row("on disk", on_disk(info).removesuffix(", ") or "not known: a server of Milvus has it")
    if info["quarantined"]:
        table.add_row("quarantine", Text(plural(info["quarantined"], "row"), style="yellow"))
    table.add_row("made by", f"{info['made_by']}, {info['created']}")
    out.print(table)
    if info["pooling_choice"]:
        show_pooling_choice(info["pooling_choice"])
    if info["precision_choice"]:
        show_precision_choice(info["precision_choice"])
    if info["choice"]:
        show_choice(info["choice"])
    if index["type"] == "auto":
        _show_considered(index)


def show_notes(notes: Sequence[str]) -> None:
    """What runs otherwise than it would best, a line each."""
    for note in notes:
        err.print(f"Note: {one_line(note)}", style="dim", soft_wrap=True)


def show_choice(choice: dict[str, Any], most: int | None = None) -> None:
    """What `auto` chose, from what, and why; the candidates by their agreement with the words of the text.

    `most` shows only so many of the best beside "none".
    """
    out.print(f"chosen     {choice['chosen']}: {choice['reason']}", soft_wrap=True)
    if choice["candidates"]:
        _show_candidates(choice, {"candidate": "spec"}, "none", most)
        margin = f"; none has a margin of {choice['margin']:.0%}" if choice["margin"] else ""
        out.print(f"{_evidence(choice, 'candidates')}{margin}.", soft_wrap=True)


def show_pooling_choice(choice: dict[str, Any]) -> None:
    """The same for `--pooling auto`: each pooling with the transform that suits it best."""
    out.print(f"pooling    {choice['chosen']}: {choice['reason']}", soft_wrap=True)
    if choice["candidates"]:
        _show_candidates(choice, {"pooling": "pooling", "best with": "transform"}, choice["own"])
        margin = f"{choice['own']}, the model's own, has a margin of {choice['margin']:.0%}"
        out.print(f"{_evidence(choice, 'poolings')}; {margin}.", soft_wrap=True)


def show_precision_choice(choice: dict[str, Any]) -> None:
    """What `--precision auto` chose, and why."""
    out.print(f"precision  {choice['chosen']}: {choice['reason']}", soft_wrap=True)


def _show_candidates(choice: dict[str, Any], names: dict[str, str], rival: str, most: int | None = None) -> None:
    """The best candidates and the rival, which they are compared with; `names`: headings and keys of what names one."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=True)
    for heading in names:
        table.add_column(heading)
    table.add_column("agreement", justify="right")
    table.add_column(f"gain over {rival}, 95 %", justify="right")
    named, *_ = names.values()
    ranked = sorted(choice["candidates"], key=lambda c: -c["agreement"])
    for candidate in [c for n, c in enumerate(ranked) if most is None or n < most or c[named] == rival]:
        style = "bold" if candidate[named] == choice["chosen"] else ""
        gain = "" if candidate[named] == rival else "{gain:+.3f} [{low:+.3f}, {high:+.3f}]".format(**candidate)
        cells = [Text(candidate[key]) for key in names.values()]
        table.add_row(*cells, f"{candidate['agreement']:.3f}", Text(gain), style=style)
    out.print(table)


def _evidence(choice: dict[str, Any], what: str) -> str:
    return (
        f"{len(choice['candidates'])} {what}, {choice['queries']:,} sentences as queries over "
        f"{plural(choice['passages'], 'passage')}, {duration(choice['seconds'])}"
    )


def show_verify(report: VerifyReport) -> None:
    looked = (
        f"{plural(report.documents, 'document')}, {plural(report.vectors, 'vector')}, {plural(report.files, 'file')}"
    )
    _show_marked("✗", "red", report.problems)
    _show_marked("✓", "green", report.repaired)
    out.print(f"{looked}: " + ("all as stored." if report.clean else plural(len(report.problems), "problem") + "."))
    if report.left:
        out.print("Still there after the repair:")
        _show_marked("✗", "red", report.left)


def on_disk(info: dict[str, Any]) -> str:
    """The size of a collection and a comma; nothing where Milvus does not tell."""
    return f"{size(sum(info['bytes'].values()))}, " if info["bytes"] else ""


def show_copy(report: CopyReport, search: str) -> None:
    """What was copied and compared."""
    out.print(
        f"{plural(report.documents, 'document')} in {plural(report.passages, 'passage')}, "
        f"{plural(report.vectors, 'vector')}; sent by this run: {report.documents_sent:,} and "
        f"{report.vectors_sent:,}. The seals of all documents are the same, and so are "
        f"{plural(report.vectors_compared, 'vector')} that were compared.",
        soft_wrap=True,
    )
    out.print(f"index      {report.index}, by the same transform", soft_wrap=True)
    out.print(f"{duration(report.seconds)}. Search it: {search}", soft_wrap=True)


def show_salvage(report: SalvageReport) -> None:
    """What was saved, what was not, and where the rest is."""
    embedded = f", {plural(report.texts_embedded, 'text')} embedded again" if report.texts_embedded else ""
    out.print(
        f"{plural(report.documents, 'document')} saved with {plural(report.vectors, 'vector')}{embedded}.",
        soft_wrap=True,
    )
    out.print(f"transform  {report.transform}", soft_wrap=True)
    _show_marked("!", "yellow", report.notes)
    _show_marked("✗", "red", [f"lost: document {id_!r}" for id_ in report.lost])
    if report.lost_unnamed:
        out.print(f"{plural(report.lost_unnamed, 'document')} more of which nothing but a number is left.")
    if report.quarantine:
        many = plural(report.quarantined, "row")
        out.print(f"{many} damaged but readable: {one_line(str(report.quarantine))}", soft_wrap=True)
    out.print(f"{one_line(str(report.source))} was left as it is.", soft_wrap=True)


def _show_marked(mark: str, style: str, sentences: Sequence[str]) -> None:
    for sentence in sentences[:PROBLEMS_SHOWN]:
        out.print(Text().append(mark, style=style).append(f" {one_line(sentence)}"), soft_wrap=True)
    if len(sentences) > PROBLEMS_SHOWN:
        out.print(f"… and {len(sentences) - PROBLEMS_SHOWN:,} more.")
