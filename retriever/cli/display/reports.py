"""Shows reports in the terminal: what was indexed, what a collection holds, what a check found."""

from pathlib import Path
from typing import Any

import click
from rich.text import Text

from indexes.folder.verify import Report as VerifyReport
from retriever.cli.display import console
from retriever.cli.errors import with_flags
from retriever.info import describe_drift, describe_index, describe_prompts, describe_transform
from retriever.info import notes as notes_of
from retriever.ingest.pipeline import IngestReport
from retriever.recovery.salvage import SalvageReport
from retriever.retriever import Retriever
from retriever.terminal import duration, one_line, plural, size
from retriever.transfer.copy import CopyReport

MOST_SKIPPED = 10


def say(sentence: str) -> None:
    console.out.print(sentence, soft_wrap=True)


def show_built(retriever: Retriever, index: str | Path, seconds: float, transform_given: bool) -> None:
    """Show what the command `index` did, which settings it chose, and the resulting collection."""
    report, info = retriever.report, retriever.info()
    show_ingest(report, index)
    if report.texts_embedded:
        _show_choices(info, most=4)
    elif transform_given:
        _show_choices({"choice": info["choice"]}, most=4)
    say(f"transform  {describe_transform(info['transform'], info['fitted_on'])}")
    if info["index"]["generation"]:
        say(f"index      {describe_index(info['index'])}")
    for note in notes_of(info):
        console.warn(f"Warning: {note}")
    console.show_notes(retriever.notes())
    facts = [f"{plural(info['documents'], 'document')} in {plural(info['passages'], 'passage')}"]
    if info["bytes"]:  # Milvus does not report the size of a collection
        facts.append(size(sum(info["bytes"].values())))
    it = "it" if info["documents"] == 1 else "them"
    say(f"{', '.join([*facts, duration(seconds)])}. Search {it}: {console.command('search', index)}")


def show_ingest(report: IngestReport, index: str | Path) -> None:
    parts = [plural(report.new, "new document")]
    for what in ("changed", "unchanged", "pruned", "skipped"):
        if count := getattr(report, what):
            parts.append(f"{count:,} {what}")
    say(f"{', '.join(parts)}; {plural(report.texts_embedded, 'text')} embedded, {report.texts_reused:,} reused.")
    if report.duplicate_ids:
        say(f"{plural(report.duplicate_ids, 'document')} had the id of an earlier document and replaced it.")
    context = click.get_current_context(silent=True)
    for item in report.skipped_list[:MOST_SKIPPED]:
        reason = with_flags(item.reason, context.command if context else None)
        console.warn(f"skipped {one_line(item.where)}: {one_line(reason)}")
    if report.skipped > MOST_SKIPPED:
        console.warn(f"… and {report.skipped - MOST_SKIPPED:,} more.")
    if report.prune_refused:
        console.warn(f"Warning: {one_line(report.prune_refused)}.")
    drift = report.drift
    if drift and drift.strong:
        ids = ", ".join(one_line(id_) for id_ in drift.strange_ids)
        console.warn(
            f"Warning: {drift.strange:,} of {plural(drift.scored, 'passage')} added are unlike the text that the "
            f"transform was fitted on (normal is 1 %), e.g. {ids}. Fit it again: {console.command('rebuild', index)}"
        )


def show_info(info: dict[str, Any]) -> None:
    encoder, index = info["encoder"], info["index"]
    table = console.table("", "")
    table.show_header = False
    table.columns[0].style, table.columns[1].overflow = "bold", "fold"

    def row(name: str, fact: str, style: str = "") -> None:
        table.add_row(name, Text(one_line(fact), style=style))

    row("collection", info["folder"])
    shared = info["passages"] - (info["vectors"] - index["no_longer_used"])
    repeated = f", {shared:,} of them with the same text as another passage" if shared > 0 else ""
    row("documents", f"{info['documents']:,} in {plural(info['passages'], 'passage')}{repeated}")
    row(
        "encoder",
        f"{encoder['name']}, {encoder['dimension']} dimensions, {encoder['pooling']} pooling, at most "
        f"{encoder['max_length']} tokens, {encoder.get('precision', 'fp32')}, weights {encoder['weights'][:12]}",
    )
    if prompts := describe_prompts(encoder):
        row("prompts", prompts)
    row("transform", describe_transform(info["transform"], info["fitted_on"]))
    for note in notes_of(info):
        row("", note, "yellow")
    trust = info["hybrid_trust"]
    row(
        "hybrid",
        "meaning and words have equal weight" if trust == 1 else f"meaning has {trust:g} × the weight of words",
    )
    row("drift", describe_drift(info["drift"]))
    if index["generation"]:
        vectors = plural(index["vectors"], "vector")
        row("index", f"{index['type']} ({index['factory']}), generation {index['generation']}, {vectors}")
        row("", describe_index(index))
    else:
        row("index", "none yet: run the same `retriever index` command again to finish it")
    row("", f"{plural(index['not_yet_in_it'], 'vector')} to be added, {index['no_longer_used']:,} no longer used")
    row("on disk", size(sum(info["bytes"].values())) if info["bytes"] else "unknown: a Milvus server stores it")
    if info["quarantined"]:
        row("quarantine", plural(info["quarantined"], "row"), "yellow")
    row("made by", f"{info['made_by']}, {info['created']}")
    console.out.print(table)
    _show_choices(info)
    if index["type"] == "auto":
        _show_index_choice(index)


