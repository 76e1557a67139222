"""The command `retriever plan`: what a corpus will need."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retriever.cli.options import (
    echo_json,
    model_options,
    parse_memory,
    source_options,
    stops_cleanly,
    transform_option,
)

if TYPE_CHECKING:
    from retriever.corpus import Corpus


def _documents(ctx: click.Context, parameter: click.Parameter, value: str) -> int:
    from retriever.plan.planning import parse_documents

    return parse_documents(value)


@click.command()
@click.option(
    "--documents",
    required=True,
    metavar="N",
    callback=_documents,
    help="Number of documents in the corpus, e.g. 1e9, 1_000_000 or 250k.",
)
@source_options(required=False)
@click.option(
    "--index",
    type=click.Path(path_type=Path),
    help="Plan from the documents, vectors and settings of this collection instead of a source.",
)
@model_options
@transform_option
@click.option("--recall", type=float, help="Share of the ten nearest vectors an index must find.  [default: 0.95]")
@click.option(
    "--memory",
    metavar="BYTES",
    callback=parse_memory,
    help="Memory of one machine, e.g. 64GB; larger indexes are planned in shards.  [default: this machine's]",
)
@click.option("--cores", type=int, help="Cores of one machine.  [default: this machine's]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with every measured rate.")
@stops_cleanly
def plan(
    documents: int,
    corpus: "Corpus | None",
    index: Path | None,
    memory: int | None,
    cores: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Estimate the time, disk and memory that a corpus needs.

    The estimate follows from what a sample costs on this machine.

    SOURCE is the sample, in any form that `index` reads. Its first 2,000 documents are indexed as a rehearsal, which
    takes about half a minute and leaves nothing behind. Without SOURCE, Python's documentation is the sample.
    """
    if cores is not None and cores < 1:
        raise click.BadParameter(f"must be at least 1, not {cores}.", param_hint="'--cores'")

    from retriever.cli import display
    from retriever.plan.inputs import gathered
    from retriever.plan.planning import plan as make_plan
    from retriever.plan.planning import rehearse
    from retriever.plan.report import show
    from retriever.plan.usage import memory_of_machine

    sample, wanted = gathered(corpus, index, **options)
    with display.progress_bar() as progress:
        rates = rehearse(sample, wanted, documents, progress)
    memory = memory_of_machine() if memory is None else memory
    found = make_plan(rates, documents, recall=wanted.recall, memory=memory, cores=cores)
    if as_json:
        echo_json(found.to_json())
    else:
        show(found)
