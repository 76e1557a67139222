"""Make a plan for a corpus, as JSON and tables. Each shard of the corpus must fit into the memory of one machine."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console

from indexes.faiss.auto import format_bytes
from retriever.errors import Misuse
from retriever.memory import machine_bytes
from retriever.plan.laws import EMBEDDING, FLAT, Law, Rates
from retriever.terminal import one_line

HOUR, FEWEST_DOCUMENTS, NAME_WIDTH = 3600, 100, 26
HEADINGS = [f"{'type':<{NAME_WIDTH}}", "recall", "index", "disk", "shards", "to build", "to search"]
HEADINGS += ["query, CPU ms", "core-hours to build"]


def plan(rates: Rates, documents: int, *, memory: int | None = None, cores: int | None = None) -> dict[str, Any]:
    """Predict what a corpus of this many documents needs, from the measurements of a rehearsal.

    `memory` (in bytes) and `cores` are those of one machine. The default is this machine. The result can be written as
    JSON.
    """
    law, cores, memory = Law(rates), cores or rates.cores, machine_bytes() if memory is None else memory
    by_part = {part: seconds / HOUR for part, seconds in law.cpu(documents).items()}
    return {
        "documents": documents,
        "passages": round(documents * rates.large.passages / rates.large.documents),
        "vectors": round(law.vectors(documents)),
        "memory": memory,
        "cores": cores,
        "hours": sum(by_part.values()) / cores,
        "core_hours": sum(by_part.values()),
        "core_hours_by_part": by_part,
        "documents_per_core_hour": documents / by_part[EMBEDDING],
        "sqlite_bytes": law.sqlite_bytes(documents),
        "types": [_type_plan(law, name, documents, memory) for name in (FLAT, *rates.trials)],
        "notes": _notes(rates, documents),
        "rates": asdict(rates),
    }


def _type_plan(law: Law, name: str, documents: int, memory: int) -> dict[str, Any]:
    """Plan an index type with the smallest number of shards that fit into memory. A query is sent to all shards."""

    def needed(count: int) -> int:
        return math.ceil(max(law.build_memory(count, name), law.search_memory(count, name)))

    if needed(1) > memory:
        raise Misuse(
            f"`memory={format_bytes(memory)}` is too little for a single vector: the encoder and the fit alone need "
            f"{format_bytes(needed(1))}. Give at least that; more memory means fewer shards."
        )
    largest = bisect_right(range(1, documents + 1), memory, key=needed)
    count = math.ceil(documents / largest)
    each = math.ceil(documents / count)
    vectors, trial = law.vectors(each), law.rates.trials.get(name)
    return {
        "type": name,
        "factory": law.factory(name, vectors),
        "recall": trial.recall if trial else 1.0,
        "settings": dict(trial.settings) if trial else {},
        "index_bytes": count * law.index_bytes(vectors, name),
        "disk_bytes": count * law.disk(each, name),
        "build_core_hours": count * law.build_cpu(vectors, name) / HOUR,
        "shards": {
            "count": count,
            "documents_each": each,
            "build_memory_each": law.build_memory(each, name),
            "search_memory_each": law.search_memory(each, name),
            "query_cpu_ms_all": count * law.query_ms(vectors, name),
        },
    }


def _notes(rates: Rates, documents: int) -> list[str]:
    """Return sentences about the assumptions of the plan and about what was not measured."""
    large = rates.large
    few = f"The sample has fewer than {FEWEST_DOCUMENTS} documents. Give more for a better plan."
    recall = f"Recall was measured on {large.vectors:,} vectors, tuned for 0.95. It is usually lower with more vectors."
    if not any(trial.recall for trial in rates.trials.values()):
        recall = "Recall was not measured: the sample has too few documents."
    return [
        *([few] if rates.sample_documents < FEWEST_DOCUMENTS else []),
        f"The corpus is assumed to be like {rates.sample}.",
        f"Costs were measured on this machine with up to {large.documents:,} documents and scaled "
        f"{max(1.0, documents / large.documents):,.0f} times. GPUs were not measured.",
        f"The encoder takes {rates.encoder_ms:.1f} ms of CPU per query. The table has the CPU of searching all shards.",
        "Memory is per shard, and disk is for all shards. While an index is replaced, the disk holds it twice.",
        "The CPU of an index type other than flat is a rough estimate. With 100,000 vectors, it was 0.5 to 1.7 "
        "times the measured CPU.",
        recall,
    ]


def figure(value: float) -> str:
    """Format a number with three significant digits."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def show(plan: Mapping[str, Any], console: Console) -> None:
    """Print the facts, the table of index types and the notes."""
    rates, encoder, hours = plan["rates"], plan["rates"]["encoder"], plan["hours"]
    clock = f"{figure(hours)} hours" if hours >= 1 else f"{figure(60 * hours)} minutes"
    parts = ", ".join(f"{part} {own / plan['core_hours']:.0%}" for part, own in plan["core_hours_by_part"].items())
    facts = {
        "documents": f"{plan['documents']:,} with {plan['passages']:,} passages",
        "encoder": f"{encoder['name']}, {encoder['dimension']} dimensions",
        "precision": f"{encoder['precision']}: {rates['precision_reason']}",
        "transform": f"{rates['transform']}, {rates['dimension']} dimensions",
        "time": f"{clock} with {plan['cores']} cores; {figure(plan['core_hours'])} core-hours: {parts}",
        "embedding": f"{figure(plan['documents_per_core_hour'])} documents per core-hour",
        "SQLite": format_bytes(plan["sqlite_bytes"]),
    }
    rows = [HEADINGS]
    for one in plan["types"]:
        shards = one["shards"]
        size = [one["index_bytes"], one["disk_bytes"], shards["build_memory_each"], shards["search_memory_each"]]
        index, disk, build, search = map(format_bytes, size)
        name = one["type"] if one["factory"].lower() == one["type"] else f"{one['type']} ({one['factory']})"
        recall = "–" if one["recall"] is None else f"{one['recall']:.3f}"
        costs = map(figure, (shards["query_cpu_ms_all"], one["build_core_hours"]))
        rows.append([f"{name:<{NAME_WIDTH}}", recall, index, disk, f"{shards['count']:,}", build, search, *costs])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    title = f"Index types on machines with {format_bytes(plan['memory'])} of memory:"
    lines = [*(f"{name:<10} {one_line(text)}" for name, text in facts.items()), "", title, *table, ""]
    lines += [f"- {one_line(note)}" for note in plan["notes"]]
    console.print("\n".join(lines), soft_wrap=True)
