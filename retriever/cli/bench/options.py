"""Shared parts of the benchmark commands: options, the experiment of a run, and the output.

This module imports only click.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retriever.cli.options import POOLINGS, Command, device_option, options, prompt_options, several

if TYPE_CHECKING:
    from retriever.evaluate.results import Row
    from retriever.evaluate.runs import Experiment, Findings

FOLDER = click.Path(path_type=Path, file_okay=False)
BERT = "Hugging Face name or folder of a BERT"
DEFAULT_BERT = "all-MiniLM-L6-v2"
DEFAULT_POOLING = "the model's own, or first-last"
encoder_option = several("--encoder", BERT, DEFAULT_BERT, metavar="NAME|DIR")
pooling_option = several(
    "--pooling", "How token vectors become one vector", DEFAULT_POOLING, type=click.Choice(POOLINGS)
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the rows of results.json instead of tables.")


def datasets_option(*names: str, help: str = "Use only this set") -> Callable[[Command], Command]:
    return several("--dataset", help, type=click.Choice(names))


def shared_options(
    fits: Sequence[str] = ("target", "target-short", "target-train", "nli"), data_needed: bool = True
) -> Callable[[Command], Command]:
    """Return the options of most commands: data, encoders, transforms, the text to fit them on, and the outputs."""
    train = "target-train (its train split), " if "target-train" in fits else ""
    fit = (
        "Text to fit the transform on: target (the whole set), target-short (the whole set and short phrases cut from "
        f"it), {train}or nli (NLI sentences)"
    )
    sample = "Number of sentences for --fit nli. They are drawn with seed 0."
    fitting = (
        several("--fit", fit, type=click.Choice(fits), default=("target",)),
        click.option("--nli-sample", type=click.IntRange(1), default=10_000, help=sample),
    )
    return options(
        click.option(
            "--data", type=FOLDER, required=data_needed, help="Folder with the sets (sts/, qnli/, wikiqa/, nli/, …)."
        ),
        encoder_option,
        pooling_option,
        several(
            "--transform",
            "none, center, whiten:dimension=256, flow, auto, …",
            "none, center, whiten, whiten:dimension=256 and the flows",
            metavar="SPEC",
        ),
        *(fitting if fits else ()),
        click.option(
            "--seeds",
            type=click.IntRange(1),
            default=1,
            help="Number of random seeds. A transform that depends on the seed is measured with each.",
        ),
        click.option(
            "--max-length", type=int, help="Maximum number of tokens in a sentence.  [default: the model's own]"
        ),
        prompt_options,
        device_option,
        click.option(
            "--cache", type=FOLDER, help="Cache folder for raw vectors.  [default: ~/.cache/flow-retriever/vectors]"
        ),
        click.option("--out", type=FOLDER, help="Folder for results.json, plots and other files."),
        json_option,
    )


@contextlib.contextmanager
def opened_experiment(
    name: str,
    encoders: Sequence[str],
    transforms: Sequence[str] = (),
    seeds: int = 1,
    *,
    cache: Path | None,
    out: Path | None,
    **encoder_options: Any,
) -> Iterator["Experiment"]:
    """Yield the experiment of a command, with its results file open and a progress bar shown."""
    from retriever.cli.display import console
    from retriever.evaluate.fitting import DEFAULT_TRANSFORMS, canonical
    from retriever.evaluate.models.encoders import VectorCache, open_encoders
    from retriever.evaluate.results import Results
    from retriever.evaluate.runs import Experiment

    if out:
        need("matplotlib", "the plots of --out")
    specs = list(dict.fromkeys(canonical(spec) for spec in transforms or DEFAULT_TRANSFORMS))
    found = open_encoders(encoders, **encoder_options)
    with Results(out) as results, console.progress_bar() as progress:
        yield Experiment(name, found, specs, seeds, VectorCache(cache), results, progress)


def need(package: str, for_what: str) -> None:
    """Raise an error if a package is not installed. Commands call this before they start to measure."""
    from importlib.util import find_spec

    from retriever.errors import RetrieverError

    if find_spec(package) is None:
        raise RetrieverError(f"{for_what} need {package}; install it with: pip install 'flow-retriever[bench]'")


def report(
    findings: "Findings",
    rows: Sequence["Row"],
    as_json: bool,
    out: Path | None,
    show: Callable[[], None],
    write: Callable[[Path], Sequence[Path]],
) -> None:
    """Print rows or tables on standard output and notes on standard error. With --out, also write plots and reports."""
    from retriever.cli.display import console
    from retriever.errors import RetrieverError
    from retriever.evaluate.report.tables import show_notes
    from retriever.terminal import one_line, plural

    if not findings.measured + findings.reused:
        raise RetrieverError("\n".join(["nothing could be measured.", *findings.notes]))
    if as_json:
        click.echo(json.dumps([row._asdict() for row in rows], ensure_ascii=False, indent=1))
    else:
        show()
    show_notes(findings.notes)
    written = "Use --out DIR to keep the rows and to draw plots."
    if out:
        names = ["results.json", *(str(file.relative_to(out)) for file in write(out) if file.exists())]
        written = f"Written to {one_line(str(out))}: {one_line(', '.join(names))}"
    done = f"{plural(findings.measured, 'run')} measured, {findings.reused:,} taken from earlier results"
    console.say(f"{done}. {written}", to=console.err)
