"""`python -m benchmarks engines`, `stores`, `serve` and `plan`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.options import COLLECTION, figures_options, precision_option, sentence_options, show_figures
from retriever.cli.bench.options import FOLDER, json_option, need, report


@click.command()
@sentence_options(12_500, 50_000)
@precision_option
@click.option(
    "--rounds", type=click.IntRange(1), default=1, show_default=True, help="Number of runs per engine and size."
)
@figures_options
def engines(
    sentences: Sequence[Path], data: Path | None, encoder: str | None, out: Path | None, as_json: bool, **options: Any
) -> None:
    """Compare ingestion by threads with ingestion by a Ray cluster on this machine.

    The figures are the throughput, and the memory at each number of documents. SENTENCES are text files with one
    sentence per line, gzipped or not; each sentence is a document.
    """
    from benchmarks.sentence_vectors import read_sentences, sentence_files
    from benchmarks.speed.engines import measure
    from retriever.cli.display import console
    from retriever.encoder.model_files import DEFAULT_ENCODER
    from retriever.ingest.engines import check

    check("ray", None)
    texts = read_sentences(sentence_files(sentences, data), max(options["documents"]))
    with console.progress_bar() as progress:
        figures = measure(texts, encoder=encoder or DEFAULT_ENCODER, progress=progress, **options)
    show_figures(figures, out, as_json)


@click.command()
@COLLECTION
@click.option("--queries", type=click.IntRange(1), default=1000, show_default=True, help="Number of queries.")
@click.option(
    "--store",
    metavar="milvus:URI",
    help="Copy to this collection and keep it.  [default: Milvus Lite in a temporary folder]",
)
@figures_options
def stores(folder: Path, queries: int, store: str | None, out: Path | None, as_json: bool) -> None:
    """Copy the collection DIR to Milvus and back. Compare its contents and the ten best hits of many queries.

    The queries are the first words of documents of the collection.
    """
    from benchmarks.scale.stores import measure
    from retriever.cli.display import console

    with console.progress_bar() as progress:
        figures = measure(folder, queries, store=store, progress=progress)
    show_figures(figures, out, as_json)


@click.command()
@COLLECTION
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=30,
    show_default=True,
    help="Duration of the full load. The index is published again in the middle. 0 skips the load.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Number of rounds. Each round measures the Python API, 1 client and 16 clients.",
)
@figures_options
def serve(folder: Path, seconds: float, rounds: int, out: Path | None, as_json: bool) -> None:
    """Compare HTTP with the Python API, and one client with sixteen. Then put the server under full load.

    A copy of the collection DIR is served. The queries are the first words of its documents.
    """
    from benchmarks.scale.serving import measure
    from retriever.cli.display import console

    with console.progress_bar() as progress:
        figures = measure(folder, seconds, rounds=rounds, progress=progress)
    show_figures(figures, out, as_json)


@click.command()
@sentence_options(10_000, 100_000)
@click.option(
    "--sample", type=click.IntRange(1), default=4000, show_default=True, help="Number of sentences to plan from."
)
@click.option(
    "--index-type",
    "types",
    multiple=True,
    type=click.Choice(["sq8", "ivf", "hnsw", "pq", "rabitq"]),
    help="Also predict and rebuild with this index type; may be repeated.",
)
@click.option(
    "--out",
    type=FOLDER,
    help="Folder for results.json and the plot. After an interruption, the same command continues there.",
)
@json_option
def plan(out: Path | None, as_json: bool, **options: Any) -> None:
    """Predict the cost of large collections from a few sentences, build them, and compare prediction and cost.

    SENTENCES are text files with one sentence per line, gzipped or not; each sentence is a document. A size that was
    measured before is not measured again.
    """
    from benchmarks.scale.planning import validate
    from benchmarks.scale.planning_tables import draw, plan_tables
    from retriever.cli.display import console
    from retriever.evaluate.report.tables import show

    if out:
        need("matplotlib", "the plots of --out")
    with console.progress_bar() as progress:
        findings = validate(out=out, progress=progress, **options)

    def tables() -> None:
        for table in plan_tables(findings.rows):
            show(table)

    report(findings, findings.rows, as_json, out, tables, lambda out: [draw(findings.rows, out / "plan.png")])
