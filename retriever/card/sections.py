"""The sections of a card: facts, tables and plots, for HTML and Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indexes.folder.collection import DATABASE
from indexes.folder.generation import GENERATIONS
from retriever.card.charts import Plot, candidates_plot, cosine_plot, spectrum_plot
from retriever.card.contents import Card
from retriever.card.space import FEWEST
from retriever.info import (
    describe_drift,
    describe_encoder,
    describe_fit,
    describe_prompts,
    describe_recall,
    is_exact,
    transform_name,
)
from retriever.terminal import cut, duration, plural, size

Info = Mapping[str, Any]

UNKNOWN = "–"
HASH_SHOWN = 12
VALUE_SHOWN = 60
NAME_SHOWN = 80
MEASURES = [
    ("mean_cosine", "mean cosine", "0"),
    ("isoscore", "IsoScore", "1"),
    ("participation_ratio", "dimensions in use (participation ratio)", "all"),
    ("uniformity", "uniformity", "low"),
    ("partition_isotropy", "partition isotropy", "1"),
]
"""For each measure: the field of `Isotropy`, the name, and the value for isotropic vectors."""


@dataclass(frozen=True)
class Table:
    """A table. The first cell of a row is its heading. `strong` is the index of the row in bold."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    strong: int | None = None
    texts: int = 1
    """How many columns, from the left, have text instead of numbers."""


@dataclass(frozen=True)
class Section:
    """A section of a card: a heading, then paragraphs, facts, tables and plots."""

    name: str
    title: str
    lead: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()


def headline(card: Card) -> str:
    """Describe the collection in one sentence."""
    info, index = card.info, card.info["index"]
    held = f"{plural(info['documents'], 'document')} in {plural(info['passages'], 'passage')}"
    if index["generation"] is None:
        return f"{held}; no index yet."
    raw = info["transform"]["family"] == "none"
    through = "the encoder’s raw vectors" if raw else transform_name(info["transform"])
    if is_exact(index):
        return f"{held}; exact search over {through}."
    recall = (index["measured"] or {}).get("recall")
    return f"{held}; search over {through}{'' if recall is None else f' with a recall of {recall:.3f}'}."


def verdict(card: Card) -> str:
    """Say in one sentence how the collection is searched, and what evidence there is for this."""
    info, index = card.info, card.info["index"]
    if index["generation"] is None:
        return "This collection cannot be searched yet, because its first indexing was interrupted."
    name = transform_name(info["transform"])
    raw, choice = info["transform"]["family"] == "none", info["choice"]
    recall = (index["measured"] or {}).get("recall")
    found = "" if is_exact(index) or recall is None else f" The index finds {recall:.1%} of the ten nearest passages."
    if not choice or not choice["candidates"]:
        how = "the encoder’s vectors as they are" if raw else f"vectors transformed by {name}, as requested"
        return f"Search compares {how}; no alternative was measured.{found}"
    others = [one for one in choice["candidates"] if one["spec"] != "none"]
    if raw:
        if any(one["low"] > 0 for one in others):
            why = str(choice["reason"])
        elif len(others) == 1:
            why = f"on this text, {others[0]['spec']} does not improve the search by more than chance"
        else:
            why = f"none of the {len(others)} transforms measured on this text improves the search by more than chance"
        return f"Search compares the encoder’s vectors as they are: {why}.{found}"
    chosen = next((one for one in others if one["spec"] == choice["chosen"]), None)
    if chosen is None:
        return f"Search compares vectors transformed by {name}.{found}"
    chance = "more than chance explains" if chosen["low"] > 0 else "which chance may explain"
    return (
        f"Search compares vectors transformed by {name}: they agree with a search by words by {chosen['gain']:+.3f} "
        f"[{chosen['low']:+.3f}, {chosen['high']:+.3f}] more than the encoder’s own, {chance}.{found}"
    )


