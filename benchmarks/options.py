"""Options that several benchmark commands share, and the output of benchmarks without rows."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from retriever.cli.bench.options import FOLDER, json_option
from retriever.cli.options import Command, choice, options

if TYPE_CHECKING:
    from rich.table import Table

COLLECTION = click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR")
precision_option = choice("--precision", ("fp32", "int8"), "Precision of the encoder.", default="fp32")
cache_option = click.option(
    "--cache", type=FOLDER, help="Cache folder for raw vectors.  [default: ~/.cache/flow-retriever/vectors]"
)
ROWS = "Folder for results.json and plots. After an interruption, the same command continues there."
rows_options = options(click.option("--out", type=FOLDER, help=ROWS), json_option)
figures_options = options(
    click.option("--out", type=FOLDER, help="Folder for results.json."),
    click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON instead of a table."),
)


def sentence_options(*sizes: int) -> Callable[[Command], Command]:
    """Add the options for the files of sentences, the numbers of documents, and the encoder."""
    files = "Use the sentences in wiki/wiki_sentences_*.txt.gz of this folder instead of SENTENCES."
    many: dict[str, Any] = {"multiple": True, "help": "Size of the collection; may be repeated."}
    return options(
        click.argument("sentences", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False)),
        click.option("--data", type=FOLDER, help=files),
        click.option("--documents", type=click.IntRange(1), default=sizes, **many),
        click.option("--encoder", metavar="NAME|DIR", help="The encoder.  [default: all-MiniLM-L6-v2]"),
    )


class Figures:
    """A dataclass of figures that are not stored as rows. The properties named in `derived` are written too."""

    derived: ClassVar[tuple[str, ...]] = ()

    def table(self) -> "Table":
        raise NotImplementedError

    def show(self, out: Path | None, as_json: bool) -> None:
        """Print the figures. If a folder is given, also write them to results.json in it."""
        from retriever.evaluate.report.tables import show

        found = asdict(self) | {name: getattr(self, name) for name in self.derived}  # type: ignore[call-overload]
        text = json.dumps(found, indent=1)
        if out:
            out.mkdir(parents=True, exist_ok=True)
            (out / "results.json").write_text(text + "\n", encoding="utf-8")
        if as_json:
            click.echo(text)
        else:
            show(self.table())
