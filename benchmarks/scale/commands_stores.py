"""`python -m benchmarks stores`: whether a collection is the same in Milvus. Parses, calls, prints."""

from pathlib import Path

import click

from retriever.cli.bench_options import figures_options, tell_figures


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR")
@click.option("--queries", type=click.IntRange(1), default=1000, show_default=True, help="How many to compare by.")
@click.option(
    "--store",
    metavar="milvus:URI",
    help="Where to copy it to; what is there is kept.  [default: Milvus Lite in a temporary folder]",
)
@figures_options
def stores(folder: Path, queries: int, store: str | None, out: Path | None, as_json: bool) -> None:
    """Copy a collection to Milvus and back, and compare contents and the ten best hits of many queries.

    DIR is the collection; its own first words are the queries.
    """
    from benchmarks.scale.stores import measure
    from retriever.cli import display

    with display.progress_bar() as progress:
        figures = measure(folder, queries, store=store, progress=progress)
    tell_figures(figures, out, as_json)
