"""`retriever bench retrieval` and `retriever bench qa`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retriever.cli.bench.options import (
    FOLDER,
    POOLINGS,
    encoder_option,
    json_option,
    need,
    planned,
    report,
    say_written,
    shared_options,
)
from retriever.cli.options import device_option

if TYPE_CHECKING:
    from retriever.evaluate.retrieval import RetrievalFindings
    from retriever.evaluate.runs import Plan


@click.command()
@click.option(
    "--data",
    type=FOLDER,
    multiple=True,
    required=True,
    help="BEIR folder (corpus.jsonl, queries.jsonl, qrels/), or a folder of BEIR folders; may be repeated.",
)
@click.option("--split", help="The judgements qrels/SPLIT.tsv.  [default: test, or the only one there is]")
@encoder_option
@click.option(
    "--pooling",
    "poolings",
    multiple=True,
    type=click.Choice(["auto", *POOLINGS]),
    help="How token vectors become one vector; auto chooses for each corpus; may be repeated.  [default: the model's "
    "own, else first-last]",
)
@click.option(
    "--transform",
    "transforms",
    multiple=True,
    metavar="SPEC",
    help="A transform, or bm25, or hybrid (bm25 with auto); none is always measured; may be repeated.  [default: "
    "none, center, whiten, bert-flow, flow, auto, hybrid, bm25]",
)
@device_option
@click.option(
    "--cache",
    type=FOLDER,
    help="Folder whose collections/ keeps the indexed corpora.  [default: ~/.cache/flow-retriever]",
)
@click.option("--out", type=FOLDER, help="Folder for results.json, TREC runs, MTEB's files and the report.")
@json_option
def retrieval(
    data: tuple[Path, ...],
    split: str | None,
    encoders: tuple[str, ...],
    poolings: tuple[str, ...],
    transforms: tuple[str, ...],
    device: str,
    cache: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure retrieval: nDCG@10, MRR, MAP and recall on BEIR folders, beside BM25.

    Each corpus is indexed as by `retriever index`, once for each encoder and pooling. Gains over the raw vectors are
    tested query by query.
    """
    from retriever.cli.display import console
    from retriever.evaluate import retrieval as question
    from retriever.evaluate.data.beir import read_sets
    from retriever.evaluate.report.tables import show_retrieval
    from retriever.evaluate.results import Results
    from retriever.evaluate.runs import Plan
    from retriever.evaluate.systems import open_models, systems_of

    need_for_rankings(out)
    systems, models = systems_of(transforms), open_models(encoders, poolings)
    reading = read_sets(data, split)
    with Results(out) as results, console.progress_bar() as progress:
        findings = question.run(
            Plan(question.BENCH, [], systems, results=results, progress=progress),
            reading.sets,
            models,
            collections=collections_in(cache),
            device=device,
        )
    findings.problems[:0] = reading.problems
    report(findings, findings.rows, as_json, lambda: show_retrieval(findings))
    files: list[Path] = []
    if out:
        from retriever.evaluate.rankings import comparisons
        from retriever.evaluate.report.mteb import write_retrieval_mteb
        from retriever.evaluate.report.pictures import draw_retrieval
        from retriever.evaluate.report.report import write_report

        write_retrieval_mteb(findings.rankings, out / "mteb")
        compared = comparisons(findings.rows)
        found = (findings.topics, findings.rankings, compared, findings.notes)
        files = [
            write_report(out / "report.html", "Retrieval benchmark", *found),
            draw_retrieval(compared, out / "retrieval.png"),
            out / question.RUNS,
            out / "mteb",
        ]
    say_written(findings, out, files)


def need_for_rankings(out: Path | None) -> None:
    need("ir_measures", "the measures of a ranking")
    if out:
        need("jinja2", "the report of --out")
        need("matplotlib", "the plots of --out")


