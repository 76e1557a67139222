"""Options that several benchmark commands share."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from retriever.cli.bench.options import FOLDER

if TYPE_CHECKING:
    from rich.table import Table

Command = Callable[..., Any]
COLLECTION = click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR")
precision_option = click.option(
    "--precision",
    type=click.Choice(["fp32", "int8"]),
    default="fp32",
    show_default=True,
    help="Precision of the encoder.",
)


def sentence_options(*sizes: int) -> Callable[[Command], Command]:
    """Add the options for the files of sentences, the numbers of documents, and the encoder."""
    parts = (
        click.argument("sentences", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False)),
        click.option(
            "--data",
            type=FOLDER,
            help="Use the sentences in wiki/wiki_sentences_*.txt.gz of this folder instead of SENTENCES.",
        ),
        click.option(
            "--documents",
            multiple=True,
            type=click.IntRange(1),
            default=sizes,
            show_default=True,
            help="Size of the collection; may be repeated.",
        ),
        click.option("--encoder", metavar="NAME|DIR", help="The encoder.  [default: all-MiniLM-L6-v2]"),
    )

    def decorate(command: Command) -> Command:
        for part in reversed(parts):
            command = part(command)
        return command

    return decorate


class Figures(Protocol):
    """The figures of a benchmark whose results are not stored as rows."""

    def to_json(self) -> dict[str, Any]: ...
    def table(self) -> "Table": ...


def figures_options(command: Command) -> Command:
    as_json = click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON instead of a table.")
    return click.option("--out", type=FOLDER, help="Folder for results.json.")(as_json(command))


def show_figures(figures: Figures, out: Path | None, as_json: bool) -> None:
    """Print the figures. If a folder is given, also write them to results.json in it."""
    from retriever.evaluate.report.tables import show

    text = json.dumps(figures.to_json(), indent=1)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.json").write_text(text + "\n", encoding="utf-8")
    if as_json:
        click.echo(text)
    else:
        show(figures.table())
