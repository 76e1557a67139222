"""`python -m benchmarks engines`: threads beside the workers of a Ray cluster. Parses, calls, prints."""

from pathlib import Path

import click

from retriever.cli.bench_options import figures_options, precision_option, sentence_options, tell_figures


@click.command()
@sentence_options(12_500, 50_000)
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
    from benchmarks.scale.engines import measure
    from benchmarks.sentence_vectors import read_sentences, sentence_files
    from retriever.cli import display
    from retriever.encoder.model_files import DEFAULT_ENCODER
    from retriever.ingest.engines import check

    check("ray", None)
    texts = read_sentences(sentence_files(sentences, data), max(documents))
    with display.progress_bar() as progress:
        figures = measure(texts, documents, encoder or DEFAULT_ENCODER, precision, rounds=rounds, progress=progress)
    tell_figures(figures, out, as_json)
