"""`retriever bench`: parses, calls, prints. Imports click alone; the work is in the file of each question."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarks import commands_data

if TYPE_CHECKING:
    from benchmarks.results import Row
    from benchmarks.runs import Findings, Plan

POOLINGS = ("mean", "cls", "first-last", "last2", "max", "first", "word")
FITS = ("target", "target-short", "target-train", "nli")
SETS = ("stsb", "sickr", "sts12", "sts13", "sts14", "sts15", "sts16")
FOLDER = click.Path(path_type=Path, file_okay=False)


@click.group()
def bench() -> None:
    """Measure what a transform is worth: similarity, question answering, lexical bias, isotropy.

    Every benchmark takes several encoders, poolings and transforms at once, keeps raw vectors in a cache, and with
    --out goes on where it was stopped.
    """


def shared_options(
    fits: bool = True, data_needed: bool = True, train_split: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What all of them ask for: the data, what is tried on it, and where results go."""
    options = [
        click.option(
            "--data", type=FOLDER, required=data_needed, help="Folder with the sets (sts/, qnli/, wikiqa/, nli/, …)."
        ),
        click.option(
            "--encoder",
            "encoders",
            multiple=True,
            metavar="NAME|DIR",
            help="Hugging Face name or folder of a BERT, or glove; several may be given.  [default: all-MiniLM-L6-v2]",
        ),
        click.option(
            "--pooling",
            "poolings",
            multiple=True,
            type=click.Choice(POOLINGS),
            help="How token vectors become one; several may be given.  [default: the model's own, else first-last]",
        ),
        click.option(
            "--transform",
            "transforms",
            multiple=True,
            metavar="SPEC",
            help="none, center, whiten:dimension=256, flow, auto, …; several may be given.  [default: none, center, "
            "whiten, whiten:dimension=256 and the flows]",
        ),
        click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Fits of what is random."),
        click.option("--max-length", type=int, help="Tokens a sentence may have.  [default: the model's own]"),
        click.option(
            "--device",
            type=click.Choice(["auto", "cpu", "cuda"]),
            default="auto",
            show_default=True,
            help="Where the encoder runs.",
        ),
        click.option("--cache", type=FOLDER, help="Folder of raw vectors.  [default: ~/.cache/flow-retriever/vectors]"),
        click.option("--out", type=FOLDER, help="Folder for results.json, plots and what else comes of it."),
        click.option("--json", "as_json", is_flag=True, help="The rows of results.json on standard output, no table."),
    ]
    if fits:
        fit_options = [
            click.option(
                "--fit",
                "fits",
                multiple=True,
                type=click.Choice([name for name in FITS if train_split or name != "target-train"]),
                default=("target",),
                show_default=True,
                help="Text the transform learns from: all of the set, that and phrases cut from it, "
                f"{'its train split, ' if train_split else ''}or NLI; several may be given.",
            ),
            click.option(
                "--nli-sample",
                type=click.IntRange(1),
                default=10_000,
                show_default=True,
                help="Sentences of --fit nli, drawn with seed 0.",
            ),
        ]
        options[4:4] = fit_options

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@contextlib.contextmanager
def planned(
    name: str,
    encoders: Sequence[str],
    poolings: Sequence[str],
    transforms: Sequence[str],
    seeds: int,
    max_length: int | None,
    device: str,
    cache: Path | None,
    out: Path | None,
) -> Iterator["Plan"]:
    """The plan of a command, with its results open and its progress shown."""
    from benchmarks.encoders import open_encoders
    from benchmarks.fitting import DEFAULT_TRANSFORMS, canonical
    from benchmarks.results import Results
    from benchmarks.runs import Plan
    from benchmarks.vectors import VectorCache
    from retriever import display

    if out:
        need("matplotlib", "the plots of --out")
    specs = list(dict.fromkeys(canonical(spec) for spec in transforms or DEFAULT_TRANSFORMS))
    found = open_encoders(encoders, poolings, max_length=max_length, device=device)
    with Results(out) as results, display.progress_bar() as progress:
        yield Plan(name, found, specs, seeds, VectorCache(cache), results, progress)


def need(package: str, for_what: str) -> None:
    """Refuse at the start what would fail at the end."""
    from importlib.util import find_spec

    from retriever.errors import RetrieverError

    if find_spec(package) is None:
        raise RetrieverError(f"{for_what} need {package}; install it with: pip install 'flow-retriever[bench]'")


def report(findings: "Findings", rows: Sequence["Row"], as_json: bool, show: Callable[[], None]) -> None:
    """Rows or tables on standard output; notes beside it."""
    from benchmarks.tables import show_notes
    from retriever.errors import RetrieverError

    if not findings.measured + findings.reused:
        raise RetrieverError("\n".join(["nothing could be measured.", *findings.notes]))
    if as_json:
        click.echo(json.dumps([row.to_json() for row in rows], ensure_ascii=False, indent=1))
    else:
        show()
    show_notes(findings.notes)


def say_written(findings: "Findings", out: Path | None, files: Sequence[Path] = ()) -> None:
    from retriever import display
    from retriever.terminal import one_line

    done = f"{display.plural(findings.measured, 'run')} measured, {findings.reused:,} taken from earlier results"
    if out is None:
        display.err.print(f"{done}. --out DIR keeps the rows and draws plots.", soft_wrap=True)
        return
    names = ", ".join(["results.json", *(str(file.relative_to(out)) for file in files)])
    display.err.print(f"{done}. Written to {one_line(str(out))}: {one_line(names)}", soft_wrap=True)


