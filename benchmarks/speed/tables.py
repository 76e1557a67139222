"""The figures of `python -m benchmarks speed` as tables: each system's, and in brackets how many times ours it is."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from rich.table import Table
from rich.text import Text

from benchmarks.speed.benchmark import COLD, ENCODING, INGEST_TEXT, INGEST_VECTORS, QUERY_TEXT, QUERY_VECTORS
from benchmarks.speed.encoding import SENTENCE_TRANSFORMERS
from benchmarks.speed.profile import STAGES, WAITING
from benchmarks.speed.rivals import OURS
from retriever.cli.display import size
from retriever.evaluate.results import Row
from retriever.evaluate.runs import Findings

NOTHING = "–"
Format = Callable[[float], str]
Figures = dict[tuple[int, str, str, str], float]


def seconds(value: float) -> str:
    return f"{value:,.1f} s" if value >= 10 else f"{value:.2f} s"


def milliseconds(value: float) -> str:
    return f"{value:,.{1 if abs(value) >= 10 else 2}f} ms" if value < 1000 else seconds(value / 1000)


def times(ratio: float) -> str:
    return f"{ratio:.2f}×" if ratio >= 0.1 else f"{ratio:.2g}×"


# Of each task its title, and of each figure the head of its column, how it is written, and whether it is compared.
TASKS: dict[str, tuple[str, dict[str, tuple[str, Format, bool]]]] = {
    INGEST_VECTORS: (
        "Ingestion, vectors given",
        {
            "cpu_seconds": ("CPU", seconds, True),
            "wall_seconds": ("wall", seconds, False),
            "peak_bytes": ("peak memory", size, True),
            "disk_bytes": ("on disk", size, True),
        },
    ),
    INGEST_TEXT: (
        "Ingestion, each by its own encoder",
        {
            "cpu_seconds": ("CPU", seconds, True),
            "wall_seconds": ("wall", seconds, False),
            "peak_bytes": ("peak memory", size, True),
            "again_cpu_seconds": ("CPU again, nothing changed", seconds, False),
        },
    ),
    QUERY_VECTORS: (
        "Warm queries, vectors given: everything but the encoder",
        {
            "recall_at_10": ("recall@10", "{:.3f}".format, False),
            "p50_ms": ("p50", milliseconds, True),
            "p95_ms": ("p95", milliseconds, False),
            "p99_ms": ("p99", milliseconds, False),
            "cpu_ms": ("CPU a query", milliseconds, True),
            "batch_per_second": ("at once, per s", "{:,.0f}".format, True),
            "peak_bytes": ("peak memory", size, True),
        },
    ),
    QUERY_TEXT: (
        "Warm queries, text",
        {
            "p50_ms": ("p50", milliseconds, True),
            "p95_ms": ("p95", milliseconds, False),
            "p99_ms": ("p99", milliseconds, False),
            "encoder_p50_ms": ("its encoder alone", milliseconds, False),
            "rest_p50_ms": ("the rest", milliseconds, False),
            "cpu_ms": ("CPU a query", milliseconds, True),
            "batch_per_second": ("at once, per s", "{:,.0f}".format, True),
            "peak_bytes": ("peak memory", size, True),
        },
    ),
    COLD: (
        "Cold search, from process start to printed hits, median",
        {"cpu_seconds": ("CPU", seconds, True), "wall_seconds": ("wall", seconds, True)},
    ),
}
GROWING = {
    (INGEST_VECTORS, "cpu_seconds"): "ingestion CPU, vectors given",
    (INGEST_TEXT, "cpu_seconds"): "ingestion CPU, own encoder",
    (QUERY_VECTORS, "p50_ms"): "query p50",
    (INGEST_VECTORS, "disk_bytes"): "on disk",
}
GROWING_MEMORY = ((INGEST_VECTORS, "peak_bytes"), (INGEST_TEXT, "peak_bytes"))


def speed_tables(rows: Sequence[Row]) -> Iterator[Table]:
    """Encoding, then task by task and size by size, then how each grows."""
    found = figures(rows)
    counts = sorted({count for count, task, _, _ in found if task in TASKS})
    yield encoding_table(found)
    for task, (title, columns) in TASKS.items():
        for count in counts:
            table = _task_table(found, task, count, f"{title}, {count:,} documents", columns)
            if table.row_count:
                yield table
    for smaller, larger in pairwise(counts):
        yield growth_table(found, smaller, larger)


def figures(rows: Sequence[Row]) -> Figures:
    """By number of documents, task, system and metric."""
    return {(int(row.dataset), row.split, row.transform, row.metric): row.value for row in rows}


def systems_of(found: Figures, task: str) -> list[str]:
    return list(dict.fromkeys(system for _, own, system, _ in found if own == task))


def encoding_table(found: Figures) -> Table:
    """Sentences a CPU second; the last column against sentence-transformers."""
    count = next((n for n, task, _, _ in found if task == ENCODING), 0)
    heads = ["CPU", "wall", "sentences a CPU second", "× sentence-transformers", "cosine with it"]
    table = _table(f"Encoding {count:,} sentences in turns", heads)
    base = found.get((count, ENCODING, SENTENCE_TRANSFORMERS, "cpu_seconds"))
    for system in systems_of(found, ENCODING):
        cpu, wall, cosine = (found[count, ENCODING, system, m] for m in ("cpu_seconds", "wall_seconds", "cosine"))
        faster = f"{base / cpu:.2f}" if base else NOTHING
        table.add_row(Text(system), seconds(cpu), seconds(wall), f"{count / cpu:,.0f}", faster, f"{cosine:.4f}")
    return table


def _task_table(
    found: Figures, task: str, count: int, title: str, columns: dict[str, tuple[str, Format, bool]]
) -> Table:
    shown = {metric: column for metric, column in columns.items() if any(k[1::2] == (task, metric) for k in found)}
    table = _table(title, [head for head, _, _ in shown.values()])
    for system in systems_of(found, task):
        cells = []
        for metric, (_, written, compared) in shown.items():
            value, ours = (found.get((count, task, name, metric)) for name in (system, OURS))
            told = NOTHING if value is None else written(value)
            ratio = compared and system != OURS and value is not None and ours
            cells.append(f"{told} ({times(value / ours)})" if ratio and value is not None and ours else told)
        if set(cells) != {NOTHING}:
            table.add_row(Text(system), *cells)
    return table


def growth_table(found: Figures, smaller: int, larger: int) -> Table:
    """How many times more, and how much more memory, for so many times the documents."""
    title = f"From {smaller:,} to {larger:,} documents, {larger / smaller:.3g} times as many"
    plain = [next(v for k, v in found.items() if k[::3] == (n, "vector_bytes")) for n in (smaller, larger)]
    heads = [*GROWING.values(), *(f"peak memory, {task}" for task, _ in GROWING_MEMORY)]
    table = _table(f"{title}; their vectors in single precision: {_more(plain[1] - plain[0])}", heads)
    for system in systems_of(found, INGEST_VECTORS):
        pairs = [(found.get((smaller, t, system, m)), found.get((larger, t, system, m))) for t, m in GROWING]
        peaks = [(found.get((smaller, t, system, m)), found.get((larger, t, system, m))) for t, m in GROWING_MEMORY]
        cells = [f"{after / before:.2f}×" if before and after else NOTHING for before, after in pairs]
        cells += [_more(after - before) if before and after else NOTHING for before, after in peaks]
        table.add_row(Text(system), *cells)
    return table


def _more(value: float) -> str:
    return f"{'+' if value >= 0 else '−'}{size(abs(value))}"


def profile_tables(findings: Findings) -> Iterator[Table]:
    """For each size the stages by thread, then the functions that took most."""
    for run in findings.runs:
        found = findings.provenance(run)["details"]
        values = {row.metric: row.value for row in findings.plan.results.rows([run])}
        threads = found["threads"]
        title = (
            f"{int(run.dataset):,} documents: share of {values['wall_seconds']:,.1f} s in which each stage ran; "
            f"no encoder ran in {values['without_encoder_share']:.1%}"
        )
        table = _table(title, ["all", *threads], first="stage")
        for stage in STAGES:
            of_all = NOTHING if stage == WAITING else f"{found['shares'][stage]:.1%}"
            own = [f"{shares[stage]:.1%}" if stage in shares else NOTHING for shares in threads.values()]
            if {of_all, *own} - {NOTHING, "0.0%"}:
                table.add_row(stage, of_all, *own)
        yield table
        table = _table("Functions", ["stage", "share"], first="function")
        for top in found["functions"]:
            table.add_row(Text(top["function"]), top["stage"], f"{top['share']:.1%}")
        yield table


def _table(title: str, columns: Sequence[str], first: str = "") -> Table:
    table = Table(title=title, box=None, padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    return table
