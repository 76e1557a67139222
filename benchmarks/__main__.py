"""`python -m benchmarks`: compare this project with others, and run the studies behind its design."""

from pathlib import Path
from typing import Any

import click

from benchmarks.options import precision_option
from benchmarks.quantization.command import quantization
from benchmarks.scale.commands import engines, plan, serve, stores
from benchmarks.speed.command import speed
from retriever.cli.bench.options import FOLDER
from retriever.cli.bench.space import SETS
from retriever.cli.main import Cli
from retriever.cli.options import POOLINGS


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Compare this project with others, and its parts with each other.

    With --out, a benchmark that was interrupted continues where it stopped.
    """


@click.command()
@click.option("--data", type=FOLDER, required=True, help="Folder with the sets (or with sts/).")
@click.option("--encoder", required=True, metavar="NAME|DIR", help="Hugging Face name or folder of a BERT.")
@click.option("--pooling", type=click.Choice(POOLINGS), default="first-last", show_default=True)
@click.option("--set", "sets", multiple=True, type=click.Choice(SETS), help="Use only this set; may be repeated.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--cache", type=FOLDER, help="Cache folder for raw vectors.  [default: ~/.cache/flow-retriever/vectors]")
def flow(**options: Any) -> None:
    """Compare maps after whitening: their likelihood, and their agreement with human scores on the STS sets."""
    from benchmarks.studies.flow import run

    run(**options)


@click.command()
@click.argument("data", type=FOLDER)
@click.argument("collection", type=FOLDER)
def fusion(data: Path, collection: Path) -> None:
    """Compare ways of combining vectors and words: nDCG@10 × 100 on the BEIR folder DATA.

    COLLECTION is a collection of that corpus, made by `retriever index` or `retriever bench retrieval`.
    """
    from benchmarks.studies.fusion import run

    run(data, collection)


@click.command()
@click.option("--data", type=FOLDER, required=True, help="BEIR folder, or folder of BEIR folders.")
@click.option("--encoder", required=True, metavar="NAME|DIR", help="Hugging Face name or folder of a BERT.")
@click.option("--pooling", multiple=True, type=click.Choice(POOLINGS), help="Pooling; may be repeated.")
@click.option("--set", "sets", multiple=True, metavar="NAME", help="Only this folder in DATA; may be repeated.")
@click.option("--documents", type=click.IntRange(100), default=5000, show_default=True, help="Documents of a set.")
@click.option("--pairs", type=click.IntRange(100), default=3000, show_default=True, help="Crops of a set.")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Trainings of a variant.")
@precision_option
@click.option("--max-length", type=click.IntRange(8), help="Tokens of a text.  [default: the encoder's own limit]")
@click.option("--cache", type=FOLDER, help="Folder of raw vectors.  [default: ~/.cache/flow-retriever/vectors]")
def learning(**options: Any) -> None:
    """Compare ways of learning a map for search from the corpus alone, by nDCG@10 and by agreement with BM25."""
    from benchmarks.studies.learning import run

    run(**options)


@click.command()
@click.option("--data", type=FOLDER, required=True, help="Folder of BEIR folders, and of sts/.")
@click.option("--encoder", required=True, metavar="NAME|DIR", help="Hugging Face name or folder of a BERT.")
@click.option("--set", "sets", multiple=True, metavar="NAME", help="Only this folder in DATA; may be repeated.")
@click.option("--documents", type=click.IntRange(100), default=5000, show_default=True, help="Documents of a set.")
@click.option("--max-length", type=click.IntRange(32), default=256, show_default=True, help="Tokens of a text.")
def contextual(**options: Any) -> None:
    """Compare poolings of an un-tuned BERT's layers: whitening by tokens, a prompt, and weights by attention."""
    from benchmarks.studies.contextual import run

    run(**options)


for command in (speed, quantization, engines, stores, serve, plan, flow, fusion, learning, contextual):
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
