"""`python -m benchmarks quantization`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.options import precision_option
from retriever.cli.bench.options import (
    FOLDER,
    encoder_option,
    json_option,
    need,
    pooling_option,
    report,
)
from retriever.cli.options import device_option

if TYPE_CHECKING:
    from retriever.evaluate.data.beir import BeirSet


@click.command()
@click.option(
    "--data",
    type=FOLDER,
    multiple=True,
    help="Folder with wiki/wiki_sentences_*.txt.gz and BEIR folders, or a BEIR folder; may be repeated.",
)
@click.option(
    "--sentences",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    multiple=True,
    help="Text file with one sentence per line, gzipped or not; may be repeated.  [default: those of --data]",
)
@click.option(
    "--documents",
    type=click.IntRange(100),
    default=100_000,
    show_default=True,
    help="Number of sentences to index. The next 500 sentences are used as queries.",
)
@click.option(
    "--index-type",
    "index_types",
    multiple=True,
    metavar="TYPE",
    help="FAISS factory string; Flat is always measured; may be repeated.  [default: PQ, RaBitQ and SQ with half a bit "
    "to 16 bits per dimension, some after a rotation, IVF and HNSW]",
)
@click.option(
    "--refine",
    multiple=True,
    type=click.IntRange(2),
    default=(4, 10, 40),
    show_default=True,
    help="Also re-score 10 times this number of candidates with their stored vectors; may be repeated.",
)
@encoder_option
@pooling_option
@click.option(
    "--transform",
    "transforms",
    multiple=True,
    metavar="SPEC",
    default=("none", "whiten", "flow"),
    show_default=True,
    help="Transform of the space to index; may be repeated. The raw vectors (none) are always measured too.",
)
@precision_option
@device_option
@click.option(
    "--cache",
    type=FOLDER,
    help="Cache folder for raw vectors; its subfolder collections/ keeps the indexed BEIR folders.  [default: "
    "~/.cache/flow-retriever/vectors, with collections/ next to it]",
)
@click.option("--out", type=FOLDER, help="Folder for results.json and plots.")
@json_option
def quantization(
    data: Sequence[Path],
    sentences: Sequence[Path],
    documents: int,
    index_types: Sequence[str],
    refine: Sequence[int],
    encoders: Sequence[str],
    poolings: Sequence[str],
    transforms: Sequence[str],
    precision: str,
    device: str,
    cache: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Compare FAISS index types by size, with raw and with transformed vectors: recall@10 and nDCG@10.

    Recall is measured over sentences, against exact search in the same space. nDCG@10 is measured on BEIR folders and
    shows which space is worth searching.
    """
    from benchmarks.quantization import codes
    from benchmarks.quantization import sentences as question
    from benchmarks.quantization import tasks as quantization_tasks
    from benchmarks.quantization.cells import BENCH, dimension_of
    from benchmarks.quantization.report import draw, show_quantization
    from retriever.cli.display import console
    from retriever.evaluate.fitting import canonical
    from retriever.evaluate.models.encoders import open_encoders
    from retriever.evaluate.results import RAW, Results
    from retriever.evaluate.runs import Experiment, Findings
    from retriever.evaluate.systems import open_models
    from retriever.evaluate.vectors import VectorCache, collections_folder

    if not data and not sentences:
        raise click.UsageError("give --data DIR with wiki/ or BEIR folders, or --sentences FILE.")
    if out:
        need("matplotlib", "the plots of --out")
    factors = sorted(set(refine))
    specs = list(dict.fromkeys([RAW, *(canonical(spec) for spec in transforms)]))
    found = open_encoders(encoders, poolings, precision=precision, device=device)
    models = open_models(encoders, poolings)
    for dimension in {dimension_of(spec, encoder.dimension) for encoder in found for spec in specs}:
        for index_type in index_types:
            codes.empty_index(index_type, dimension)
    files = list(sentences) or _wiki_files(data)
    sets, problems = _tasks(data)
    with Results(out) as results, console.progress_bar() as progress:
        experiment = Experiment(BENCH, found, specs, cache=VectorCache(cache), results=results, progress=progress)
        findings, tasks = Findings(experiment), Findings(experiment)
        if files:
            indexed = question.Sentences(files, documents)
            findings = question.run(experiment, indexed, index_types=index_types, refine=factors)
        else:
            findings.problems.append("there are no sentences (wiki/wiki_sentences_*.txt.gz), so recall is left out")
        if sets:
            tasks = quantization_tasks.run(
                experiment,
                sets,
                models,
                collections=collections_folder(cache),
                index_types=index_types,
                refine=factors,
                device=device,
            )
    recall_rows, task_rows = findings.rows, tasks.rows
    findings.problems[:0] = problems
    findings.add(tasks)
    least = question.least_bytes(recall_rows, factors)
    rows = [*recall_rows, *question.least_rows(least), *task_rows]
    report(
        findings,
        rows,
        as_json,
        out,
        lambda: show_quantization(recall_rows, task_rows, least, factors),
        lambda out: draw(recall_rows, task_rows, factors, out),
    )


def _wiki_files(data: Sequence[Path]) -> list[Path]:
    from benchmarks.sentence_vectors import WIKI

    return [path for folder in data for path in sorted(folder.glob(WIKI))]


def _tasks(data: Sequence[Path]) -> tuple[Sequence["BeirSet"], Sequence[str]]:
    """Return the BEIR folders, and notes about those that cannot be read.

    A folder may also hold only sentences.
    """
    from retriever.evaluate.data.beir import read_sets

    folders = [folder for folder in data if any(folder.glob("*/corpus.jsonl*")) or not _wiki_files([folder])]
    if not folders:
        return (), ["there is no BEIR folder, so nDCG@10 is left out"]
    need("ir_measures", "the measures of a ranking")
    reading = read_sets(folders)
    return reading.sets, reading.problems
