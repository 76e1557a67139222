"""`python -m benchmarks engines`, `gpu`, `stores`, `serve`, `reading`, `plan` and `speed`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import options as shared
from retriever.cli.bench.options import need, opened_experiment, report
from retriever.cli.options import several


@click.command()
@shared.sentence_options(12_500, 50_000)
@shared.precision_option
@click.option("--rounds", type=click.IntRange(1), default=1, help="Number of runs per engine and size.")
@shared.figures_options
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
    figures.show(out, as_json)


@click.command()
@shared.sentence_options(20_000)
@click.option("--queries", type=click.IntRange(1), default=1000, help="Number of queries for FAISS.")
@shared.figures_options
def gpu(
    sentences: Sequence[Path],
    data: Path | None,
    documents: Sequence[int],
    encoder: str | None,
    queries: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Compare the encoder, the flow and FAISS on a GPU with the CPU: the same hits, speed and memory.

    SENTENCES are text files with one sentence per line, gzipped or not. The largest number given with --documents is
    used. With --out, a report is written as well. Without a GPU, only the CPU is measured.
    """
    from benchmarks.sentence_vectors import read_sentences, sentence_files
    from benchmarks.speed.gpu import measure
    from retriever.cli.display import console
    from retriever.encoder.model_files import DEFAULT_ENCODER

    texts = read_sentences(sentence_files(sentences, data), max(documents))
    with console.progress_bar() as progress:
        figures = measure(texts, encoder or DEFAULT_ENCODER, queries, progress)
    figures.show(out, as_json)


@click.command()
@shared.COLLECTION
@click.option("--queries", type=click.IntRange(1), default=1000, help="Number of queries.")
@click.option(
    "--store",
    metavar="milvus:URI",
    help="Copy to this collection and keep it.  [default: Milvus Lite in a temporary folder]",
)
@shared.figures_options
def stores(folder: Path, queries: int, store: str | None, out: Path | None, as_json: bool) -> None:
    """Copy the collection DIR to Milvus and back. Compare its contents and the ten best hits of many queries.

    The queries are the first words of documents of the collection.
    """
    from benchmarks.scale.stores import measure
    from retriever.cli.display import console

    with console.progress_bar() as progress:
        figures = measure(folder, queries, store=store, progress=progress)
    figures.show(out, as_json)


@click.command()
@shared.COLLECTION
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=30,
    help="Duration of the full load. The index is published again in the middle. 0 skips the load.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    help="Number of rounds. Each round measures the Python API, 1 client and 16 clients.",
)
@shared.figures_options
def serve(folder: Path, seconds: float, rounds: int, out: Path | None, as_json: bool) -> None:
    """Compare HTTP with the Python API, and one client with sixteen. Then put the server under full load.

    A copy of the collection DIR is served. The queries are the first words of its documents.
    """
    from benchmarks.scale.serving import measure
    from retriever.cli.display import console

    with console.progress_bar() as progress:
        figures = measure(folder, seconds, rounds=rounds, progress=progress)
    figures.show(out, as_json)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--unchanged", type=click.IntRange(0), default=10_000, help="Number of unchanged files. 0 skips them.")
@shared.figures_options
def reading(folder: Path, unchanged: int, out: Path | None, as_json: bool) -> None:
    """Read the files of FOLDER by format, PDF also by its library alone. Then index unchanged files again."""
    from benchmarks.scale.reading import measure
    from retriever.cli.display import console

    with console.progress_bar() as progress:
        figures = measure(folder, unchanged, progress)
    figures.show(out, as_json)


@click.command()
@shared.sentence_options(10_000, 100_000)
@click.option("--sample", type=click.IntRange(1), default=4000, help="Number of sentences to plan from.")
@click.option(
    "--index-type",
    "types",
    multiple=True,
    type=click.Choice(["sq8", "ivf", "hnsw", "pq", "rabitq"]),
    help="Also predict and rebuild with this index type; may be repeated.",
)
@shared.rows_options
def plan(out: Path | None, as_json: bool, **options: Any) -> None:
    """Predict the cost of large collections from a few sentences, build them, and compare prediction and cost.

    SENTENCES are text files with one sentence per line, gzipped or not; each sentence is a document. A size that was
    measured before is not measured again.
    """
    from benchmarks.scale.planning import plan_tables, validate
    from retriever.cli.display import console
    from retriever.evaluate.report.tables import show

    with console.progress_bar() as progress:
        findings = validate(out=out, progress=progress, **options)
    report(findings, findings.rows, as_json, out, lambda: show(*plan_tables(findings.rows)), lambda out: [])


@click.command()
@shared.sentence_options(10_000, 100_000)
@shared.precision_option
@several(
    "--system",
    "Measure only this system: retriever, 'sentence-transformers + FAISS', txtai, chroma, lancedb, sqlite-vec, usearch",
    metavar="NAME",
)
@click.option("--queries", type=click.IntRange(1), default=200, help="Number of warm queries.")
@click.option("--repeats", type=click.IntRange(1), default=5, help="Number of cold searches per system.")
@click.option(
    "--embed-at-most",
    type=click.IntRange(0),
    default=100_000,
    help="Maximum number of documents that each system also embeds with its own encoder.",
)
@shared.cache_option
@shared.rows_options
def speed(
    sentences: Sequence[Path],
    data: Path | None,
    documents: Sequence[int],
    encoder: str | None,
    precision: str,
    systems: tuple[str, ...],
    cache: Path | None,
    out: Path | None,
    as_json: bool,
    **sizes: int,
) -> None:
    """Compare encoding, ingestion and search with other systems.

    SENTENCES are text files with one sentence per line, gzipped or not; each sentence is a document. All systems get
    the same documents and vectors, and their measurements alternate. CPU time includes all threads and child processes.
    """
    from benchmarks.sentence_vectors import sentence_files, sentence_vectors
    from benchmarks.speed.benchmark import Bench
    from benchmarks.speed.process import work_folder
    from benchmarks.speed.report import draw, speed_tables
    from benchmarks.speed.rivals import chosen_systems
    from benchmarks.speed.tasks import Sizes, Tasks
    from retriever.evaluate.report.tables import show

    need("sentence_transformers", "the systems to compare with")
    paths, count = sentence_files(sentences, data), max(documents)
    chosen, notes = chosen_systems(systems)
    given = [encoder] if encoder else []
    opened = opened_experiment("speed", given, cache=cache, out=out, precision=precision, device="cpu")
    with opened as experiment, work_folder(out) as folder:
        texts, vectors = sentence_vectors(paths, experiment.encoders[0], count, cache, experiment.progress)
        if len(texts) < count:
            notes.append(f"there are only {len(texts):,} sentences, not {count:,}: all of them are used")
        wanted = Sizes(sorted({min(count, len(texts)) for count in documents}), **sizes)
        findings = Bench(Tasks(experiment, texts, vectors, wanted, folder, notes), chosen).run()
    rows = findings.rows
    report(findings, rows, as_json, out, lambda: show(*speed_tables(rows)), lambda out: [draw(rows, out / "speed.png")])
