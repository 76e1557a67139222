"""The command `retriever demo`."""

from pathlib import Path

import click

from retriever.cli.index import built
from retriever.cli.options import device_option, stops_cleanly

QUESTIONS = (
    "run a function every few seconds in the background",
    "remove duplicates from a list but keep the order",
    "remember the results of a slow function",
    "how similar are two pieces of text",
    "make a password that nobody can guess",
)


@click.command()
@click.option(
    "--index",
    type=click.Path(path_type=Path),
    default=Path("collections/demo"),
    help="Folder of the demo's collection.",
)
@device_option
@stops_cleanly
def demo(index: Path, device: str) -> None:
    """Index Python's own documentation and search it."""
    from retriever.cli.display import console
    from retriever.corpus.python_docs import stdlib_documents

    console.out.print("Indexing the documentation of Python's standard library…")
    with built(list(stdlib_documents()), index, max_length=128, device=device) as retriever:
        for question, hits in zip(QUESTIONS, retriever.search_many(QUESTIONS, 3, highlight=True), strict=True):
            console.out.print(f"\n{question}", style="bold green")
            console.show_hits(hits)
    console.out.print(f"\nNow search it yourself: {console.command('search', index)}", style="bold", soft_wrap=True)