def main_plot(found: Sequence[Section]) -> Plot | None:
    """Return the plot that the card opens with: the comparison of transforms, else the cosines."""
    plots = [plot for section in found for plot in section.plots]
    return next((plot for kind in ("dots", "ridges") for plot in plots if plot.kind == kind), None)


def sections(card: Card) -> list[Section]:
    info = card.info
    found = [_holds(info), _encoder(info), _transform(info)]
    if choice := info["choice"]:
        found.append(_compared("choice", "Choice of the transform", choice, {"candidate": "spec"}, "candidates"))
    if choice := info["pooling_choice"]:
        names = {"pooling": "pooling", "best with": "transform"}
        found.append(_compared("pooling", "Choice of the pooling", choice, names, "poolings"))
    return [*found, _space(card), _index(info["index"]), _fields(card)]


def _holds(info: Info) -> Section:
    facts = [(name, f"{info[name]:,}") for name in ("documents", "passages", "vectors")]
    if (sharing := info["passages"] - (info["vectors"] - info["index"]["no_longer_used"])) > 0:
        facts.append(("passages that share a vector", f"{sharing:,}"))
    if info["quarantined"]:
        facts.append(("quarantined rows", f"{info['quarantined']:,}"))
    database, index = (
        size(sum(count for name, count in info["bytes"].items() if name.startswith(beginning)))
        for beginning in (DATABASE, f"{GENERATIONS}/")
    )
    on_disk = f"{size(sum(info['bytes'].values()))}: database {database}, index {index}"
    facts += [("on disk", on_disk), ("created", str(info["created"])), ("made by", str(info["made_by"]))]
    return Section("holds", "Contents", facts=facts)


def _encoder(info: Info) -> Section:
    encoder, prompts = info["encoder"], describe_prompts(info["encoder"])
    reason = f": {info['precision_choice']['reason']}" if info["precision_choice"] else ""
    if not encoder["weights"]:  # a function, an endpoint, or vectors that documents brought
        return Section("encoder", "Encoder", facts=[("encoder", describe_encoder(encoder))])
    facts = [
        ("encoder", str(encoder["name"])),
        ("pooling", str(encoder["pooling"])),
        ("dimensions", f"{encoder['dimension']:,}"),
        ("maximum length", f"{encoder['max_length']:,} tokens"),
        ("precision", f"{encoder.get('precision', 'fp32')}{reason}"),
        *([("prompts", prompts)] if prompts else []),
        *((part, str(encoder[part])[:HASH_SHOWN]) for part in ("weights", "tokenizer", "config")),
    ]
    return Section("encoder", "Encoder", facts=facts)


def _transform(info: Info) -> Section:
    transform = info["transform"]
    if "family" not in transform:
        return Section("transform", "Transform", facts=[("transform", f"{transform['spec']} (not fitted yet)")])
    raw = transform["family"] == "none"
    facts = [
        ("transform", "none: raw vectors of the encoder" if raw else transform_name(transform)),
        ("fitted on", describe_fit(info["fitted_on"])),
        ("dimensions", f"{transform['dimension_in']:,} → {transform['dimension_out']:,}"),
        ("fingerprint", str(transform["fingerprint"])[:HASH_SHOWN]),
    ]
    if "held_out_bits_at_best" in transform:
        bits = f"{transform['held_out_bits_at_start']:.3f} → {transform['held_out_bits_at_best']:.3f}"
        facts.append(("held-out bits per dimension", bits))
    facts += [("note", str(note)) for note in transform.get("notes", [])]
    facts.append(("drift", describe_drift(info["drift"])))
    return Section("transform", "Transform", facts=facts)


