"""Options and arguments that several commands share. This module imports click and nothing heavy."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import click

from retriever.cli import places

Command = Callable[..., Any]


def options(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine options into one decorator. The help lists the options in the given order."""

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def choice(name: str, values: Iterable[str], help: str, **more: Any) -> Callable[[Command], Command]:
    return click.option(name, type=click.Choice(list(values)), help=help, **more)


def several(name: str, help: str, otherwise: str = "", **more: Any) -> Callable[[Command], Command]:
    """Return an option that may be repeated. The command receives a tuple under the plural of the option's name.

    `otherwise` is the default that the help shows.
    """
    shown = f"  [default: {otherwise}]" if otherwise else ""
    return click.option(name, f"{name[2:]}s", multiple=True, help=f"{help}; may be repeated.{shown}", **more)


def model(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("is empty; give a model folder or a Hugging Face name.")
    return value


def parse_memory(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    from indexes.faiss.types import parse_bytes

    return None if value is None else parse_bytes(value)


def _index_option(parse: Callable[..., Any], otherwise: str) -> Callable[[Command], Command]:
    return click.option(
        "-i",
        "--index",
        "index",
        callback=parse,
        envvar="RETRIEVER_INDEX",
        metavar="DIR|milvus:URI",
        help=f"Folder of the collection, or its address in Milvus.  [default: RETRIEVER_INDEX, or {otherwise}]",
    )


made_option = _index_option(places.place, "collections/NAME, with the name of the source")
index_option = _index_option(places.latest, "the collection in collections/ that was changed last")
changed_option = _index_option(places.only, "the only collection in collections/")
folder_option = click.option(
    "-i",
    "--index",
    "folder",
    callback=places.latest_folder,
    envvar="RETRIEVER_INDEX",
    metavar="DIR",
    help="Folder of the collection.  [default: RETRIEVER_INDEX, or the collection in collections/ that was changed "
    "last]",
)
served_options = options(
    click.argument("folders", nargs=-1, callback=places.folders, metavar="[DIR]..."),
    click.option(
        "-i",
        "--index",
        "named",
        multiple=True,
        type=click.Path(),
        callback=places.folders,
        envvar="RETRIEVER_INDEX",
        metavar="DIR",
        help="Folder of a collection; may be repeated.  [default: RETRIEVER_INDEX, or all collections in collections/]",
    ),
)
encoder_option = click.option(
    "--encoder", metavar="NAME|DIR", callback=model, help="New location of the collection's encoder, if it has moved."
)
device_option = choice(
    "--device",
    ("auto", "cpu", "cuda"),
    "Device that runs the encoder, the flow and the index. auto uses a GPU if there is one.",
    default="auto",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
description_options = options(
    click.option("--title", metavar="TEXT", help="What the collection is called on the search page and the card."),
    click.option("--description", metavar="TEXT", help="What is in the collection, in a sentence or two."),
)
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Show what was chosen for this text, and why.")
POOLINGS = ("mean", "cls", "first-last", "last2", "max", "first", "word")
transform_option = click.option(
    "--transform",
    metavar="SPEC",
    help="auto (chosen by measurements on the text), none, center, standardize, whiten, flow, or bert-flow (as "
    "published). Options follow a colon: flow:strength=0.5, whiten:dimension=256.  [default: the collection's, "
    "or auto]",
)
model_options = options(
    click.option(
        "--encoder",
        metavar="NAME|DIR",
        callback=model,
        help="Hugging Face name or folder of a BERT, or openai:URL#MODEL for an OpenAI-compatible endpoint.  "
        "[default: the collection's, or all-MiniLM-L6-v2]",
    ),
    choice(
        "--pooling",
        ("auto", "learned", *POOLINGS),
        "How token vectors become one vector. auto measures all poolings on the text of a new collection. "
        "learned replaces the BERT by a table of the corpus's words, learned from the text.  "
        "[default: the collection's, or the model's own, or auto if the model has none]",
    ),
    choice(
        "--precision",
        ("auto", "fp32", "int8"),
        "Precision of the encoder. int8 is about twice as fast as fp32 on processors with VNNI. "
        "auto uses int8 if it barely changes the search results on this text.  [default: the collection's, or auto]",
    ),
    click.option(
        "--max-length", type=int, help="Maximum number of tokens in a passage.  [default: the model's own, at most 512]"
    ),
)
prompt_options = options(
    click.option(
        "--query-prompt",
        metavar="TEXT",
        help="Text that is put before every query, e.g. 'query: '. An empty text means no prompt.  [default: the "
        "collection's, or the model's own]",
    ),
    click.option(
        "--document-prompt",
        metavar="TEXT",
        help="Text that is put before every passage, e.g. 'passage: '.  [default: the collection's, or the "
        "model's own]",
    ),
)
index_type_options = options(
    click.option(
        "--index-type",
        metavar="TYPE",
        help="flat (exact), sq8, ivf, hnsw, pq, rabitq, any FAISS factory string, or auto (flat while a "
        "query takes less than 10 ms, then the fastest type that reaches --recall).  [default: the collection's, or "
        "auto]",
    ),
    click.option(
        "--recall",
        type=float,
        help="With --index-type auto: share of the ten nearest vectors that a search must find.  [default: the "
        "collection's, or 0.95]",
    ),
    click.option(
        "--memory",
        metavar="BYTES",
        callback=parse_memory,
        help="With --index-type auto: maximum size of the index, e.g. 500MB or 2GiB.  [default: the collection's, or "
        "no limit]",
    ),
)


def source_options(*, required: bool = True) -> Callable[[Command], Command]:
    """Add the argument SOURCE and the options for reading it. The command receives them as `corpus`.

    `corpus` is None if no source is given. If the user names no collection, it has the name of the source.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_corpus(
            sources: tuple[str, ...],
            text_key: str,
            title_key: str,
            id_key: str | None,
            lines: bool,
            whole: bool,
            includes: tuple[str, ...],
            excludes: tuple[str, ...],
            encoding: str | None,
            **more: Any,
        ) -> Any:
            from retriever.corpus.document import Keys
            from retriever.corpus.files import Corpus

            if required and more.get("index", "") is None:
                more["index"] = places.place_for(sources)
            if not sources:
                return command(corpus=None, **more)
            keys = Keys(text_key, title_key, id_key)
            how: dict[str, Any] = {
                "lines": lines,
                "whole": whole,
                "include": includes,
                "exclude": excludes,
                "encoding": encoding,
            }
            return command(corpus=Corpus(sources, keys=keys, **how), **more)

        return reading(with_corpus)

    reading = options(
        click.argument("sources", nargs=-1, required=required, metavar="SOURCE..." if required else "[SOURCE]..."),
        click.option("--text-key", default="text", help="JSON key or column that holds the text."),
        click.option("--title-key", default="title", help="JSON key or column that holds the title."),
        click.option("--id-key", help="JSON key or column that holds the id.  [default: _id, id, ID, Id or key]"),
        click.option("--lines", is_flag=True, help="Make each line of a .txt file a document."),
        click.option("--whole", is_flag=True, help="Read standard input as one document."),
        several(
            "--include",
            "Read only files of a folder that match this pattern, as in .gitignore. A file of an unknown kind that "
            "matches is read as text, e.g. --include '*.py'",
            metavar="PATTERN",
        ),
        several("--exclude", "Leave out files and folders that match this pattern", metavar="PATTERN"),
        click.option("--encoding", metavar="NAME", help="Encoding of all texts, e.g. cp1252.  [default: detected]"),
        choice("--on-error", ("skip", "stop"), "What to do with a line that cannot be read.", default="skip"),
    )
    return decorate


def stops_cleanly(command: Command) -> Command:
    """Make a long command stop cleanly. The first signal stops it after the current batch, a second signal at once."""

    @functools.wraps(command)
    def stoppable(*args: Any, **kwargs: Any) -> None:
        from retriever.signals import graceful_shutdown

        with graceful_shutdown():
            command(*args, **kwargs)

    return stoppable


def echo_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False))
