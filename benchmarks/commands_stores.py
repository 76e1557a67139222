"""`retriever bench stores`: whether a collection is the same in Milvus. Parses, calls, prints."""

import json
from pathlib import Path

import click

from benchmarks.command_parts import FOLDER


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR")
@click.option("--queries", type=click.IntRange(1), default=1000, show_default=True, help="How many to compare by.")
@click.option(
    "--store",
    metavar="milvus:URI",
    help="Where to copy it to; what is there is kept.  [default: Milvus Lite in a temporary folder]",
)
@click.option("--out", type=FOLDER, help="Folder for results.json.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON on standard output, no table.")
def stores(folder: Path, queries: int, store: str | None, out: Path | None, as_json: bool) -> None:
    """Copy a collection to Milvus and back, and compare contents and the ten best hits of many queries.

    DIR is the collection; its own first words are the queries.
    """
    from benchmarks.stores import measure
    from benchmarks.tables import show
    from retriever import display

    with display.progress_bar() as progress:
        figures = measure(folder, queries, store=store, progress=progress)
    written = json.dumps(figures.to_json(), indent=1)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.json").write_text(written + "\n", encoding="utf-8")
    if as_json:
        click.echo(written)
    else:
        show(figures.table())
