"""Commands that let other programs search collections: serve (over HTTP) and mcp (for language models)."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from retriever.cli.options import choice, device_option, encoder_option, served_options
from retriever.cli.places import every, parents
from retriever.errors import requires_extra


def _token(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    token = value.strip()
    if not token:
        raise click.BadParameter("is empty; give --token a secret that cannot be guessed.")
    if not all("\x21" <= character <= "\x7e" for character in token):
        raise click.BadParameter(
            "has a character that cannot be sent in a header. Use ASCII letters, digits and punctuation, no spaces."
        )
    return token


def _origins(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    origins = tuple(origin.lower() for origin in value)  # browsers send origins in lower case
    for origin in origins:
        scheme, _, host = origin.partition("://")
        if scheme not in ("http", "https") or not host or set(host) & set("/*?# "):
            raise click.BadParameter(
                f"{origin!r} is not an origin. Write it as https://example.org or https://example.org:8443."
            )
    return origins


@click.command()
@served_options
@click.option(
    "--host", default="127.0.0.1", help="Address to listen on. An address that other machines can reach needs --token."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8080, help="Port to listen on; 0 picks a free port.")
@click.option(
    "--token",
    envvar="RETRIEVER_TOKEN",
    callback=_token,
    help="Secret that clients must send. Other users of this machine can see command-line options, but not environment "
    "variables, so prefer the variable.  [or: RETRIEVER_TOKEN]",
)
@click.option("--writable", is_flag=True, help="Let clients add and delete documents.")
@click.option(
    "--cors",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    callback=_origins,
    help="Allow requests from web pages of this site, e.g. https://example.org; may be repeated.",
)
@choice(
    "--log-level",
    ("error", "warning", "info", "debug"),
    "What the log on standard error holds, as JSON lines. info logs every request.",
    default="warning",
)
@click.option("--log-queries", is_flag=True, help="Log the texts of queries too. Needs --log-level info or debug.")
@encoder_option
@device_option
def serve(folders: tuple[Path, ...], named: tuple[Path, ...], **options: Any) -> None:
    """Serve collections over HTTP: an API and a search page.

    DIR is a collection, or a folder of collections. By default, all collections in collections/ are served. Collections
    that are put into such a folder later are found, and those that are removed from it are dropped. The folder may be
    empty at first.
    """
    if options["log_queries"] and options["log_level"] in ("error", "warning"):
        raise click.UsageError("--log-queries needs --log-level info, because only that logs requests.")
    # Every core already has a search thread. More threads inside the libraries would only compete with these.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

    from retriever.cli.display import console

    with requires_extra("serve", "`retriever serve`"):
        from retriever.serve.server import serve as run
        from retriever.serve.settings import Settings
    settings = Settings(**options)
    followed = parents(folders, named)
    run(every(folders, named, followed), settings, parents=followed, progress=console.announce)


@click.command()
@served_options
@encoder_option
@device_option
def mcp(folders: tuple[Path, ...], named: tuple[Path, ...], encoder: str | None, device: str) -> None:
    """Let a language model search collections over MCP.

    DIR is a collection, or a folder of collections. By default, all collections in collections/ are offered.
    The server speaks the Model Context Protocol on standard input and output. The MCP client starts this command.
    """
    from retriever.signals import exit_immediately

    exit_immediately()
    from retriever.cli.display import console

    with requires_extra("mcp", "`retriever mcp`"):
        from retriever.mcp.server import serve as run
    if sys.stdin.isatty():
        console.err.print("Waiting for an MCP client on standard input. Usually the client starts this command itself.")
    run(every(folders, named), encoder=encoder, device=device, progress=console.announce)
