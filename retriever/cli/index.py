"""Commands that make and change a collection: index, add, delete, rebuild."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retriever.cli.errors import Failure
from retriever.cli.options import (
    device_option,
    encoder_option,
    index_option,
    index_type_options,
    model_options,
    prompt_options,
    source_options,
    stops_cleanly,
    transform_option,
)

if TYPE_CHECKING:
    from retriever.corpus import Corpus
    from retriever.corpus.source import Documents
    from retriever.retriever import Retriever


@click.command()
@source_options()
@index_option
@model_options
@prompt_options
@transform_option
@index_type_options
@click.option(
    "--batch-tokens", type=int, help="Number of tokens that are encoded at once.  [default: 512, or 16384 on a GPU]"
)
@device_option
@click.option("--prune", is_flag=True, help="Delete documents that are no longer in the sources.")
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    help="Where documents are read, embedded and transformed: local (in this process) or ray (on a Ray cluster).",
)
@click.option(
    "--address",
    metavar="ADDRESS",
    help="With --engine ray: the address of the cluster (auto, HOST:PORT or ray://HOST:PORT).  [default: start a "
    "cluster on this machine for this run]",
)
@stops_cleanly
def index(corpus: "Corpus", index: str | Path, **options: Any) -> None:
    """Make a collection from text, or bring it up to date.

    SOURCE is a .jsonl, .csv, .tsv, .parquet, .txt or .md file, which may be gzipped (.gz). SOURCE can also be a folder
    of such files, a BEIR folder, or - for standard input. Only new and changed documents are embedded. After an
    interruption, run the same command again to continue.
    """
    with built(corpus, index, **options):
        pass


@contextmanager
def built(documents: "Documents", index: str | Path, **options: Any) -> Iterator["Retriever"]:
    """Build a collection, show a report, and yield the open collection."""
    from retriever.cli.display import console
    from retriever.cli.display.reports import show_built
    from retriever.encoder.prompts import Prompts, missing_prompts
    from retriever.retriever import Retriever

    began = time.monotonic()
    with console.progress_bar() as progress:
        retriever = Retriever.build(documents, index, progress=progress, **options)
    with retriever:
        show_built(retriever, index, time.monotonic() - began, bool(options.get("transform")))
        identity = retriever.encoder().identity
        prompts = Prompts(identity.query_prompt, identity.document_prompt)
        if options.get("query_prompt") is None and (hint := missing_prompts(identity.name, prompts)):
            console.warn(f"Hint: {hint}.")
        yield retriever


@click.command()
@source_options()
@index_option
@encoder_option
@device_option
@stops_cleanly
def add(corpus: "Corpus", index: str | Path, on_error: Any, **options: Any) -> None:
    """Add documents to a collection. Searches find them at once."""
    from retriever.cli.display import console
    from retriever.cli.display.reports import show_ingest

    with console.opened(index, **options) as retriever:
        report = retriever.add(corpus, on_error=on_error)
    show_ingest(report, index)


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@index_option
@stops_cleanly
def delete(ids: tuple[str, ...], index: str | Path) -> None:
    """Delete documents by id."""
    from retriever.cli.display import console
    from retriever.terminal import plural

    with console.opened(index) as retriever:
        deleted = retriever.delete(ids)
        left = len(retriever)
    console.out.print(f"Deleted {plural(len(deleted), 'document')}; {left:,} left.")
    if missing := [id_ for id_ in dict.fromkeys(ids) if id_ not in deleted]:
        raise Failure(f"not in the collection: {', '.join(missing)}")


@click.command()
@index_option
@transform_option
@index_type_options
@encoder_option
@device_option
@stops_cleanly
def rebuild(index: str | Path, encoder: str | None, device: str, **options: Any) -> None:
    """Fit the transform again and rebuild the index.

    The stored vectors are used, so no document is embedded again.
    """
    from retriever.cli.display import console
    from retriever.cli.display.reports import show_info

    with console.opened(index, encoder=encoder, device=device) as retriever:
        retriever.rebuild(**options)
        info = retriever.info()
    show_info(info)
