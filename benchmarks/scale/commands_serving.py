"""`python -m benchmarks serve`: what serving costs and bears. Parses, calls, prints."""

from pathlib import Path

import click

from retriever.cli.bench_options import figures_options, tell_figures


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
@figures_options
def serve(folder: Path, seconds: float, rounds: int, out: Path | None, as_json: bool) -> None:
    """HTTP beside the Python API, one client beside sixteen, and long full load, over a copy of a collection.

    DIR is the collection; its own first words are the queries.
    """
    from benchmarks.scale.serving import measure
    from retriever.cli import display

    with display.progress_bar() as progress:
        figures = measure(folder, seconds, rounds=rounds, progress=progress)
    tell_figures(figures, out, as_json)
