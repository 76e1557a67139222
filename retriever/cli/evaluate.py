"""The command `retriever evaluate`: measures how well a collection answers your own questions."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from retriever.cli.options import device_option, echo_json, encoder_option, folder_option, json_option, stops_cleanly

if TYPE_CHECKING:
    from retriever.evaluate.questions import Evaluation

MOST_FAILED = 20


@click.command()
@click.argument("questions", type=click.Path(path_type=Path, dir_okay=False))
@folder_option
@click.option("--suggest", type=click.IntRange(1), metavar="N", help="Write N questions cut from the documents.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a report to this file.")
@json_option
@encoder_option
@device_option
@stops_cleanly
def evaluate(
    questions: Path,
    folder: Path,
    suggest: int | None,
    html: Path | None,
    as_json: bool,
    encoder: str | None,
    device: str,
) -> None:
    """Measure how well a collection answers your own questions.

    QUESTIONS is a .csv, .tsv or .jsonl file with the columns question and expected. An expected document is named by
    its id or its file; separate several by |. With --suggest, QUESTIONS is a new file with questions to begin with.
    """
    from retriever.cli.display import console
    from retriever.evaluate.questions import evaluate as measure
    from retriever.evaluate.questions import suggest as write_suggestions
    from retriever.terminal import one_line, plural

    if suggest is None and not questions.exists():
        advice = f"Write one to begin with: retriever evaluate --suggest 20 {questions}"
        raise click.UsageError(f"{questions} does not exist. {advice}")
    with console.opened(folder, encoder=encoder, device=device) as retriever:
        if suggest is not None:
            count = write_suggestions(retriever, questions, suggest)
            console.say(
                f"{plural(count, 'question')} written to {one_line(str(questions))}. They are sentences of the "
                f"documents, which are easier to find than real questions. Rewrite them as people would ask, then run: "
                f"{console.command(f'evaluate {one_line(str(questions))}', folder)}"
            )
            return
        found = measure(retriever, questions, retriever.progress)
    if as_json:
        echo_json(found.to_json())
    else:
        _show(found)
    if html:
        from retriever.evaluate.report.report import write_evaluation

        write_evaluation(html, found)
        console.say(f"Report: {one_line(str(html))}", to=console.err)


def _show(found: "Evaluation") -> None:
    from rich.text import Text

    from retriever.cli.display import console
    from retriever.terminal import one_line, plural

    table = console.table("found by", ">first", ">in first 3", ">in first 10", ">MRR", ">nDCG@10")
    for way in found.ways:
        figures = (way.first, way.in_three, way.in_ten)
        cells = [f"{100 * figure:.0f} %" for figure in figures] + [f"{way.mrr:.3f}", f"{way.ndcg:.3f}"]
        table.add_row(Text(way.name), *cells)
    console.out.print(table)
    console.say(found.verdict)
    for one in found.failed[:MOST_FAILED]:
        came = f"first came {one_line(one.instead)}" if one.instead else "nothing came"
        expected = " or ".join(map(one_line, one.expected))
        console.say(f"not found: {one_line(one.question)} (expected {expected}; {came})", "yellow")
    if len(found.failed) > MOST_FAILED:
        console.say(f"… and {plural(len(found.failed) - MOST_FAILED, 'more question')}; --json lists them all.")
