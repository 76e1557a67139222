"""What few bytes keep, as tables in the terminal: a line an index type, a column a space; and the least that does."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from benchmarks.quantization.benchmark import ANY, RECALL, TARGET, Least
from benchmarks.quantization.index_cells import BYTES, variants
from retriever.cli import display
from retriever.evaluate.rankings import MAIN
from retriever.evaluate.report.tables import NOTHING, show
from retriever.evaluate.results import RAW, Row

RAW_NAME = "raw"
MAIN_REFINE = 10
FAIRNESS = (
    "Recall is against exact search in each space itself: it says what the codes lose, not which space is worth "
    "searching. nDCG@10 of a task says that. Bytes are of the whole file, divided by its vectors; re-scoring reads the "
    "vectors that the collection keeps anyway."
)


class Group(NamedTuple):
    """What one table is of."""

    dataset: str
    encoder: str
    pooling: str

    def __str__(self) -> str:
        return f"{self.dataset}; {self.encoder}, {self.pooling}"


def groups(rows: Sequence[Row]) -> dict[Group, list[Row]]:
    found: dict[Group, list[Row]] = {}
    for row in rows:
        found.setdefault(Group(row.dataset, row.encoder, row.pooling), []).append(row)
    return found


def space_name(transform: str) -> str:
    return RAW_NAME if transform == RAW else transform


def variant_name(metric: str) -> str:
    """Which candidates a figure is of, for people."""
    factor = re.search(r"_refine(\d+)$", metric)
    return f"best {factor[1]} × 10 re-scored" if factor else "codes alone"


def shown_refine(refine: Sequence[int]) -> list[int]:
    """The refinement that stands for all where there is room for one only."""
    return [MAIN_REFINE if MAIN_REFINE in refine else refine[0]] if refine else []


def show_quantization(
    recall: Sequence[Row], tasks: Sequence[Row], least: Sequence[Least], refine: Sequence[int]
) -> None:
    for group, own in groups(recall).items():
        for metric in variants(RECALL, refine):
            show(types_table(own, metric, f"recall@10 × 100 of {group}: {variant_name(metric)}, 95 % interval"))
        found = [one for one in least if Group(one.run.dataset, one.run.encoder, one.run.pooling) == group]
        show(least_table(found, f"fewest bytes a vector with recall@10 of {TARGET / 100:g}, {group}"))
        for sentence in headlines(found):
            display.out.print(sentence, soft_wrap=True)
    for group, own in groups(tasks).items():
        for metric in variants(MAIN, shown_refine(refine)):
            show(types_table(own, metric, f"nDCG@10 × 100 of {group}: {variant_name(metric)}, 95 % interval"))
    display.out.print(FAIRNESS, soft_wrap=True)


def types_table(rows: Sequence[Row], metric: str, title: str) -> Table:
    """Few bytes first; the best space of each line in bold."""
    values = {(row.split, row.transform, row.metric): row.value for row in rows}
    spaces = list(dict.fromkeys(row.transform for row in rows))
    sizes: dict[str, list[float]] = {}
    for row in rows:
        if row.metric == BYTES:
            sizes.setdefault(row.split, []).append(row.value)
    table = Table(title=title, box=None, padding=(0, 2, 0, 0))
    table.add_column("index type")
    for name in ("bytes", *map(space_name, spaces)):
        table.add_column(name, justify="right", no_wrap=True)
    for index_type in sorted(sizes, key=lambda name: min(sizes[name])):
        own = [values.get((index_type, space, metric)) for space in spaces]
        best = max(round(value, 1) for value in own if value is not None)
        cells = []
        for space, value in zip(spaces, own, strict=True):
            if value is None:
                cells.append(Text(NOTHING))
                continue
            low, high = (values[index_type, space, f"{metric}_{end}"] for end in ("low", "high"))
            style = "bold" if round(value, 1) == best else ""
            cells.append(Text(f"{value:.1f} ({low:.1f}–{high:.1f})", style=style))
        table.add_row(Text(index_type), f"{min(sizes[index_type]):,.0f}", *cells)
    return table


def least_table(found: Sequence[Least], title: str) -> Table:
    spaces = list(dict.fromkeys(one.run.transform for one in found))
    table = Table(title=title, box=None, padding=(0, 2, 0, 0))
    for name in ("codes", "candidates", *map(space_name, spaces)):
        table.add_column(name, no_wrap=True)
    for kind, metric in dict.fromkeys((one.kind, one.metric) for one in found):
        own = {one.run.transform: one for one in found if (one.kind, one.metric) == (kind, metric)}
        cells = [_least(own.get(space)) for space in spaces]
        table.add_row(kind, variant_name(metric), *map(Text, cells))
    return table


def _least(one: Least | None) -> str:
    return f"{one.bytes:,.0f} ({one.index_type})" if one and one.bytes is not None else NOTHING


def headlines(found: Sequence[Least]) -> list[str]:
    """For each transform and each way to search, its fewest bytes beside raw space's, whatever the index type."""
    of_any = {(one.run.transform, one.metric): one for one in found if one.kind == ANY}
    sentences = []
    for (transform, metric), one in of_any.items():
        raw = of_any.get((RAW, metric))
        if transform == RAW or raw is None:
            continue
        told = f"{variant_name(metric)}: an index in {transform} space "
        if one.bytes is None:
            told += f"reaches recall@10 of {TARGET / 100:g} with no type that was measured"
        else:
            told += f"reaches recall@10 of {TARGET / 100:g} in {one.bytes:,.0f} bytes a vector ({one.index_type})"
        if raw.bytes is None:
            told += ", raw space with none"
        else:
            told += f", raw space needs {raw.bytes:,.0f} ({raw.index_type})"
            told += f": {one.bytes / raw.bytes:.2f} times as many" if one.bytes is not None else ""
        sentences.append(f"{told}.")
    return sentences
