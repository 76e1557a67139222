"""A plan as people read it: tables for the terminal."""

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from retriever.cli import display
from retriever.plan.planning import Plan, TypePlan
from retriever.terminal import one_line

WIDEST = 1000
UNITS = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"))


def bytes_of(count: float) -> str:
    """Three digits and a unit; a plan has no more."""
    for unit, name in UNITS:
        if count >= unit:
            return f"{count / unit:.3g} {name}" if count < 999.5 * unit else f"{count / unit:,.0f} {name}"
    return f"{count:.0f} bytes"


def figure(value: float) -> str:
    """Three digits."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def hours_of(hours: float) -> str:
    """Seconds, minutes, hours or days, whichever reads best."""
    if hours < 1 / 60:
        return f"{hours * 3600:.3g} s"
    if hours < 1:
        return f"{hours * 60:.3g} min"
    return f"{hours:,.3g} hours" if hours < 48 else f"{figure(hours)} hours ({figure(hours / 24)} days)"


def show(plan: Plan) -> None:
    """All of a plan."""
    _facts(plan)
    display.out.print()
    _print(_types(plan))
    display.out.print(
        "Disk is of SQLite and index, all shards together; an index that is published again is there twice meanwhile. "
        "Memory is of one shard's machine. A query's ms are of CPU, in all shards, without the "
        f"{plan.encoder_ms:.1f} ms of the encoder. Recall@10 is the sample's.",
        style="dim",
    )
    display.out.print()
    _print(_drivers(plan))
    display.out.print()
    for note in plan.notes:
        display.out.print(f"- {one_line(note)}.")


def _facts(plan: Plan) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    rates, encoder = plan.rates, plan.rates.encoder
    table.add_row("documents", f"{plan.documents:,}: {plan.passages:,} passages, {plan.tokens:,} tokens")
    table.add_row("like", one_line(rates.sample.what))
    table.add_row(
        "encoder",
        f"{one_line(encoder['name'])}, {encoder['dimension']} dimensions, at most {encoder['max_length']} tokens",
    )
    table.add_row("precision", one_line(f"{plan.precision}: {rates.precision_reason}"))
    speeds = ", ".join(f"{name} {rate:,.0f}" for name, rate in plan.documents_a_core_hour.items())
    table.add_row("embedding", f"documents a core-hour: {speeds}")
    table.add_row("", f"GPU: {plan.gpu}")
    cores = display.plural(plan.cores, "core")
    table.add_row("hours", f"{hours_of(plan.hours)} on one machine with {cores}: {figure(plan.core_hours)} core-hours")
    table.add_row("SQLite", ", ".join(f"{part} {bytes_of(size)}" for part, size in plan.sqlite_bytes.items()))
    table.add_row("", f"{bytes_of(sum(plan.sqlite_bytes.values()))} in all")
    display.out.print(table)


def _types(plan: Plan) -> Table:
    title = f"Index types at recall {plan.recall:g}, machines of {bytes_of(plan.memory)}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("type")
    for name in ("recall", "index", "disk", "shards", "to build", "to search", "ms a query", "core-hours to build"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in plan.types:
        table.add_row(*_cells(one), style="" if one.reaches else "dim")
    return table


def _cells(one: TypePlan) -> tuple[str | Text, ...]:
    recall = "exact" if one.type == "flat" else "–" if one.recall is None else f"{one.recall:.3f}"
    missed = "" if one.reaches or one.recall is None else " (too low)"
    return (
        Text(f"{one.type} ({one.factory})" if one.factory.lower() != one.type else one.type),
        recall + missed,
        bytes_of(one.index_bytes),
        bytes_of(one.disk_bytes),
        f"{one.shards.count:,}",
        bytes_of(one.shards.build_memory_each),
        bytes_of(one.shards.search_memory_each),
        figure(one.shards.query_cpu_ms_all),
        figure(one.build_core_hours),
    )


def _drivers(plan: Plan) -> Table:
    table = Table(title="What drives the cost", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("of")
    table.add_column("part")
    table.add_column("share", justify="right")
    table.add_column("lower by", overflow="fold")
    before = ""
    for driver in plan.drivers:
        table.add_row("" if driver.cost == before else driver.cost, driver.part, f"{driver.share:.0%}", driver.lower)
        before = driver.cost
    return table


def _print(table: Table) -> None:
    """Whole: where there is no terminal whose width could be known, as wide as it is."""
    console = display.out
    console.print(table.title, style="bold")
    table.title = None
    if console.is_terminal:
        console.print(table)
        return
    width = Measurement.get(console, console.options.update(max_width=WIDEST), table).maximum
    Console(file=console.file, width=width, highlight=False, markup=False, emoji=False).print(table)
