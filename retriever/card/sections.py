"""The sections of a card: facts, tables and plots, for HTML and Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retriever.card.charts import Plot, candidates_plot, cosine_plot, spectrum_plot
from retriever.card.contents import HASHED, Card
from retriever.card.space import FEWEST
from retriever.info import describe_drift, describe_fit, describe_prompts, describe_recall
from retriever.terminal import cut, duration, plural, size

UNKNOWN = "–"
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
    counts = card.counts
    held = f"{plural(counts['documents'], 'document')} in {plural(counts['passages'], 'passage')}"
    if card.index["generation"] is None:
        return f"{held}; no index yet."
    through = "the encoder’s raw vectors" if card.transform["family"] == "none" else card.transform["spec"]
    recall = card.index["recall_at_10"]
    finds = "exact search" if card.index["exact"] else "search"
    measured = "" if card.index["exact"] or recall is None else f" with a recall of {recall:.3f}"
    return f"{held}; {finds} over {through}{measured}."


def sections(card: Card) -> list[Section]:
    found = [_holds(card), _encoder(card), _transform(card)]
    if choice := card.choice:
        names = {"candidate": "spec"}
        found.append(_compared("choice", "Choice of the transform", choice, names, "candidates"))
    if choice := card.pooling_choice:
        names = {"pooling": "pooling", "best with": "transform"}
        found.append(_compared("pooling", "Choice of the pooling", choice, names, "poolings"))
    return [*found, _space(card), _index(card), _fields(card)]


def _holds(card: Card) -> Section:
    counts = card.counts
    facts = [(name, f"{counts[name]:,}") for name in ("documents", "passages", "vectors")]
    if counts["sharing_a_vector"]:
        facts.append(("passages that share a vector", f"{counts['sharing_a_vector']:,}"))
    if counts["quarantined"]:
        facts.append(("quarantined rows", f"{counts['quarantined']:,}"))
    on_disk = f"{size(card.bytes['all'])}: database {size(card.bytes['database'])}, index {size(card.bytes['index'])}"
    facts += [("on disk", on_disk), ("created", card.created), ("made by", card.made_by)]
    return Section("holds", "Contents", facts=facts)


def _encoder(card: Card) -> Section:
    encoder, prompts = card.encoder, describe_prompts(card.encoder)
    reason = f": {card.precision_choice['reason']}" if card.precision_choice else ""
    facts = [
        ("encoder", str(encoder["name"])),
        ("pooling", str(encoder["pooling"])),
        ("dimensions", f"{encoder['dimension']:,}"),
        ("maximum length", f"{encoder['max_length']:,} tokens"),
        ("precision", f"{encoder['precision']}{reason}"),
        *([("prompts", prompts)] if prompts else []),
        *((part, str(encoder[part])) for part in HASHED),
    ]
    return Section("encoder", "Encoder", facts=facts)


def _transform(card: Card) -> Section:
    transform = card.transform
    if transform["family"] is None:
        return Section("transform", "Transform", facts=[("transform", f"{transform['spec']} (not fitted yet)")])
    facts = [
        ("transform", "none: raw vectors of the encoder" if transform["family"] == "none" else str(transform["spec"])),
        ("fitted on", describe_fit(transform["fitted_on"])),
        ("dimensions", f"{transform['dimension_in']:,} → {transform['dimension_out']:,}"),
        ("fingerprint", str(transform["fingerprint"])),
    ]
    if "held_out_bits_at_best" in transform:
        bits = f"{transform['held_out_bits_at_start']:.3f} → {transform['held_out_bits_at_best']:.3f}"
        facts.append(("held-out bits per dimension", bits))
    facts += [("note", note) for note in transform["notes"]]
    facts.append(("drift", describe_drift(card.drift)))
    return Section("transform", "Transform", facts=facts)


def _compared(name: str, title: str, choice: Mapping[str, Any], names: Mapping[str, str], what: str) -> Section:
    lead = [f"Chosen: {choice['chosen']}. Reason: {choice['reason']}."]
    candidates = choice["candidates"]
    if not candidates:
        return Section(name, title, lead=lead)
    lead.append(
        f"{len(candidates)} {what} ranked {plural(choice['passages'], 'passage')} for {choice['queries']:,} sentences "
        f"of the text. The best candidate is the one whose rankings agree most with the rankings of a word "
        f"search (BM25). This took {duration(choice['seconds'])}."
    )
    first, *_ = names.values()
    rows = [
        [
            *(str(one[key]) for key in names.values()),
            f"{one['agreement']:.3f}",
            UNKNOWN if one[first] == choice["rival"] else "{gain:+.3f} [{low:+.3f}, {high:+.3f}]".format(**one),
        ]
        for one in candidates
    ]
    chosen = next((place for place, one in enumerate(candidates) if one[first] == choice["chosen"]), None)
    columns = [*names, "agreement", f"gain over {choice['rival']}, 95 %"]
    table = Table("Candidates, best first; the chosen one in bold", columns, rows, chosen, texts=len(names))
    plot = candidates_plot(choice, first)
    return Section(name, title, lead=lead, tables=[table], plots=[plot] if plot else [])


def _space(card: Card) -> Section:
    space = card.space
    if space is None:
        reason = f"Not measured: fewer than {FEWEST} vectors." if card.index["generation"] else "No index yet."
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


def _index(card: Card) -> Section:
    index = card.index
    if index["generation"] is None:
        return Section(
            "index", "Index", lead=["No index yet: run the same `retriever index` command again to finish it."]
        )
    facts = [
        ("type", f"{index['type']} ({index['factory']})"),
        ("recall", describe_recall(index["exact"], index["recall_at_10"], index)),
    ]
    if index["ms"] is not None:
        facts.append(("time per query", f"{index['ms']:.2g} ms on one core"))
    facts.append(("bytes per vector", f"{index['bytes_per_vector']:,.0f}"))
    if index["settings"]:
        facts.append(("settings", ", ".join(f"{name} {value:,}" for name, value in index["settings"].items())))
    if index["note"]:
        facts.append(("note", str(index["note"])))
    behind = f"{card.counts['not_yet_in_the_index']:,} newer, {card.counts['no_longer_used']:,} no longer used"
    facts += [
        ("vectors", f"{index['vectors']:,}; {behind}"),
        ("generation", f"{index['generation']}, {index['created']}"),
    ]
    return Section("index", "Index", facts=facts)


def _fields(card: Card) -> Section:
    if not card.fields:
        return Section("fields", "Metadata", lead=["The documents have no metadata."])
    rows = [
        [
            cut(field["name"], NAME_SHOWN),
            ", ".join(f"{_value(one['value'])} ({one['count']:,})" for one in field["values"])
            + (", …" if field["more"] else ""),
            f"{field['documents']:,}",
        ]
        for field in card.fields
    ]
    return Section(
        "fields", "Metadata", tables=[Table("Fields", ["field", "most frequent values", "documents"], rows, texts=2)]
    )


def _value(value: object) -> str:
    return cut(str(value).lower() if isinstance(value, bool) else str(value), VALUE_SHOWN)


def _figure(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"
