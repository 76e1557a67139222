"""Commands that show or export the contents of collections: list, info, card, export."""

import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from retriever.cli.options import (
    description_options,
    echo_json,
    encoder_option,
    folder_option,
    index_option,
    json_option,
    stops_cleanly,
)
from retriever.cli.places import HOME


@click.command("list")
@click.argument("folder", type=click.Path(path_type=Path), default=HOME)
@json_option
def list_(folder: Path, as_json: bool) -> None:
    """List the collections in a folder. Without FOLDER, list those in collections/."""
    from indexes.folder.collection import Collection
    from indexes.places import collections_in
    from retriever.cli.display.reports import show_list
    from retriever.errors import RetrieverError
    from retriever.info import summary
    from retriever.retriever import Retriever

    listed: list[dict[str, Any]] = []
    for found in collections_in(folder):
        facts: dict[str, Any] = {"folder": str(found), "changed": Collection.changed(found)}
        try:
            with Retriever.open(found) as retriever:
                facts |= asdict(summary(retriever.collection)) | {"bytes": sum(retriever.local.sizes().values())}
        except (RetrieverError, sqlite3.DatabaseError) as error:
            facts["problem"] = str(error)
        listed.append(facts)
    if as_json:
        echo_json(listed)
    else:
        show_list(listed, folder)


@click.command()
@index_option
@description_options
@json_option
def info(index: str | Path, title: str | None, description: str | None, as_json: bool) -> None:
    """Show what a collection holds and how it was made.

    With --title or --description, change them first. An empty text removes them.
    """
    from retriever.cli.display.reports import show_info
    from retriever.retriever import Retriever

    with Retriever.open(index) as retriever:
        if title is not None or description is not None:
            retriever.describe(title=title, description=description)
        found = retriever.info()
    if as_json:
        echo_json(found)
    else:
        show_info(found)


@click.command()
@folder_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write, .html or .md.  [default: NAME-card.html in the current folder]",
)
def card(folder: Path, out: Path | None) -> None:
    """Describe a collection and its measurements in one file."""
    from retriever.card.rendering import check_extension, write_card
    from retriever.cli.display import console
    from retriever.retriever import Retriever

    if out is not None:
        check_extension(out)
    with Retriever.open(folder) as retriever:
        found = retriever.card()
    path = out or Path(f"{found.name}-card.html")
    write_card(found, path)
    console.show_files([path])


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@index_option
@click.option(
    "--format",
    "format_",
    type=click.Choice(["parquet", "npy", "sentence-transformers"]),
    default="parquet",
    help="parquet: one file. npy: a folder with passages.jsonl, raw.npy and vectors.npy. sentence-transformers: a "
    "model folder with the encoder and the transform, without documents.",
)
@encoder_option
@stops_cleanly
def export(target: Path, index: str | Path, format_: Any, encoder: str | None) -> None:
    """Export documents and vectors, or the model.

    With parquet or npy, TARGET receives every passage with its document, raw vector and transformed vector. With
    sentence-transformers, TARGET receives the model that makes the vectors.
    """
    from retriever.cli.display import console
    from retriever.terminal import one_line, size

    with console.opened(index, encoder=encoder) as retriever:
        files = retriever.export(target, format_)
    if format_ == "sentence-transformers":
        total = size(sum(file.stat().st_size for file in files))
        load = one_line(f"SentenceTransformer({str(target)!r})")
        console.say(f"{one_line(str(target))}  {total}. Load it with: {load}")
    else:
        console.show_files(files)
