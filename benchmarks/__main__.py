"""`python -m benchmarks`: compare this project with others, and run the studies behind its design."""

from pathlib import Path
from typing import Any

import click

from benchmarks.commands import engines, gpu, plan, reading, serve, speed, stores
from benchmarks.options import cache_option, precision_option
from benchmarks.quantization.command import quantization
from retriever.cli.bench.options import BERT, FOLDER
from retriever.cli.bench.space import SETS
from retriever.cli.main import CONTEXT, Cli
from retriever.cli.options import POOLINGS, choice, options, several

bert_option = click.option("--encoder", required=True, metavar="NAME|DIR", help=f"{BERT}.")
part_options = options(
    several("--set", "Only this folder in DATA", metavar="NAME"),
    click.option("--documents", type=click.IntRange(100), default=5000, help="Documents to use from each set."),
)


@click.group(cls=Cli, context_settings=CONTEXT)
def main() -> None:
    """Compare this project with others, and its parts with each other.

    With --out, a benchmark that was interrupted continues where it stopped.
    """


@click.command()
@click.option("--data", type=FOLDER, required=True, help="Folder with the sets (or with sts/).")
@bert_option
@choice("--pooling", POOLINGS, "How token vectors become one vector.", default="first-last")
@several("--set", "Use only this set", type=click.Choice(SETS))
@click.option("--seed", type=int, default=0)
@cache_option
def flow(**given: Any) -> None:
    """Compare maps after whitening: their likelihood, and their agreement with human scores on the STS sets."""
    from benchmarks.studies.flow import run

    run(**given)


@click.command()
@click.argument("data", type=FOLDER)
@click.argument("collection", type=FOLDER)
@click.option("--split", help="The split of the judgements, e.g. train. By default test, or the only one.")
def fusion(data: Path, collection: Path, split: str | None) -> None:
    """Compare ways of combining vectors and words: nDCG@10 × 100 on the BEIR folder DATA.

    COLLECTION is a collection of that corpus, made by `retriever index` or `retriever bench retrieval`.
    """
    from benchmarks.studies.fusion import run

    run(data, collection, split)


@click.command()
@click.option("--data", type=FOLDER, required=True, help="BEIR folder, or folder of BEIR folders.")
@bert_option
@several("--pooling", "How token vectors become one vector", type=click.Choice(POOLINGS))
@part_options
@click.option("--pairs", type=click.IntRange(100), default=3000, help="Crops to cut from each set.")
@click.option("--seeds", type=click.IntRange(1), default=3, help="Times to train each variant.")
@precision_option
@click.option("--max-length", type=click.IntRange(8), help="Most tokens of a text.  [default: the encoder's own limit]")
@cache_option
def learning(**given: Any) -> None:
    """Compare ways of learning a map for search from the corpus alone, by nDCG@10 and by agreement with BM25."""
    from benchmarks.studies.learning import run

    run(**given)


@click.command()
@click.option("--data", type=FOLDER, required=True, help="Folder of BEIR folders, and of sts/.")
@bert_option
@part_options
@click.option("--max-length", type=click.IntRange(32), default=256, help="Most tokens of a text.")
def contextual(**given: Any) -> None:
    """Compare poolings of an un-tuned BERT's layers: whitening by tokens, a prompt, and weights by attention."""
    from benchmarks.studies.contextual import run

    run(**given)


@click.command()
@click.argument("collection", type=FOLDER)
@click.option("--count", type=click.IntRange(1), default=12, show_default=True, help="Queries to ask of each kind.")
@click.option("--seed", type=int, default=0, show_default=True)
def names(collection: Path, count: int, seed: int) -> None:
    """Ask a collection for ids, rare words, phrases and titles that are cut from its own documents."""
    from benchmarks.studies.names import run

    run(collection, count, seed)


COMMANDS = (speed, gpu, quantization, engines, stores, serve, reading, plan, flow, fusion, names, learning, contextual)
for command in COMMANDS:
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
