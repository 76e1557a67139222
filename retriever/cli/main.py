"""The `retriever` command: the group of all commands. It turns errors into a message and an exit code.

The exit code is 2 for wrong usage and 1 for a failure.

Each command parses its options, calls the library and prints the result. Heavy imports are inside the commands, so
that `retriever --help` starts quickly.
"""

import contextlib
import errno
import sqlite3
import warnings
from typing import Any

import click

from retriever.cli import demo, index, info, maintain, plan, search, serve, tune
from retriever.cli.bench import bench
from retriever.cli.errors import CONTINUABLE, KEPT, Failure, database_message, discard_output, os_message, with_flags
from retriever.errors import FitWarning, RetrieverError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}
INTERRUPTED = 130


class Cli(click.Group):
    """A group of commands that prints expected errors without a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
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
    *(serve.serve, serve.mcp, bench, tune.tune),
):
    main.add_command(command)
