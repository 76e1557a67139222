"""`retriever bench retrieval` and `retriever bench qa`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retriever.cli.bench.options import (
    DEFAULT_POOLING,
    FOLDER,
    datasets_option,
    encoder_option,
    json_option,
    need,
    opened_experiment,
    report,
    shared_options,
)
from retriever.cli.options import POOLINGS, device_option, prompt_options, several

if TYPE_CHECKING:
    from retriever.evaluate.results import Row
    from retriever.evaluate.retrieval import RetrievalFindings


@click.command()
@click.option(
    "--data",
    type=FOLDER,
    multiple=True,
    required=True,
    help="BEIR folder (corpus.jsonl, queries.jsonl, qrels/), or a folder of BEIR folders; may be repeated.",
)
@click.option("--split", help="Use the judgements in qrels/SPLIT.tsv.  [default: test, or the only split]")
@encoder_option
@several(
    "--pooling",
    "How token vectors become one vector; auto chooses a pooling for each corpus",
    DEFAULT_POOLING,
    type=click.Choice(["auto", "learned", *POOLINGS]),
)
@several(
    "--transform",
    "A transform, bm25, or hybrid (bm25 combined with auto); the raw vectors (`none`) are always measured too",
    "none, center, whiten, bert-flow, flow, auto, hybrid, bm25",
    metavar="SPEC",
)
@prompt_options
@device_option
@click.option(
    "--cache",
    type=FOLDER,
    help="Cache folder. The indexed corpora are kept in its subfolder collections/.  [default: "
    "~/.cache/flow-retriever]",
)
@click.option("--out", type=FOLDER, help="Folder for results.json, TREC runs, files for MTEB, and the report.")
@json_option
def retrieval(
    data: tuple[Path, ...],
    split: str | None,
    encoders: tuple[str, ...],
    poolings: tuple[str, ...],
    transforms: tuple[str, ...],
    query_prompt: str | None,
    document_prompt: str | None,
    device: str,
    cache: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure retrieval on BEIR folders (nDCG@10, MRR, MAP and recall) and compare it with BM25.

    Each corpus is indexed in the same way as by `retriever index`, once for each encoder and pooling. The gain over the
    raw vectors is computed for each query and tested for significance.
    """
    from retriever.cli.display import console
    from retriever.evaluate import retrieval as question
    from retriever.evaluate.data.beir import read_sets
    from retriever.evaluate.models.encoders import collections_folder
    from retriever.evaluate.rankings import comparisons
    from retriever.evaluate.report.tables import show_retrieval
    from retriever.evaluate.results import Results
    from retriever.evaluate.runs import Experiment
    from retriever.evaluate.systems import open_models, systems_of

    need_for_rankings(out)
    systems = systems_of(transforms)
    models = open_models(encoders, poolings, query_prompt=query_prompt, document_prompt=document_prompt)
    reading = read_sets(data, split)
    with Results(out) as results, console.progress_bar() as progress:
        findings = question.run(
            Experiment(question.BENCH, [], systems, results=results, progress=progress),
            reading.sets,
            models,
            collections=collections_folder(cache),
            device=device,
        )
    findings.problems[:0] = reading.problems

    def write(out: Path) -> Sequence[Path]:
        from retriever.evaluate.report.mteb import write_retrieval_mteb
        from retriever.evaluate.report.pictures import draw_retrieval

        write_retrieval_mteb(findings.rankings, out / "mteb")
        page = _write_report(out, "Retrieval benchmark", findings, findings.rows, findings.notes)
        return [
            page,
            draw_retrieval(comparisons(findings.rows), out / "retrieval.png"),
            out / question.RUNS,
            out / "mteb",
        ]

    report(findings, findings.rows, as_json, out, lambda: show_retrieval(findings), write)


def _write_report(
    out: Path, title: str, found: "RetrievalFindings", rows: Sequence["Row"], notes: Sequence[str]
) -> Path:
    from retriever.evaluate.rankings import comparisons
    from retriever.evaluate.report.report import write_report

    return write_report(out / "report.html", title, found.topics, found.rankings, comparisons(rows), notes)


def need_for_rankings(out: Path | None) -> None:
    need("ir_measures", "the measures of a ranking")
    if out:
        need("jinja2", "the report of --out")
        need("matplotlib", "the plots of --out")


@click.command()
@shared_options(fits=("target", "target-short", "nli"))
@datasets_option(
    *("qnli", "wikiqa", "wikiqa_beir"),
    help="Use only this set (wikiqa_beir searches all sentences of WikiQA for the answer)",
)
def qa(
    data: Path,
    datasets: tuple[str, ...],
    fits: tuple[str, ...],
    nli_sample: int,
    transforms: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure how well cosine finds the answer to a question.

    The sets are QNLI (area under the ROC curve), WikiQA (MAP, MRR), and search over all sentences of WikiQA (nDCG@10).
    The tables also show lexical baselines and published figures. By default, the transform auto is measured too.
    """
    from retriever.evaluate import qa as question
    from retriever.evaluate.data.published import published_rows
    from retriever.evaluate.data.qa_sets import DATASETS
    from retriever.evaluate.fitting import DEFAULT_TRANSFORMS
    from retriever.evaluate.report.tables import qa_tables, show, show_choices, show_retrieval
    from retriever.evaluate.results import RAW
    from retriever.evaluate.systems import BM25, HYBRID
    from retriever.transforms.spec import AUTO

    need_for_rankings(out)
    pairs_there = any((data / known.file).is_file() for known in DATASETS.values())
    if not datasets and not pairs_there and (data / question.OPEN_RETRIEVAL).is_dir():
        datasets = (question.OPEN_RETRIEVAL,)
    specs = [spec for spec in transforms or (*DEFAULT_TRANSFORMS, AUTO) if spec not in (BM25, HYBRID)]
    with opened_experiment("qa", transforms=specs or [RAW], out=out, **options) as experiment:
        findings = question.run(experiment, data, datasets=datasets, fits=fits, nli_sample=nli_sample)
        opened = question.run_search(experiment, data, datasets=datasets, transforms=transforms, fits=fits, **options)
    rows, published = findings.rows, published_rows("qa")
    findings.add(opened)

    def tables() -> None:
        show(*qa_tables(rows, published))
        show_choices(findings)
        if opened.rankings:
            show_retrieval(opened)

    def write(out: Path) -> Sequence[Path]:
        from retriever.evaluate.report.pictures import draw_qa

        page = _write_report(out, "Question answering benchmark", opened, [*rows, *opened.rows], findings.notes)
        return [page, draw_qa(rows, published, out / "qa.png")] if rows else [page]

    report(findings, [*rows, *opened.rows, *published], as_json, out, tables, write)
