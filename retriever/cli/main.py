"""The `retriever` command: the group of all commands. It turns errors into a message and an exit code.

The exit code is 2 for wrong usage, 1 for a failure, and 128 plus the number of the signal that ended the command.

Each command parses its options, calls the library and prints the result. Heavy imports are inside the commands, so
that `retriever --help` starts quickly.
"""

import contextlib
import errno
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import click

from retriever.cli import config, evaluate, index, info, maintain, plan, search, serve, tune
from retriever.cli.bench import bench
from retriever.cli.display.errors import (
    CONTINUABLE,
    KEPT,
    Failure,
    database_message,
    discard_output,
    os_message,
    with_flags,
)
from retriever.cli.display.streams import prepare_streams
from retriever.errors import FitWarning, RetrieverError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}
INTERRUPTED = 130


class Cli(click.Group):
    """A group of commands that prints expected errors without a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        prepare_streams()
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # raised when click itself cannot write, e.g. the help
            discard_output()
            with contextlib.suppress(OSError):
                click.echo(f"Error: {os_message(error, None)}", err=True)
            raise SystemExit(1) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if not error.message.startswith("Got unexpected extra argument"):
                raise
            raise click.UsageError(f"{error.message}. Name the collection with -i.", error.ctx) from None
        except RetrieverError as error:
            message = with_flags(str(error), self.commands.get(ctx.invoked_subcommand or ""))
            raise Failure(message, error.exit_code) from error
        except sqlite3.DatabaseError as error:
            raise Failure(database_message(error, ctx.invoked_subcommand)) from error
        except BrokenPipeError:  # the program that reads our output has ended, e.g. `head`
            discard_output()
            raise SystemExit(1) from None
        except OSError as error:
            command = None if discard_output(probe=error.errno == errno.ENOSPC) else ctx.invoked_subcommand
            raise Failure(os_message(error, command)) from error
        except KeyboardInterrupt as error:
            kept = f" {KEPT}" if ctx.invoked_subcommand in CONTINUABLE else ""
            click.echo(f"\nInterrupted.{kept}", err=True)
            raise SystemExit(getattr(error, "exit_code", INTERRUPTED)) from None


@click.group(cls=Cli, context_settings=CONTEXT)
@click.version_option(package_name="flow-retriever", prog_name="retriever")
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="RETRIEVER_CONFIG",
    metavar="FILE",
    help="A TOML file with the values of options, one table for each command.  "
    "[default: RETRIEVER_CONFIG, or retriever.toml in the current folder]",
)
@click.pass_context
def main(ctx: click.Context, config_file: Path | None) -> None:
    """Search your own text by meaning, with any BERT and no labels.

    \b
    retriever index notes/             make a collection
    retriever search "a question"      search it
    """
    ctx.default_map = config.default_map(config_file, main)
    warnings.simplefilter("ignore", FitWarning)  # the commands print the notes of the transform themselves


for command in (
    *(index.index, index.add, index.delete, index.rebuild, index.demo),
    *(search.search, search.similar, evaluate.evaluate),
    *(info.list_, info.info, info.card, info.export, plan.plan),
    *(maintain.verify, maintain.copy, maintain.salvage),
    *(serve.serve, serve.mcp, bench, tune.tune, config.config),
):
    main.add_command(command)
config.add_variables(main)
