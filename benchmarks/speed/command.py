"""`python -m benchmarks speed`: compare speed and size with other systems."""

from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.options import precision_option, sentence_options
from retriever.cli.bench.options import FOLDER, json_option, need, report


@click.command()
@sentence_options(10_000, 100_000)
@precision_option
@click.option(
    "--system",
    "systems",
    multiple=True,
    metavar="NAME",
    help="Measure only this system: retriever, 'retriever auto', 'sentence-transformers + FAISS', txtai, chroma, "
    "lancedb; may be repeated.",
)
@click.option("--queries", type=click.IntRange(1), default=200, show_default=True, help="Number of warm queries.")
@click.option(
    "--repeats", type=click.IntRange(1), default=5, show_default=True, help="Number of cold searches per system."
)
@click.option(
    "--embed-at-most",
    type=click.IntRange(0),
    default=100_000,
    show_default=True,
    help="Maximum number of documents that each system also embeds with its own encoder.",
)
@click.option("--cache", type=FOLDER, help="Cache folder for raw vectors.  [default: ~/.cache/flow-retriever/vectors]")
@click.option(
    "--out",
    type=FOLDER,
    help="Folder for results.json and the plot. After an interruption, the same command continues there.",
)
@json_option
def speed(
    sentences: Sequence[Path],
    data: Path | None,
    documents: Sequence[int],
    encoder: str | None,
    precision: str,
    systems: tuple[str, ...],
    embed_at_most: int,
    cache: Path | None,
    out: Path | None,
    as_json: bool,
    **sizes: int,
) -> None:
    """Compare encoding, ingestion and search with txtai, Chroma, LanceDB and sentence-transformers with FAISS.

    SENTENCES are text files with one sentence per line, gzipped or not; each sentence is a document. All systems get
    the same documents and vectors, and their measurements alternate. CPU time includes all threads and child processes.
    """
    from benchmarks.sentence_vectors import sentence_files, sentence_vectors
    from benchmarks.speed.benchmark import Bench
    from benchmarks.speed.process import work_folder
    from benchmarks.speed.report import draw, speed_tables
    from benchmarks.speed.rivals import chosen_systems
    from benchmarks.speed.tasks import Sizes, Tasks
    from retriever.cli.display import console
    from retriever.encoder.model_files import DEFAULT_ENCODER
    from retriever.evaluate.models.encoders import open_encoders
    from retriever.evaluate.report.tables import show
    from retriever.evaluate.results import Results
    from retriever.evaluate.runs import Experiment
    from retriever.evaluate.vectors import VectorCache

    if out:
        need("matplotlib", "the plots of --out")
    need("sentence_transformers", "the systems to compare with")
    paths, count = sentence_files(sentences, data), max(documents)
    chosen, notes = chosen_systems(systems)
    (bert,) = open_encoders([encoder or DEFAULT_ENCODER], precision=precision, device="cpu")
    with Results(out) as results, console.progress_bar() as progress, work_folder(out) as folder:
        texts, vectors = sentence_vectors(paths, bert, count, cache, progress)
        if len(texts) < count:
            notes.append(f"there are only {len(texts):,} sentences, not {count:,}: all of them are used")
        experiment = Experiment("speed", [bert], [], cache=VectorCache(cache), results=results, progress=progress)
        counts = sorted({min(count, len(texts)) for count in documents})
        wanted = Sizes(counts, embed_at_most=embed_at_most, **sizes)
        tasks = Tasks(experiment, str(bert.encoder.files.folder), texts, vectors, wanted, folder, notes)
        findings = Bench(tasks, chosen).run()

    def tables() -> None:
        for table in speed_tables(findings.rows):
            show(table)

    report(findings, findings.rows, as_json, out, tables, lambda out: [draw(findings.rows, out / "speed.png")])
