"""Shows reports in the terminal: what was indexed, what a collection holds, what a check found."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from indexes.terms import LANGUAGES
from retriever.cli.display import console
from retriever.cli.display.console import say
from retriever.cli.display.errors import with_flags
from retriever.info import (
    describe_drift,
    describe_encoder,
    describe_index,
    describe_prompts,
    describe_transform,
    is_exact,
)
from retriever.info import notes as notes_of
from retriever.retriever import Retriever
from retriever.terminal import cut, duration, one_line, plural, size

if TYPE_CHECKING:
    from indexes.folder.verify import Report as VerifyReport
    from retriever.ingest.pipeline import IngestReport
    from retriever.recovery.salvage import SalvageReport
    from retriever.transfer.copy import CopyReport

MOST_SKIPPED = 10
LONGEST_TITLE = 40


def show_built(retriever: Retriever, index: str | Path, seconds: float, verbose: bool) -> None:
    """Show what the command `index` did, and with `verbose` also which settings were chosen, and why."""
    report = retriever.report
    info: Any = retriever.info()
    # Milvus does not report the size of a collection.
    held = f" ({size(sum(info['bytes'].values()))})" if info["bytes"] else ""
    result = f"{_counts(report)}; {info['documents']:,} in {one_line(str(index))}{held}, {duration(seconds)}."
    say(result if report.unchanged else f"{result} Search: {console.command('search', index)}")
    if verbose:
        say(f"texts      {report.texts_embedded:,} embedded, {report.texts_reused:,} reused")
        _show_choices(info)
        show_space(info)
    else:
        if chosen := _chosen(info, report):
            say(f"{chosen} Why: {console.command('info', index)}", "dim")
        if later := _chosen_later(retriever, info):
            say(later, "dim")
    _show_warnings(report, index, verbose)
    for note in notes_of(info):
        console.warn(f"Warning: {note}")
    console.show_notes(retriever.notes())


def _chosen(info: dict[str, Any], report: "IngestReport") -> str:
    """Name what was chosen for a new collection, and an index that is not exact, which may also be chosen later.

    The text is empty if the model is used as it comes.
    """
    chosen = []
    if (choice := info["pooling_choice"]) and choice["chosen"] != choice["own"]:
        without = ", without the transformer's layers" if choice["chosen"] in ("learned", "word") else ""
        chosen.append(f"pooling {choice['chosen']}{without}")
    if (choice := info["precision_choice"]) and choice["chosen"] != "fp32":
        chosen.append(f"precision {choice['chosen']}")
    if (choice := info["choice"]) and choice["chosen"] != "none":
        chosen.append(f"transform {choice['chosen']}")
    if report.unchanged:
        chosen = []
    index = info["index"]
    if index["type"] == "auto" and index["generation"] and not is_exact(index) and (report.new or report.changed):
        chosen.append(f"index {index['factory']} with recall@10 {index['measured']['recall']:.3f}")
    return f"Chosen for this text: {', '.join(chosen)}." if chosen else ""


def _chosen_later(retriever: Retriever, info: dict[str, Any]) -> str:
    """Say when a transform will be chosen, if there are too few passages for a choice.

    The text is empty if the model comes with a pooling: such a model was tuned, so a transform rarely helps it.
    """
    from retriever.encoder.encoder import Encoder
    from retriever.transforms.choice import FEWEST_PASSAGES

    choice, encoder = info["choice"], retriever.encoder()
    if not isinstance(encoder, Encoder) or encoder.files.declares_pooling or info["passages"] >= FEWEST_PASSAGES:
        return ""
    return f"Nothing is chosen yet: {choice['reason']}." if choice and not choice["candidates"] else ""


def show_space(info: dict[str, Any]) -> None:
    """Show the transform and the index of a collection."""
    say(f"transform  {describe_transform(info['transform'], info['fitted_on'])}")
    if info["index"]["generation"]:
        say(f"index      {describe_index(info['index'])}")


def show_ingest(report: "IngestReport", index: str | Path) -> None:
    """Show what the command `add` did."""
    say(f"{_counts(report)}.")
    _show_warnings(report, index)


def _counts(report: "IngestReport") -> str:
    counts = ((getattr(report, what), what) for what in ("changed", "unchanged", "pruned", "skipped"))
    new = plural(report.new, "new document") if report.new else "No new documents"
    return ", ".join([new, *(f"{count:,} {what}" for count, what in counts if count)])


def _show_warnings(report: "IngestReport", index: str | Path, verbose: bool = False) -> None:
    if report.duplicate_ids:
        shown = ", ".join(
            one_line(f"{id_} ({later} after {earlier})" if earlier else id_)
            for id_, later, earlier in report.duplicates
        )
        more = ", …" if report.duplicate_ids > len(report.duplicates) else ""
        console.warn(
            f"{plural(report.duplicate_ids, 'document')} had the id of an earlier document and replaced it: "
            f"{shown}{more}"
        )
    if report.renamed:
        old, new = map(one_line, report.renamed[0])
        more = f" and {len(report.renamed) - 1:,} more" if len(report.renamed) > 1 else ""
        say(f"Renamed: {old} is now {new}{more}. Its text was not embedded again.")
    if report.gone:
        shown = ", ".join(map(one_line, report.gone_ids)) + (", …" if report.gone > len(report.gone_ids) else "")
        them = "it" if report.gone == 1 else "them"
        say(f"{plural(report.gone, 'document')} no longer in the source: {shown}. --prune removes {them}.")
    if report.kept:
        shown = ", ".join(map(one_line, report.kept_ids)) + (", …" if report.kept > len(report.kept_ids) else "")
        them = "it" if report.kept == 1 else "them"
        say(f"{plural(report.kept, 'document')} kept, because what was skipped may hold {them}: {shown}.")
    context = click.get_current_context(silent=True)
    command = context.command if context else None
    listed = report.skipped_list if verbose else report.skipped_list[:MOST_SKIPPED]
    for sentence in (
        report.files.sentences({name for item in listed for name in (item.file, item.where)}) if report.files else ()
    ):
        say(one_line(with_flags(sentence, command)))
    for item in listed:
        reason = with_flags(item.reason, command)
        console.warn(f"skipped {one_line(item.where)}: {one_line(reason)}")
    if unlisted := report.skipped - len(listed):
        can_name_them = not verbose and command and any(option.name == "verbose" for option in command.params)
        console.warn(f"… and {unlisted:,} more.{' -v names them.' if can_name_them else ''}")
    if report.prune_refused:
        console.warn(f"Warning: {one_line(report.prune_refused)}.")
    drift = report.drift
    if drift and drift.strong:
        ids = ", ".join(one_line(id_) for id_ in drift.strange_ids)
        console.warn(
            f"Warning: {drift.strange:,} of {plural(drift.scored, 'passage')} added are unlike the text that the "
            f"transform was fitted on (normal is 1 %), e.g. {ids}. Fit it again: {console.command('rebuild', index)}"
        )


def show_list(listed: Sequence[Mapping[str, Any]], folder: Path) -> None:
    if not listed:
        say(f"There is no collection in {one_line(str(folder))}. Make one with: retriever index SOURCE")
        return
    table = console.table("collection", ">documents", ">size", "changed", "encoder")
    table.columns[0].overflow = "fold"
    for one in (one for one in listed if "problem" not in one):
        changed = datetime.fromtimestamp(one["changed"]).strftime("%Y-%m-%d %H:%M")
        facts = (
            "\n".join(one_line(text) for text in (one["folder"], cut(one["title"] or "", LONGEST_TITLE)) if text),
            f"{one['documents']:,}",
            size(one["bytes"]),
            changed,
            one_line(one["encoder"]),
        )
        table.add_row(*map(Text, facts))
    console.out.print(table)
    for one in (one for one in listed if "problem" in one):
        console.warn(f"cannot be opened: {one_line(one['problem'])}")


def show_info(info: dict[str, Any]) -> None:
    encoder, index = info["encoder"], info["index"]
    table = console.table("", "")
    table.show_header = False
    table.columns[0].style, table.columns[1].overflow = "bold", "fold"

    def row(name: str, fact: str, style: str = "") -> None:
        table.add_row(name, Text(one_line(fact), style=style))

    row("collection", info["folder"])
    for name in ("title", "description"):
        if info[name]:
            row(name, info[name])
    shared = info["passages"] - (info["vectors"] - index["no_longer_used"])
    repeated = f", {shared:,} of them with the same text as another passage" if shared > 0 else ""
    row("documents", f"{info['documents']:,} in {plural(info['passages'], 'passage')}{repeated}")
    row("encoder", describe_encoder(encoder))
    if prompts := describe_prompts(encoder):
        row("prompts", prompts)
    row("transform", describe_transform(info["transform"], info["fitted_on"]))
    for note in notes_of(info):
        row("", note, "yellow")
    row("weights", f"meaning {info['weight_of_meaning']:.0%}, words {1 - info['weight_of_meaning']:.0%}")
    row("words", f"stems of {LANGUAGES[language].capitalize()}" if (language := info["language"]) else "without stems")
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


def _show_choices(info: dict[str, Any]) -> None:
    """Show what `auto` chose for pooling, precision and transform, and why."""
    if choice := info.get("pooling_choice"):
        names = {"pooling": "pooling", "best with": "transform"}
        _show_choice("pooling", choice, names, choice["own"])
    if learning := info.get("learning"):
        first, now = learning["read"], info["documents"]
        part = f". The table has the words of the first {first:,} of {now:,} documents" if first < now else ""
        say(f"words      {learning['reason']}{part}")
    if choice := info.get("precision_choice"):
        say(f"precision  {choice['chosen']}: {choice['reason']}")
    if choice := info.get("choice"):
        _show_choice("transform", choice, {"candidate": "spec"}, "none")


def _show_choice(label: str, choice: dict[str, Any], names: dict[str, str], rival: str) -> None:
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
    for candidate in ranked:
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


def show_verify(report: "VerifyReport") -> None:
    console.show_list("✗", "red", report.problems)
    console.show_list("✓", "green", report.repaired)
    checked = ", ".join(plural(getattr(report, f"{noun}s"), noun) for noun in ("document", "vector", "file"))
    say(f"{checked}: " + ("no damage found." if report.clean else plural(len(report.problems), "problem") + "."))
    if report.left:
        say("Not repaired:")
        console.show_list("✗", "red", report.left)


def show_copy(report: "CopyReport", search: str) -> None:
    documents, vectors = plural(report.documents, "document"), plural(report.vectors, "vector")
    say(
        f"Copied {documents} in {plural(report.passages, 'passage')} and {vectors} (in this run: "
        f"{report.documents_sent:,} and {report.vectors_sent:,})."
    )
    say(f"Checked: all documents and {plural(report.vectors_compared, 'vector')} are the same in source and target.")
    say(f"index      {report.index}, with the same transform")
    say(f"{duration(report.seconds)}. Search it: {search}")


def show_salvage(report: "SalvageReport") -> None:
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
