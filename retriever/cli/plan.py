"""The command `retriever plan`: estimates the time, disk and memory that a corpus needs."""

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retriever.cli.options import (
    echo_json,
    model_options,
    parse_memory,
    prompt_options,
    source_options,
    stops_cleanly,
    transform_option,
)
from retriever.errors import Misuse

if TYPE_CHECKING:
    from retriever.corpus import Corpus
    from retriever.plan.sample import Sample

MOST_DOCUMENTS = 10**15
SUFFIXES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}


def parse_documents(text: str) -> int:
    """Parse a number of documents such as 1e9, 1_000_000, 250k or 2.5M."""
    match = re.fullmatch(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?(?:[eE]\+?[0-9]{1,3})?)\s*([A-Za-z]?)\s*", text)
    count = float(re.sub("[_,]", "", match[1])) * SUFFIXES.get(match[2].upper(), math.nan) if match else math.nan
    if math.isnan(count):
        raise Misuse(f"--documents {text!r} is not a number of documents; write it as 1e9, 1_000_000 or 250k.")
    if not 1 <= count <= MOST_DOCUMENTS or count != int(count):
        raise Misuse(f"--documents must be a whole number from 1 to {MOST_DOCUMENTS:.0e}, not {text}.")
    return int(count)


@click.command()
@click.option(
    "--documents",
    required=True,
    metavar="N",
    help="Number of documents in the corpus, e.g. 1e9, 1_000_000 or 250k.",
)
@source_options(required=False)
@click.option(
    "--index",
    type=click.Path(path_type=Path),
    help="Use the documents and options of this collection as the sample, instead of a SOURCE.",
)
@model_options
@prompt_options
@transform_option
@click.option(
    "--memory",
    metavar="BYTES",
    callback=parse_memory,
    help="Memory of one machine, e.g. 64GB. A larger index is split into shards.  [default: this machine's]",
)
@click.option("--cores", type=int, help="Number of cores of one machine.  [default: this machine's]")
@click.option("--json", "as_json", is_flag=True, help="Print the plan and all measurements as JSON.")
@stops_cleanly
def plan(
    documents: str,
    corpus: "Corpus | None",
    index: Path | None,
    memory: int | None,
    cores: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Estimate the time, disk and memory that a corpus needs.

    The estimate is based on measurements of a sample on this machine.

    SOURCE is the sample, in any format that `index` reads. Its first 4,000 documents are indexed and searched in a
    temporary folder. This takes about a minute. Without SOURCE, Python's documentation is the sample.
    """
    if cores is not None and cores < 1:
        raise click.BadParameter(f"must be at least 1, not {cores}.", param_hint="'--cores'")

    from retriever.cli.display import console
    from retriever.plan.rehearsal import rehearse
    from retriever.plan.report import plan as predict
    from retriever.plan.report import show

    count = parse_documents(documents)
    sample, options = _sample(corpus, index, options)
    with console.progress_bar() as progress:
        rates = rehearse(sample, options, count, progress)
    found = predict(rates, count, memory=memory, cores=cores)
    if as_json:
        echo_json(found)
    else:
        show(found, console.out)


def _sample(corpus: "Corpus | None", index: Path | None, options: dict[str, Any]) -> "tuple[Sample, dict[str, Any]]":
    """Return the sample and the options to index it with."""
    from retriever.corpus.python_docs import stdlib_documents
    from retriever.encoder.model_files import DEFAULT_ENCODER
    from retriever.plan.sample import from_collection, from_source
    from retriever.transforms.spec import AUTO

    on_error = options.pop("on_error")
    if index is not None:
        if corpus is not None:
            raise Misuse("give a SOURCE or --index, not both: each is a sample of the corpus.")
        if given := [name for name in options if name != "encoder" and options[name] is not None]:
            flag = given[0].replace("_", "-")
            raise Misuse(
                f"--{flag} cannot be used with --index, because the plan uses the options that {index} was built with."
            )
        return from_collection(index, options["encoder"])
    options["encoder"] = options["encoder"] or DEFAULT_ENCODER
    options["transform"] = options["transform"] or AUTO
    if corpus is not None:
        return from_source(corpus, on_error), options
    return from_source(stdlib_documents(), description="Python's documentation, which is built in"), options
