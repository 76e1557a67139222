"""`retriever bench serve`: what serving costs and bears. Parses, calls, prints."""

import json
from pathlib import Path

import click

from benchmarks.command_parts import FOLDER


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR")
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=30,
    show_default=True,
    help="How long full load lasts, with the index published again in the middle; 0 leaves it out.",
)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Turns of API, one client, many.")
@click.option("--out", type=FOLDER, help="Folder for results.json.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON on standard output, no table.")
def serve(folder: Path, seconds: float, rounds: int, out: Path | None, as_json: bool) -> None:
    """HTTP beside the Python API, one client beside sixteen, and long full load, over a copy of a collection.

    DIR is the collection; its own first words are the queries.
    """
    from benchmarks.serving import measure
    from benchmarks.tables import show
    from retriever import display

    with display.progress_bar() as progress:
        figures = measure(folder, seconds, rounds=rounds, progress=progress)
    written = json.dumps(figures.to_json(), indent=1)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.json").write_text(written + "\n", encoding="utf-8")
    if as_json:
        click.echo(written)
    else:
        show(figures.table())
