"""`python -m benchmarks plan`: compare the predictions of `retriever plan` with measurements."""

from pathlib import Path
from typing import Any

import click

from retriever.cli.bench_options import FOLDER, json_option, need, report, say_written, sentence_options


@click.command()
@sentence_options(10_000, 100_000)
@click.option(
    "--sample",
    type=click.IntRange(1),
    default=4000,
    show_default=True,
    help="Number of sentences that the plan is based on.",
)
@click.option(
    "--index-type",
    "types",
    multiple=True,
    type=click.Choice(["sq8", "ivf", "hnsw", "pq", "rabitq"]),
    help="Also predict and rebuild with this index type; may be repeated.",
)
@click.option("--out", type=FOLDER, help="Folder for results.json and the plot; the same command continues there.")
@json_option
def plan(out: Path | None, as_json: bool, **options: Any) -> None:
    """Plan from a sample, index as many sentences as were planned, and compare CPU, bytes, memory and queries.

    SENTENCES are text files with one sentence a line, gzipped or not. Each sentence is a document. With --out, a size
    that was measured is not measured again.
    """
    from benchmarks.scale.planning import validate
    from benchmarks.scale.planning_tables import draw, plan_tables
    from retriever.cli import display
    from retriever.evaluate.report.tables import show

    if out:
        need("matplotlib", "the plots of --out")
    with display.progress_bar() as progress:
        findings = validate(out=out, progress=progress, **options)

    def tables() -> None:
        for table in plan_tables(findings.rows):
            show(table)

    report(findings, findings.rows, as_json, tables)
    say_written(findings, out, [draw(findings.rows, out / "plan.png")] if out else [])