@click.command()
@shared_options(train_split=False)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    type=click.Choice(["qnli", "wikiqa", "wikiqa_beir"]),
    help="Only this set; may be repeated. wikiqa_beir is WikiQA over all its sentences, by search.",
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
    """Does cosine find the answer? QNLI (area under ROC), WikiQA (MAP, MRR), WikiQA over all sentences (nDCG@10).

    The tables also have lexical baselines and published figures. auto is among the default transforms.
    """
    from retriever.evaluate import qa as question
    from retriever.evaluate.data.published import qa_rows
    from retriever.evaluate.fitting import DEFAULT_TRANSFORMS
    from retriever.evaluate.report.tables import qa_tables, show, show_choices, show_retrieval
    from retriever.evaluate.results import RAW
    from retriever.evaluate.systems import BM25, HYBRID
    from retriever.transforms.spec import AUTO

    need_for_rankings(out)
    if not datasets and not question.pairs_there(data) and (data / question.OPEN_RETRIEVAL).is_dir():
        datasets = (question.OPEN_RETRIEVAL,)
    specs = [spec for spec in transforms or (*DEFAULT_TRANSFORMS, AUTO) if spec not in (BM25, HYBRID)]
    with planned("qa", transforms=specs or [RAW], out=out, **options) as plan:
        findings = question.run(plan, data, datasets=datasets, fits=fits, nli_sample=nli_sample)
        opened = _open_retrieval(plan, data, datasets, transforms, fits, **options)
    rows, published = findings.rows, qa_rows()
    findings.add(opened)

    def tables() -> None:
        for table in qa_tables(rows, published):
            show(table)
        show_choices(findings)
        if opened.rankings:
            show_retrieval(opened)

    report(findings, [*rows, *opened.rows, *published], as_json, tables)
    files: list[Path] = []
    if out:
        from retriever.evaluate.rankings import comparisons
        from retriever.evaluate.report.pictures import draw_qa
        from retriever.evaluate.report.report import write_report

        compared = comparisons([*rows, *opened.rows])
        found = (opened.topics, opened.rankings, compared, findings.notes)
        files = [write_report(out / "report.html", "Question answering benchmark", *found)]
        files += [draw_qa(rows, published, out / "qa.png")] if rows else []
    say_written(findings, out, files)


def _open_retrieval(
    plan: "Plan", data: Path, datasets: Sequence[str], transforms: Sequence[str], fits: Sequence[str], **options: Any
) -> "RetrievalFindings":
    """Measure WikiQA over all its sentences, always with BM25; a note says why if that is not possible."""
    from retriever.encoder.model_files import DEFAULT_ENCODER
    from retriever.evaluate import retrieval
    from retriever.evaluate.data.beir import read_sets
    from retriever.evaluate.models.encoders import GLOVE
    from retriever.evaluate.qa import OPEN_RETRIEVAL
    from retriever.evaluate.systems import BM25, open_models, systems_of

    nothing = retrieval.RetrievalFindings(plan)
    folder = data / OPEN_RETRIEVAL
    names = [name for name in options["encoders"] or (DEFAULT_ENCODER,) if name != GLOVE]
    if datasets and OPEN_RETRIEVAL not in datasets:
        return nothing
    if not folder.is_dir():
        nothing.problems.append(f"{folder} is not there: WikiQA over all its sentences is left out")
        return nothing
    if not names:
        nothing.problems.append(f"{OPEN_RETRIEVAL}: {GLOVE} makes no collection, so it is left out")
        return nothing
    findings = retrieval.run(
        replace(plan, bench=retrieval.BENCH, transforms=systems_of([*transforms, BM25] if transforms else [])),
        read_sets([folder], None).sets,
        open_models(names, options["poolings"], options["max_length"]),
        collections=collections_in(options["cache"]),
        device=options["device"],
    )
    if options["seeds"] > 1 or tuple(fits) != ("target",):
        findings.problems.append(
            f"{OPEN_RETRIEVAL}: a collection is fitted once, on its own text; --seeds and --fit have no effect"
        )
    return findings


def collections_in(cache: Path | None) -> Path:
    """The folder of the collections of benchmarks."""
    from retriever.evaluate.vectors import default_cache

    return cache / "collections" if cache else default_cache().with_name("collections")
