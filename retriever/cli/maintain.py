"""Commands that check, copy and rescue a collection: verify, copy, salvage."""

import shlex
from pathlib import Path

import click

from retriever.cli.display.errors import Failure
from retriever.cli.options import device_option, encoder_option, folder_option, index_option, stops_cleanly
from retriever.cli.places import folders, place
from retriever.errors import salvage_advice


@click.command()
@index_option
@click.option(
    "--repair",
    is_flag=True,
    help="Rebuild derived files, and move damaged rows to the quarantine (in Milvus: delete them).",
)
@stops_cleanly
def verify(index: str | Path, repair: bool) -> None:
    """Check every hash and every row of a collection for damage."""
    from indexes.folder.verify import refuse_broken_log
    from retriever.cli.display import console
    from retriever.cli.display.reports import show_verify
    from retriever.terminal import plural

    if isinstance(index, Path):
        refuse_broken_log(index)
    with console.opened(index) as retriever:
        report = retriever.verify(repair=repair)
    show_verify(report)
    if report.database_broken:
        raise Failure(f"the database itself is damaged; {salvage_advice(shlex.quote(str(index)))}")
    if not report.clean and not repair:
        raise Failure(f"repair it with: {console.command('verify --repair', index)}")
    if report.left:
        raise Failure(f"{plural(len(report.left), 'problem')} could not be repaired.")


@click.command()
@click.argument("source", callback=place, metavar="SOURCE")
@click.argument("target", callback=place, metavar="TARGET")
@click.option("--index-type", metavar="TYPE", help="Index type of the copy.  [default: the source's]")
@stops_cleanly
def copy(source: str | Path, target: str | Path, index_type: str | None) -> None:
    """Copy a collection to another folder or to Milvus.

    SOURCE and TARGET are each a folder or milvus:URI. After an interruption, run the same command again to continue.
    """
    from retriever.cli.display import console
    from retriever.cli.display.reports import show_copy
    from retriever.transfer.copy import copy as copy_collection

    with console.progress_bar() as progress:
        report = copy_collection(source, target, index_type=index_type, progress=progress)
    show_copy(report, console.command("search", target))


@click.command()
@click.argument("target", callback=folders)
@folder_option
@encoder_option
@device_option
@stops_cleanly
def salvage(target: Path, folder: Path, encoder: str | None, device: str) -> None:
    """Save the undamaged part of a collection to a new collection.

    TARGET is the folder of the new collection. The damaged collection is not changed. Rows that are damaged but
    readable are written to TARGET/quarantine.
    """
    from retriever.cli.display import console
    from retriever.cli.display.reports import show_salvage
    from retriever.recovery.salvage import salvage as salvage_collection

    with console.progress_bar() as progress:
        report = salvage_collection(target, folder, encoder=encoder, device=device, progress=progress)
    show_salvage(report)
