"""The command `retriever tune`: tunes an encoder on a corpus, without labels."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retriever.cli.options import device_option, json_option, model, options, stops_cleanly

if TYPE_CHECKING:
    from retriever.tune.run import Tuned


@click.command()
@click.argument("encoder", callback=model)
@options(
    click.option(
        "--corpus",
        "sources",
        multiple=True,
        required=True,
        metavar="SOURCE",
        help="File, folder or pattern of text, in any format that `index` reads; may be repeated.",
    ),
    click.option("--text-key", default="text", help="JSON key or column that holds the text."),
    click.option("--title-key", default="title", help="JSON key or column that holds the title."),
    click.option("--lines", is_flag=True, help="Make each line of a .txt file a document."),
    click.option("--out", type=click.Path(path_type=Path), required=True, help="New folder for the tuned encoder."),
    click.option(
        "--minutes", type=click.FloatRange(0, min_open=True), default=20.0, help="Time budget, with the evaluations."
    ),
    click.option("--max-length", type=int, help="Maximum number of tokens of a text while tuning.  [default: 64]"),
    click.option("--seed", type=click.IntRange(0), default=0, help="Seed of the sample, the pairs and the dropout."),
)
@device_option
@json_option
@stops_cleanly
def tune(
    encoder: str,
    sources: tuple[str, ...],
    text_key: str,
    title_key: str,
    lines: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Tune an encoder on the text of a corpus, without labels.

    ENCODER is a Hugging Face name or the folder of a BERT. The result is an encoder folder for `index --encoder DIR`
    and for sentence-transformers. If the command is interrupted, run it again to continue.

    \b
    retriever tune bert-base-cased --corpus notes/ --out models/notes
    retriever index notes/ --index collections/notes --encoder models/notes
    """
    from retriever.cli.display import console
    from retriever.cli.options import echo_json
    from retriever.corpus.document import Keys
    from retriever.corpus.files import Corpus
    from retriever.tune.run import tune as run

    corpus = Corpus(sources, keys=Keys(text_key, title_key, None), lines=lines)
    with console.progress_bar() as progress:
        found = run(encoder, corpus, progress=progress, **settings)
    if as_json:
        from dataclasses import asdict

        echo_json({**asdict(found), "folder": str(found.folder)})
    else:
        _show(found)


def _show(found: "Tuned") -> None:
    from retriever.cli.display import console
    from retriever.terminal import duration

    table = console.table("", ">before", ">after")
    table.add_row("agreement with BM25 (nDCG@10)", f"{found.before.agreement:.3f}", f"{found.after.agreement:.3f}")
    table.add_row("loss of halves of passages", f"{found.before.loss:.3f}", f"{found.after.loss:.3f}")
    console.out.print(table)
    if found.note:
        console.warn(f"Warning: {found.note}")
    console.say(
        f"Tuned on {found.passages:,} passages in {duration(found.seconds)}; measured on {found.held_out:,} others. "
        f"The best state was after {found.after.step:,} steps. Tuning stopped because {found.stopped}."
    )
    console.say(f"Use it: retriever index SOURCE --encoder {found.folder}")
