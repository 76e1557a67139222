"""What the benchmark commands share: options, the plan that they make, and the output. Imports click alone."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retriever.cli.options import device_option

if TYPE_CHECKING:
    from retriever.evaluate.results import Row
    from retriever.evaluate.runs import Findings, Plan

POOLINGS = ("mean", "cls", "first-last", "last2", "max", "first", "word")
FITS = ("target", "target-short", "target-train", "nli")
FOLDER = click.Path(path_type=Path, file_okay=False)

encoder_option = click.option(
    "--encoder",
    "encoders",
    multiple=True,
    metavar="NAME|DIR",
    help="Hugging Face name or folder of a BERT; may be repeated.  [default: all-MiniLM-L6-v2]",
)
pooling_option = click.option(
    "--pooling",
    "poolings",
    multiple=True,
    type=click.Choice(POOLINGS),
    help="How token vectors become one vector; may be repeated.  [default: the model's own, else first-last]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the rows of results.json instead of tables.")


def shared_options(
    fits: bool = True, data_needed: bool = True, train_split: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of most commands: data, encoders, transforms, and where results go."""
    options = [
        click.option(
            "--data", type=FOLDER, required=data_needed, help="Folder with the sets (sts/, qnli/, wikiqa/, nli/, …)."
        ),
        click.option(
            "--encoder",
            "encoders",
            multiple=True,
            metavar="NAME|DIR",
            help="Hugging Face name or folder of a BERT, or glove; may be repeated.  [default: all-MiniLM-L6-v2]",
        ),
        pooling_option,
        click.option(
            "--transform",
            "transforms",
            multiple=True,
            metavar="SPEC",
            help="none, center, whiten:dimension=256, flow, auto, …; may be repeated.  [default: none, center, "
            "whiten, whiten:dimension=256 and the flows]",
        ),
        click.option(
            "--seeds",
            type=click.IntRange(1),
            default=1,
            show_default=True,
            help="Number of seeds for transforms that are random.",
        ),
        click.option("--max-length", type=int, help="Most tokens of a sentence.  [default: the model's own]"),
        device_option,
        click.option("--cache", type=FOLDER, help="Folder of raw vectors.  [default: ~/.cache/flow-retriever/vectors]"),
        click.option("--out", type=FOLDER, help="Folder for results.json, plots and other files."),
        json_option,
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
                help="Text to fit the transform on: all of the set, that and phrases cut from it, "
                f"{'its train split, ' if train_split else ''}or NLI; may be repeated.",
            ),
            click.option(
                "--nli-sample",
                type=click.IntRange(1),
                default=10_000,
                show_default=True,
                help="Number of sentences of --fit nli, drawn with seed 0.",
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
    """The plan of a command, with open results and a progress bar."""
    from retriever.cli.display import console
    from retriever.evaluate.fitting import DEFAULT_TRANSFORMS, canonical
    from retriever.evaluate.models.encoders import open_encoders
    from retriever.evaluate.results import Results
    from retriever.evaluate.runs import Plan
    from retriever.evaluate.vectors import VectorCache

    if out:
        need("matplotlib", "the plots of --out")
    specs = list(dict.fromkeys(canonical(spec) for spec in transforms or DEFAULT_TRANSFORMS))
    found = open_encoders(encoders, poolings, max_length=max_length, device=device)
    with Results(out) as results, console.progress_bar() as progress:
        yield Plan(name, found, specs, seeds, VectorCache(cache), results, progress)


def need(package: str, for_what: str) -> None:
    """Raise an error at the start if a package is missing."""
    from importlib.util import find_spec

    from retriever.errors import RetrieverError

    if find_spec(package) is None:
        raise RetrieverError(f"{for_what} need {package}; install it with: pip install 'flow-retriever[bench]'")


def report(findings: "Findings", rows: Sequence["Row"], as_json: bool, show: Callable[[], None]) -> None:
    """Print rows or tables on standard output, and notes on standard error."""
    from retriever.errors import RetrieverError
    from retriever.evaluate.report.tables import show_notes

    if not findings.measured + findings.reused:
        raise RetrieverError("\n".join(["nothing could be measured.", *findings.notes]))
    if as_json:
        click.echo(json.dumps([row.to_json() for row in rows], ensure_ascii=False, indent=1))
    else:
        show()
    show_notes(findings.notes)


def say_written(findings: "Findings", out: Path | None, files: Sequence[Path] = ()) -> None:
    from retriever.card.wording import plural
    from retriever.cli.display import console
    from retriever.terminal import one_line

    done = f"{plural(findings.measured, 'run')} measured, {findings.reused:,} taken from earlier results"
    if out is None:
        console.err.print(f"{done}. --out DIR keeps the rows and draws plots.", soft_wrap=True)
        return
    names = ", ".join(["results.json", *(str(file.relative_to(out)) for file in files if file.exists())])
    console.err.print(f"{done}. Written to {one_line(str(out))}: {one_line(names)}", soft_wrap=True)
