"""The `retriever` command: the group of all commands.

Each command parses its options, calls the library and prints the result. Heavy imports are inside the commands, so
that `retriever --help` starts quickly.
"""

import warnings

import click

from retriever.cli import demo, index, info, maintain, plan, search, serve
from retriever.cli.bench import bench
from retriever.cli.errors import Cli
from retriever.errors import FitWarning

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(cls=Cli, context_settings=CONTEXT)
@click.version_option(package_name="flow-retriever", prog_name="retriever")
def main() -> None:
    """Search your own text by meaning, with any BERT and no labels.

    \b
    retriever index notes/ --index collections/notes    make a collection
    retriever search --index collections/notes          search it
    """
    warnings.simplefilter("ignore", FitWarning)  # the commands print the notes of the transform themselves


for command in (
    *(index.index, index.add, index.delete, index.rebuild, demo.demo),
    *(search.search, search.similar),
    *(info.info, info.card, info.export, plan.plan),
    *(maintain.verify, maintain.copy, maintain.salvage),
    *(serve.serve, serve.mcp, bench),
):
    main.add_command(command)
