"""`python -m benchmarks quantization`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarks.options import precision_option, rows_options
from retriever.cli.bench.options import FOLDER, encoder_option, need, opened_experiment, pooling_option, report
from retriever.cli.options import device_option, several

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
    help="Also re-score 10 times this number of candidates with their stored vectors; may be repeated.",
)
@encoder_option
@pooling_option
@several(
    "--transform",
    "Transform of the space to index. The raw vectors (none) are always measured too",
    metavar="SPEC",
    default=("none", "whiten", "flow"),
)
@precision_option
@device_option
@click.option(
    "--cache",
    type=FOLDER,
    help="Cache folder for raw vectors; its subfolder collections/ keeps the indexed BEIR folders.  [default: "
    "~/.cache/flow-retriever/vectors, with collections/ next to it]",
)
@rows_options
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
    from benchmarks.quantization import sentences as recall
    from benchmarks.quantization import tasks
    from benchmarks.quantization.cells import BENCH, Indexes
    from benchmarks.quantization.report import draw, show_quantization
    from retriever.evaluate.models.encoders import collections_folder
    from retriever.evaluate.results import RAW
    from retriever.evaluate.runs import Findings
    from retriever.evaluate.systems import open_models

    if not data and not sentences:
        raise click.UsageError("give --data DIR with wiki/ or BEIR folders, or --sentences FILE.")
    models, indexes = open_models(encoders, poolings), Indexes(index_types, sorted(set(refine)))
    files = list(sentences) or _wiki_files(data)
    sets, problems = _tasks(data)
    opened: dict[str, Any] = {"poolings": poolings, "precision": precision, "device": device}
    with opened_experiment(BENCH, encoders, [RAW, *transforms], cache=cache, out=out, **opened) as experiment:
        indexes.check(experiment)
        findings, judged = Findings(experiment), Findings(experiment)
        if files:
            findings = recall.run(experiment, recall.Sentences(files, documents), indexes)
        else:
            findings.problems.append("there are no sentences (wiki/wiki_sentences_*.txt.gz), so recall is left out")
        if sets:
            judged = tasks.run(experiment, sets, models, indexes, collections_folder(cache), device)
    found = findings.rows, judged.rows
    findings.problems[:0] = problems
    findings.add(judged)
    least = recall.least_bytes(found[0], indexes.refine)
    rows = [*found[0], *recall.least_rows(least), *found[1]]
    tables, plots = partial(show_quantization, *found, least, indexes.refine), partial(draw, *found, indexes.refine)
    report(findings, rows, as_json, out, tables, plots)


def _wiki_files(data: Sequence[Path]) -> list[Path]:
    from benchmarks.sentence_vectors import WIKI

    return [path for folder in data for path in sorted(folder.glob(WIKI))]


def _tasks(data: Sequence[Path]) -> tuple[Sequence["BeirSet"], Sequence[str]]:
    """Return the BEIR folders, and notes about those that cannot be read. A folder may also hold only sentences."""
    from retriever.evaluate.data.beir import read_sets

    folders = [folder for folder in data if any(folder.glob("*/corpus.jsonl*")) or not _wiki_files([folder])]
    if not folders:
        return (), ["there is no BEIR folder, so nDCG@10 is left out"]
    need("ir_measures", "the measures of a ranking")
    reading = read_sets(folders)
    return reading.sets, reading.problems