def _compared(name: str, title: str, choice: Info, names: Mapping[str, str], what: str) -> Section:
    """Show a choice that was made by agreement with BM25. The best candidates come first."""
    lead = [f"Chosen: {choice['chosen']}. Reason: {choice['reason']}."]
    candidates = sorted(choice["candidates"], key=lambda one: -one["agreement"])
    if not candidates:
        return Section(name, title, lead=lead)
    lead.append(
        f"{len(candidates)} {what} ranked {plural(choice['passages'], 'passage')} for {choice['queries']:,} sentences "
        f"of the text. The best candidate is the one whose rankings agree most with the rankings of a word "
        f"search (BM25). This took {duration(choice['seconds'])}."
    )
    (first, *_), rival = names.values(), choice.get("own", "none")
    rows = [
        [
            *(str(one[key]) for key in names.values()),
            f"{one['agreement']:.3f}",
            UNKNOWN if one[first] == rival else "{gain:+.3f} [{low:+.3f}, {high:+.3f}]".format(**one),
        ]
        for one in candidates
    ]
    chosen = next((place for place, one in enumerate(candidates) if one[first] == choice["chosen"]), None)
    columns = [*names, "agreement", f"gain over {rival}, 95 %"]
    table = Table("Candidates, best first; the chosen one in bold", columns, rows, chosen, texts=len(names))
    plot = candidates_plot(candidates, first, chosen=choice["chosen"], rival=rival)
    return Section(name, title, lead=lead, tables=[table], plots=[plot] if plot else [])


def _space(card: Card) -> Section:
    space = card.space
    if space is None:
        reason = f"Not measured: fewer than {FEWEST} vectors." if card.info["index"]["generation"] else "No index yet."
        return Section("space", "Isotropy", lead=[reason])
    changed = space.before is not space.after
    before, after = space.before.mean_cosine, space.after.mean_cosine
    lead = []
    if before is not None and after is not None:
        now = f" before the transform, and of {after:.3f} after it." if changed else ". There is no transform."
        lead.append(f"Two random passages have a mean cosine of {before:.3f}{now}")
    shown = (space.before, space.after) if changed else (space.after,)
    rows = [[what, *(_figure(getattr(one, name)) for one in shown), ideal] for name, what, ideal in MEASURES]
    columns = ["measure", "before", "after", "isotropic"] if changed else ["measure", "value", "isotropic"]
    table = Table(f"Measured on {plural(space.sample, 'stored vector')}", columns, rows)
    return Section("space", "Isotropy", lead=lead, tables=[table], plots=[cosine_plot(space), spectrum_plot(space)])


def _index(index: Info) -> Section:
    if index["generation"] is None:
        lead = ["No index yet: run the same `retriever index` command again to finish it."]
        return Section("index", "Index", lead=lead)
    measured = index["measured"] or {}
    recall = describe_recall(is_exact(index), measured.get("recall"), measured)
    facts = [("type", f"{index['type']} ({index['factory']})"), ("recall", recall)]
    if "cpu_ms" in measured:
        facts.append(("time per query", f"{measured['cpu_ms']:.2g} ms on one core"))
    if "bytes_per_vector" in measured:
        facts.append(("bytes per vector", f"{measured['bytes_per_vector']:,.0f}"))
    if measured.get("settings"):
        facts.append(("settings", ", ".join(f"{name} {value:,}" for name, value in measured["settings"].items())))
    if index["note"]:
        facts.append(("note", str(index["note"])))
    behind = f"{index['not_yet_in_it']:,} newer, {index['no_longer_used']:,} no longer used"
    facts.append(("vectors", f"{index['vectors']:,}; {behind}"))
    facts.append(("generation", f"{index['generation']}, {index['created']}"))
    return Section("index", "Index", facts=facts)


def _fields(card: Card) -> Section:
    if not card.fields:
        return Section("fields", "Metadata", lead=["The documents have no metadata."])
    rows = []
    for field in card.fields:
        values = [f"{_value(one.value)} ({one.count:,})" for one in field.values] + ["…"] * field.more
        rows.append([cut(field.name, NAME_SHOWN), ", ".join(values), f"{field.documents:,}"])
    table = Table("Fields", ["field", "most frequent values", "documents"], rows, texts=2)
    return Section("fields", "Metadata", tables=[table])


def _value(value: object) -> str:
    return cut(str(value).lower() if isinstance(value, bool) else str(value), VALUE_SHOWN)


def _figure(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"