@bench.command()
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
    """Spearman correlation with people on STS-B, SICK-R and STS12 to STS16.

    STS12 to STS16 in both aggregations of the literature, all and wmean; bert-base's published figures stand beside.
    """
    from benchmarks import sts as question
    from benchmarks.published import sts_rows
    from benchmarks.tables import show, show_choices, sts_table

    with planned("sts", out=out, **options) as plan:
        findings = question.run(plan, data, datasets=datasets, fits=fits, nli_sample=nli_sample)
    rows, published = findings.rows, sts_rows()

    def tables() -> None:
        for metric in question.AGGREGATIONS:
            show(sts_table(rows, metric, published))
        show_choices(findings)

    report(findings, [*rows, *published], as_json, tables)
    files = []
    if out:
        from benchmarks.mteb import write_mteb
        from benchmarks.sts_plot import draw

        write_mteb(findings, out / "mteb")
        files = [draw(rows, published, out / "sts.png"), out / "mteb"]
    say_written(findings, out, files)


@bench.command()
@shared_options()
@click.option("--split", default="dev", show_default=True, help="Split of STS-B that is measured.")
@click.option(
    "--unit",
    type=click.Choice(["word", "character"]),
    default="word",
    show_default=True,
    help="What an edit changes; words and marks come nearest to the published figure for people.",
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
    """Does similarity follow the wording? Its correlation with edit distance against people's, STS-B."""
    from benchmarks import lexical as question
    from benchmarks.published import lexical_rows
    from benchmarks.tables import lexical_table, show

    need("rapidfuzz", "edit distances")
    with planned("lexical", out=out, **options) as plan:
        findings = question.run(plan, data, split=split, unit=unit, fits=fits, nli_sample=nli_sample)
    rows = [*findings.rows, *lexical_rows()]
    report(findings, rows, as_json, lambda: show(lexical_table(rows)))
    files = []
    if out:
        from benchmarks.lexical_plot import draw

        files = [draw(rows, out / "lexical.png")]
    say_written(findings, out, files)


@bench.command()
@shared_options(train_split=False)
def qa(
    data: Path,
    fits: tuple[str, ...],
    nli_sample: int,
    transforms: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Does cosine find the answer? QNLI dev (area under ROC) and WikiQA's test questions (MAP, MRR).

    Lexical baselines and the published figures stand beside; auto is among the default transforms.
    """
    from benchmarks import qa as question
    from benchmarks.fitting import AUTO, DEFAULT_TRANSFORMS
    from benchmarks.published import qa_rows
    from benchmarks.tables import qa_table, show, show_choices

    need("ir_measures", "the ranking measures of WikiQA")
    specs = transforms or (*DEFAULT_TRANSFORMS, AUTO)
    with planned("qa", transforms=specs, out=out, **options) as plan:
        findings = question.run(plan, data, fits=fits, nli_sample=nli_sample)
    rows, published = findings.rows, qa_rows()
    if folder := question.open_retrieval(data):
        findings.problems.append(f"WikiQA over all sentences is a search: retriever bench retrieval --data {folder}")

    def tables() -> None:
        for dataset in question.METRICS:
            if table := qa_table(rows, dataset, published):
                show(table)
        show_choices(findings)

    report(findings, [*rows, *published], as_json, tables)
    files = []
    if out:
        from benchmarks.qa_plot import draw

        files = [draw(rows, published, out / "qa.png")]
    say_written(findings, out, files)


@bench.command()
@shared_options(fits=False, data_needed=False)
@click.option(
    "--texts",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Measure the lines of this file.  [default: the sentences of STS-B]",
)
@click.option("--sample", type=click.IntRange(20), default=20_000, show_default=True, help="Sentences at most.")
def isotropy(
    data: Path | None, texts: Path | None, sample: int, out: Path | None, as_json: bool, **options: Any
) -> None:
    """How evenly vectors fill their space before and after each transform, and words by their frequency."""
    from benchmarks import isotropy as question
    from benchmarks.published import word_rows
    from benchmarks.tables import isotropy_table, show, words_table
    from benchmarks.vocabulary import measure_words

    if data is None and texts is None:
        raise click.UsageError("give --data DIR with STS-B, or --texts FILE.")
    with planned("isotropy", out=out, **options) as plan:
        findings = question.run(plan, data, texts=texts, sample=sample)
        words, problems = measure_words(plan, data) if data else ([], [])
        plan.results.put(word_rows() if words else [])
    findings.problems += problems
    published = word_rows() if words else []

    def tables() -> None:
        show(isotropy_table(findings.rows))
        if words:
            show(words_table([*words, *published]))

    report(findings, [*findings.rows, *words, *published], as_json, tables)
    files = []
    if out:
        from benchmarks.isotropy_plots import draw_spaces, draw_words

        files = draw_spaces(findings, out)
        files += [draw_words(words, published, out / "words.png")] if words else []
    say_written(findings, out, files)


bench.add_command(commands_data.model)
bench.add_command(commands_data.download)
