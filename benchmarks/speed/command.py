"""`python -m benchmarks speed`: how fast, how large, beside other systems. Parses, calls, prints."""

from pathlib import Path
from typing import Any

import click

from retriever.cli.bench_options import (
    FOLDER,
    json_option,
    need,
    precision_option,
    report,
    say_written,
    sentence_options,
)


@click.command()
@sentence_options(10_000, 100_000)
@precision_option
@click.option(
    "--system",
    "systems",
    multiple=True,
    metavar="NAME",
    help="Only this one: retriever, 'retriever auto', 'sentence-transformers + FAISS', txtai, chroma, lancedb; may be "
    "repeated.",
)
@click.option("--queries", type=click.IntRange(1), default=200, show_default=True, help="Warm queries.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="Cold commands a system.")
@click.option(
    "--embed-at-most",
    type=click.IntRange(0),
    default=100_000,
    show_default=True,
    help="Larger collections are made from given vectors alone, not also by each system's own encoder.",
)
@click.option("--profile", is_flag=True, help="Only show where the time of our ingestion goes, by stage and thread.")
@click.option("--cache", type=FOLDER, help="Folder of raw vectors.  [default: ~/.cache/flow-retriever/vectors]")
@click.option("--out", type=FOLDER, help="Folder for results.json and the plot; the same command goes on there.")
@json_option
def speed(profile: bool, out: Path | None, as_json: bool, **options: Any) -> None:
    """Encoding, ingestion and search beside txtai, Chroma, LanceDB and sentence-transformers with FAISS.

    SENTENCES are text files, a sentence a line, gzipped or not; each is a document. All systems get the same
    documents and vectors and take turns; CPU time is of all threads and child processes.
    """
    from benchmarks.speed.run import measure
    from benchmarks.speed.tables import profile_tables, speed_tables
    from retriever.evaluate.report.tables import show

    if out:
        need("matplotlib", "the plots of --out")
    need("sentence_transformers", "the systems to compare with")
    findings = measure(profile=profile, out=out, **options)

    def tables() -> None:
        for table in profile_tables(findings) if profile else speed_tables(findings.rows):
            show(table)

    report(findings, findings.rows, as_json, tables)
    files = []
    if out and not profile:
        from benchmarks.speed.plot import draw

        files = [draw(findings.rows, out / "speed.png")]
    say_written(findings, out, files)