def _show_choices(info: dict[str, Any], most: int | None = None) -> None:
    """Show what `auto` chose for pooling, precision and transform, and why.

    At most `most` candidates for the transform are shown, and `none` in addition.
    """
    if choice := info.get("pooling_choice"):
        names = {"pooling": "pooling", "best with": "transform"}
        _show_choice("pooling", choice, names, choice["own"])
    if learning := info.get("learning"):
        say(f"words      {learning['reason']}")
    if choice := info.get("precision_choice"):
        say(f"precision  {choice['chosen']}: {choice['reason']}")
    if choice := info.get("choice"):
        _show_choice("chosen", choice, {"candidate": "spec"}, "none", most)


def _show_choice(
    label: str, choice: dict[str, Any], names: dict[str, str], rival: str, most: int | None = None
) -> None:
    """Show a choice and its candidates.

    `rival` is the default candidate, which the others must beat. `names` maps each heading of the table to a key of a
    candidate; the value of the first key is the name of the candidate.
    """
    say(f"{label:<9}  {choice['chosen']}: {choice['reason']}")
    if not choice["candidates"]:
        return
    table = console.table(*names, ">agreement", f">gain over {rival}, 95 %")
    named, *_ = names.values()
    ranked = sorted(choice["candidates"], key=lambda c: -c["agreement"])
    for candidate in [c for n, c in enumerate(ranked) if most is None or n < most or c[named] == rival]:
        gain = "" if candidate[named] == rival else "{gain:+.3f} [{low:+.3f}, {high:+.3f}]".format(**candidate)
        cells = [Text(candidate[key]) for key in names.values()]
        style = "bold" if candidate[named] == choice["chosen"] else ""
        table.add_row(*cells, f"{candidate['agreement']:.3f}", Text(gain), style=style)
    console.out.print(table)
    say(
        f"{len(choice['candidates'])} candidates, {choice['queries']:,} sentences as queries over "
        f"{plural(choice['passages'], 'passage')}, {duration(choice['seconds'])}."
    )


def _show_index_choice(index: dict[str, Any]) -> None:
    """Show the index types that `auto` tried, and the required recall and size.

    Types that meet the requirements come first, each group in the order of speed.
    """
    considered = (index["measured"] or {}).get("considered")
    if not considered:
        return
    table = console.table("index type", ">recall", ">ms per query", ">size")
    for one in sorted(considered, key=lambda one: (not one["reaches"], one["cpu_ms"])):
        cells = (f"{one['recall']:.3f}", f"{one['cpu_ms']:.2g}", size(one["bytes"]))
        table.add_row(Text(one["factory"]), *cells, style="bold" if one["factory"] == index["factory"] else "")
    console.out.print(table)
    limits = f"recall {index['recall']:g}" + (f" within {size(index['memory'])}" if index["memory"] else "")
    say(f"auto: {limits}, tried on {index['measured']['tried_on']:,} vectors.")


def show_verify(report: VerifyReport) -> None:
    console.show_list("✗", "red", report.problems)
    console.show_list("✓", "green", report.repaired)
    checked = ", ".join(plural(getattr(report, f"{noun}s"), noun) for noun in ("document", "vector", "file"))
    say(f"{checked}: " + ("no damage found." if report.clean else plural(len(report.problems), "problem") + "."))
    if report.left:
        say("Not repaired:")
        console.show_list("✗", "red", report.left)


def show_copy(report: CopyReport, search: str) -> None:
    documents, vectors = plural(report.documents, "document"), plural(report.vectors, "vector")
    say(
        f"Copied {documents} in {plural(report.passages, 'passage')} and {vectors} (in this run: "
        f"{report.documents_sent:,} and {report.vectors_sent:,})."
    )
    say(f"Checked: all documents and {plural(report.vectors_compared, 'vector')} are the same in source and target.")
    say(f"index      {report.index}, with the same transform")
    say(f"{duration(report.seconds)}. Search it: {search}")


def show_salvage(report: SalvageReport) -> None:
    embedded = f", {plural(report.texts_embedded, 'text')} embedded again" if report.texts_embedded else ""
    say(f"{plural(report.documents, 'document')} saved with {plural(report.vectors, 'vector')}{embedded}.")
    say(f"transform  {report.transform}")
    console.show_list("!", "yellow", report.notes)
    console.show_list("✗", "red", [f"lost: document {id_!r}" for id_ in report.lost])
    if report.lost_unnamed:
        say(f"{plural(report.lost_unnamed, 'more document')} lost, whose ids are unknown.")
    if report.quarantine:
        say(f"{plural(report.quarantined, 'row')} damaged but readable: {one_line(str(report.quarantine))}")
    say(f"{one_line(str(report.source))} was not changed.")
