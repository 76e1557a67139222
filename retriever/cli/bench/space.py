"""`retriever bench sts`, `lexical` and `isotropy`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from retriever.cli.bench.options import datasets_option, need, opened_experiment, report, shared_options
from retriever.cli.options import choice

SETS = ("stsb", "sickr", "sts12", "sts13", "sts14", "sts15", "sts16")


@click.command()
@shared_options()
@datasets_option(*SETS)
def sts(
    data: Path,
    datasets: tuple[str, ...],
    fits: tuple[str, ...],
    nli_sample: int,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure the Spearman correlation with human scores on STS-B, SICK-R and STS12 to STS16.

    STS12 to STS16 are reported in the two aggregations used in the literature, all and wmean. The published figures of
    bert-base are shown next to them.
    """
    from retriever.evaluate import sts as question
    from retriever.evaluate.data.published import published_rows
    from retriever.evaluate.report.tables import show, show_choices, sts_tables

    with opened_experiment("sts", out=out, **options) as experiment:
        findings = question.run(experiment, data, datasets=datasets, fits=fits, nli_sample=nli_sample)
    rows, published = findings.rows, published_rows("sts")

    def tables() -> None:
        show(*sts_tables(rows, published))
        show_choices(findings)

    def write(out: Path) -> Sequence[Path]:
        from retriever.evaluate.report.mteb import write_mteb
        from retriever.evaluate.report.pictures import draw_sts

        write_mteb(findings, out / "mteb")
        return [draw_sts(rows, published, out / "sts.png"), out / "mteb"]

    report(findings, [*rows, *published], as_json, out, tables, write)


@click.command()
@shared_options()
@click.option("--split", default="dev", help="Split of STS-B.")
@choice(
    "--unit",
    ("word", "character"),
    "Unit of the edit distance. With word, the correlation between human scores and edit distance is closer to the "
    "published value.",
    default="word",
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
    """Measure whether similarity follows the wording.

    On STS-B, compute the correlation between cosine and edit distance, and compare it with the correlation between
    human scores and edit distance.
    """
    from retriever.evaluate import sts as question
    from retriever.evaluate.data.published import published_rows
    from retriever.evaluate.report.tables import lexical_table, show

    need("rapidfuzz", "edit distances")
    with opened_experiment("lexical", out=out, **options) as experiment:
        findings = question.run_lexical(experiment, data, split=split, unit=unit, fits=fits, nli_sample=nli_sample)
    rows = [*findings.rows, *published_rows("lexical")]

    def write(out: Path) -> Sequence[Path]:
        from retriever.evaluate.report.pictures import draw_lexical

        return [draw_lexical(rows, out / "lexical.png")]

    report(findings, rows, as_json, out, lambda: show(lexical_table(rows)), write)


@click.command()
@shared_options(fits=(), data_needed=False)
@click.option(
    "--texts",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Measure the lines of this file.  [default: the sentences of STS-B]",
)
@click.option("--sample", type=click.IntRange(20), default=20_000, help="Maximum number of sentences to measure.")
def isotropy(
    data: Path | None, texts: Path | None, sample: int, out: Path | None, as_json: bool, **options: Any
) -> None:
    """Measure how evenly vectors fill their space before and after each transform.

    With --data, also measure word embeddings, grouped by word frequency.
    """
    from retriever.evaluate import isotropy as question
    from retriever.evaluate.data.published import published_rows
    from retriever.evaluate.isotropy import measure_words
    from retriever.evaluate.report.tables import isotropy_table, show, words_table

    if data is None and texts is None:
        raise click.UsageError("give --data DIR with STS-B, or --texts FILE.")
    with opened_experiment("isotropy", out=out, **options) as experiment:
        findings = question.run(experiment, data, texts=texts, sample=sample)
        words, problems = measure_words(experiment, data) if data else ([], [])
        published = published_rows("isotropy") if words else []
        experiment.results.put(published)
    findings.problems += problems

    def tables() -> None:
        show(isotropy_table(findings.rows))
        if words:
            show(words_table([*words, *published]))

    def write(out: Path) -> Sequence[Path]:
        from retriever.evaluate.report.pictures import draw_spaces, draw_words

        files = draw_spaces(findings, out)
        return [*files, draw_words(words, published, out / "words.png")] if words else files

    report(findings, [*findings.rows, *words, *published], as_json, out, tables, write)
