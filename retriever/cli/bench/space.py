"""`retriever bench sts`, `lexical` and `isotropy`."""

from pathlib import Path
from typing import Any

import click

from retriever.cli.bench.options import need, planned, report, say_written, shared_options

SETS = ("stsb", "sickr", "sts12", "sts13", "sts14", "sts15", "sts16")


@click.command()
@shared_options()
@click.option("--dataset", "datasets", multiple=True, type=click.Choice(SETS), help="Only this set; may be repeated.")
def sts(
    data: Path,
    datasets: tuple[str, ...],
    fits: tuple[str, ...],
    nli_sample: int,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure the Spearman correlation with people on STS-B, SICK-R and STS12 to STS16.

    STS12 to STS16 in both aggregations of the literature, all and wmean, beside bert-base's published figures.
    """
    from retriever.evaluate import sts as question
    from retriever.evaluate.data.published import published_rows
    from retriever.evaluate.report.tables import show, show_choices, sts_tables

    with planned("sts", out=out, **options) as plan:
        findings = question.run(plan, data, datasets=datasets, fits=fits, nli_sample=nli_sample)
    rows, published = findings.rows, published_rows("sts")

    def tables() -> None:
        for table in sts_tables(rows, published):
            show(table)
        show_choices(findings)

    report(findings, [*rows, *published], as_json, tables)
    files = []
    if out:
        from retriever.evaluate.report.mteb import write_mteb
        from retriever.evaluate.report.pictures import draw_sts

        write_mteb(findings, out / "mteb")
        files = [draw_sts(rows, published, out / "sts.png"), out / "mteb"]
    say_written(findings, out, files)


@click.command()
@shared_options()
@click.option("--split", default="dev", show_default=True, help="Split of STS-B.")
@click.option(
    "--unit",
    type=click.Choice(["word", "character"]),
    default="word",
    show_default=True,
    help="Unit of edit distance; words come nearest to the published figure for people.",
)
def lexical(
    data: Path,
    split: str,
    unit: str,
    fits: tuple[str, ...],
    nli_sample: int,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Does similarity follow the wording? Compare its correlation with edit distance with people's, on STS-B."""
    from retriever.evaluate import lexical as question
    from retriever.evaluate.data.published import published_rows
    from retriever.evaluate.report.tables import lexical_table, show

    need("rapidfuzz", "edit distances")
    with planned("lexical", out=out, **options) as plan:
        findings = question.run(plan, data, split=split, unit=unit, fits=fits, nli_sample=nli_sample)
    rows = [*findings.rows, *published_rows("lexical")]
    report(findings, rows, as_json, lambda: show(lexical_table(rows)))
    files = []
    if out:
        from retriever.evaluate.report.pictures import draw_lexical

        files = [draw_lexical(rows, out / "lexical.png")]
    say_written(findings, out, files)


@click.command()
@shared_options(fits=False, data_needed=False)
@click.option(
    "--texts",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Measure the lines of this file.  [default: the sentences of STS-B]",
)
@click.option("--sample", type=click.IntRange(20), default=20_000, show_default=True, help="Most sentences.")
def isotropy(
    data: Path | None, texts: Path | None, sample: int, out: Path | None, as_json: bool, **options: Any
) -> None:
    """Measure how evenly vectors fill their space before and after each transform, and words by frequency."""
    from retriever.evaluate import isotropy as question
    from retriever.evaluate.data.published import published_rows
    from retriever.evaluate.report.tables import isotropy_table, show, words_table
    from retriever.evaluate.vocabulary import measure_words

    if data is None and texts is None:
        raise click.UsageError("give --data DIR with STS-B, or --texts FILE.")
    with planned("isotropy", out=out, **options) as plan:
        findings = question.run(plan, data, texts=texts, sample=sample)
        words, problems = measure_words(plan, data) if data else ([], [])
        published = published_rows("isotropy") if words else []
        plan.results.put(published)
    findings.problems += problems

    def tables() -> None:
        show(isotropy_table(findings.rows))
        if words:
            show(words_table([*words, *published]))

    report(findings, [*findings.rows, *words, *published], as_json, tables)
    files = []
    if out:
        from retriever.evaluate.report.pictures import draw_spaces, draw_words

        files = draw_spaces(findings, out)
        files += [draw_words(words, published, out / "words.png")] if words else []
    say_written(findings, out, files)
