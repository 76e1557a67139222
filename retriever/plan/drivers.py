"""What drives the cost: the share that each part has of hours, disk and memory, and what would lower it."""

from dataclasses import dataclass

from retriever.plan.laws import BUILDING, ENCODING, FLAT, STORING, TEXTS, VECTORS, WORDS, Law
from retriever.plan.pages import vector_record

SHOWN_FROM = 0.02
SHARE_NOTED = 0.1


@dataclass(frozen=True)
class Driver:
    """A part of a cost."""

    cost: str
    part: str
    share: float
    lower: str
    """What would lower it; empty where nothing much would."""


def drivers(law: Law, documents: int) -> list[Driver]:
    """The parts that count, the largest of each cost first."""
    hours = law.cpu(documents)
    disk = {**law.sqlite(documents), "index (flat)": law.index_bytes(law.vectors(documents), FLAT)}
    searching = law.search_memory(documents, FLAT)
    index = law.index_bytes(law.vectors(documents), FLAT)
    memory = {"index (flat)": index, "the process itself": searching - index}
    lower = {
        ("hours", ENCODING): _encoding(law),
        ("hours", STORING): "fewer passages a document (a larger --max-length)",
        ("hours", BUILDING): "flat is the quickest to build",
        ("disk", VECTORS): _vectors(law),
        ("disk", TEXTS): "documents are kept whole: leave out metadata nobody filters by",
        ("disk", WORDS): "",
        ("disk", "index (flat)"): _smaller_index(law, documents),
        ("memory", "index (flat)"): _smaller_index(law, documents),
    }
    found = []
    for cost, parts in (("hours", hours), ("disk", disk), ("memory", memory)):
        total = sum(parts.values())
        ranked = sorted(parts.items(), key=lambda part: -part[1])
        found += [
            Driver(cost, part, value / total, lower.get((cost, part), ""))
            for part, value in ranked
            if value / total >= SHOWN_FROM
        ]
    return found


def _encoding(law: Law) -> str:
    rates = law.rates
    both = {name: rates.encoded[name].cpu_a_text for name in ("fp32", "int8") if name in rates.encoded}
    tokens = "shorter documents, or a smaller encoder"
    if len(both) < 2:
        return tokens
    ratio = both["fp32"] / both["int8"]
    if rates.precision == "int8":
        return f"{tokens}; int8 is taken already, fp32 takes {ratio:.1f} times as long"
    return f"{tokens}; --precision int8 is {ratio:.1f} times as fast, at the price of a ranking that is not the same"


def _vectors(law: Law) -> str:
    dimension = law.rates.dimension
    told = f"an encoder of fewer than {dimension} dimensions: raw vectors are kept, as halves"
    used = vector_record(dimension, 6) * law.vectors(10**7)
    waste = 1 - used / law.sqlite(10**7)[VECTORS]
    if waste >= SHARE_NOTED:
        told += f"; {waste:.0%} of it is the index of texts and what SQLite's pages leave empty"
    return told


def _smaller_index(law: Law, documents: int) -> str:
    vectors = law.vectors(documents)
    sizes = {name: law.index_bytes(vectors, name) for name, trial in law.rates.trials.items() if trial.reaches}
    if not sizes:
        return "--transform whiten:dimension=… keeps fewer dimensions"
    smallest = min(sizes, key=lambda name: sizes[name])
    ratio = law.index_bytes(vectors, FLAT) / sizes[smallest]
    half = law.rates.fitted.dimension // 2
    kept = f"--transform whiten:dimension={half} halves it" if half else ""
    return "; ".join(filter(None, [f"--index-type {smallest} takes 1/{ratio:.0f}" if ratio > 1.5 else "", kept]))
