"""`retriever bench engines`: threads beside the workers of a Ray cluster. Parses, calls, prints."""

from pathlib import Path

import click

from benchmarks.command_parts import FOLDER, figures_options, precision_option, tell_figures


@click.command()
@click.argument("sentences", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--data", type=FOLDER, help="Folder with wiki/wiki_sentences_*.txt.gz, in place of files.")
@click.option(
    "--documents",
    multiple=True,
    type=click.IntRange(1),
    default=(12_500, 50_000),
    show_default=True,
    help="Size of the collection; may be repeated.",
)
@click.option("--encoder", metavar="NAME|DIR", help="What both embed with.  [default: all-MiniLM-L6-v2]")
@precision_option
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True, help="Turns of both at every size.")
@figures_options
def engines(
    sentences: tuple[Path, ...],
    data: Path | None,
    documents: tuple[int, ...],
    encoder: str | None,
    precision: str,
    rounds: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Ingestion by threads and by a Ray cluster on this machine, taking turns: throughput, and memory by size.

    SENTENCES are text files, a sentence a line, gzipped or not; each is a document.
    """
    from benchmarks.engines import measure
    from benchmarks.sentence_vectors import read_shards, wiki_files
    from retriever import display
    from retriever.engines import check
    from retriever.errors import Misuse
    from retriever.models import EMBEDDED

    check("ray", None)
    if bool(sentences) == bool(data):
        raise Misuse("give files of sentences, or --data DIR with Wikipedia's: one of the two.")
    paths = list(sentences) if data is None else wiki_files(data)
    texts = [text for shard in read_shards(paths, max(documents)) for text in shard.sentences]
    with display.progress_bar() as progress:
        figures = measure(texts, documents, encoder or EMBEDDED, precision, rounds=rounds, progress=progress)
    tell_figures(figures, out, as_json)
