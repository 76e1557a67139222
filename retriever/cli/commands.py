"""The `retriever` command: parses, calls, prints; no logic of its own.

Heavy imports stand inside the commands: `retriever --help` imports click and nothing else.
"""

import contextlib
import errno
import functools
import math
import os
import shlex
import sqlite3
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from indexes.address import in_milvus
from retriever.cli.bench import bench
from retriever.cli.bench_options import device_option
from retriever.errors import DamageWarning, FitWarning, RetrieverError, salvage_advice

if TYPE_CHECKING:
    from retriever.retriever import Retriever
    from retriever.search.searcher import Options

INTERRUPTED = 130
WRITING = ("index", "add", "demo", "rebuild", "copy")
"""The commands that write a collection, and lose nothing of it when they are stopped."""


class Failure(click.ClickException):
    """An error for people, with the exit code it asks for."""

    def __init__(self, message: str, exit_code: int) -> None:
        from retriever.terminal import lines

        super().__init__(lines(message))
        self.exit_code = exit_code  # type: ignore[misc]


class Cli(click.Group):
    """Turns every foreseen error into a message and an exit code: 2 for misuse, 1 for failure."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # of what click writes itself, such as the help
            _drop_output()
            with contextlib.suppress(OSError):
                click.echo(f"Error: {_os_message(error, None)}", err=True)
            raise SystemExit(1) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RetrieverError as error:
            raise Failure(str(error), error.exit_code) from error
        except sqlite3.DatabaseError as error:
            raise Failure(_database_message(error, ctx.invoked_subcommand), 1) from error
        except BrokenPipeError:
            _drop_output()  # the reader of our output left; that is no error of ours
            raise SystemExit(1) from None
        except OSError as error:
            command = None if _drop_output() else ctx.invoked_subcommand
            raise Failure(_os_message(error, command), 1) from error
        except KeyboardInterrupt as error:
            resumes = ctx.invoked_subcommand in ("index", "add", "demo", "bench", "copy")
            after = " What was stored stays; the same command goes on from there." if resumes else ""
            click.echo(f"\nInterrupted.{after}", err=True)
            raise SystemExit(getattr(error, "exit_code", INTERRUPTED)) from None


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    from retriever.terminal import lines

    if issubclass(category, DamageWarning):
        click.echo(lines(f"Warning: {message}"), err=True)
    else:
        _shown_by_python(message, category, *where, **more)


_shown_by_python = warnings.showwarning


def stops_cleanly(command: Callable[..., None]) -> Callable[..., None]:
    """For a command that writes or works long: a signal ends it at a batch, a second one at once."""

    @functools.wraps(command)
    def stoppable(*args: Any, **kwargs: Any) -> None:
        from retriever.signals import graceful_shutdown

        with graceful_shutdown():
            command(*args, **kwargs)

    return stoppable


def _drop_output() -> bool:
    """Forget output that could not be written, if it was that; Python would try again at its end, and fail."""
    try:
        sys.stdout.flush()
    except OSError:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return True
    return False


def _database_message(error: sqlite3.DatabaseError, command: str | None) -> str:
    text = str(error)
    # A shared file beside the database must grow even for reading, and SQLite names that by its own.
    if "full" in text or getattr(error, "sqlite_errorname", "") == "SQLITE_IOERR_SHMSIZE":
        return _disk_full(None, command, database=True)
    if "malformed" in text or "not a database" in text or "decode" in text:
        return (
            f"the collection's database is damaged ({text}); look with: retriever verify --index DIR, and save all "
            "that is sound with: retriever salvage NEW --index DIR"
        )
    if "disk I/O" in text:
        stays = " What was stored stays; the same command goes on from there." if command in WRITING else ""
        return (
            f"the disk failed while the collection's database was read or written.{stays} If it fails again, look at "
            "the system's log, and save all that is sound with: retriever salvage NEW --index DIR"
        )
    return f"SQLite: {text}"


def _os_message(error: OSError, command: str | None) -> str:
    if error.errno == errno.ENOSPC:
        return _disk_full(error.filename, command)
    return f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}"


def _disk_full(path: str | None, command: str | None, *, database: bool = False) -> str:
    what = f"the disk is full{f' ({path})' if path else ''}"
    if command in WRITING:
        return f"{what}. What was stored stays; make room and run the same command again, it goes on from there."
    if database:
        return (
            f"{what}, and even to read a collection needs a little room beside it. Make room and "
            "run the same command again."
        )
    return f"{what}, so the output could not be written. Make room and run the same command again."


def _not_empty(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("is empty; give a model folder or a Hugging Face name.")
    return value


def _place(ctx: click.Context, parameter: click.Parameter, value: str) -> "str | Path":
    """A folder, or a collection in Milvus as it stands."""
    return value if in_milvus(value) else Path(value)


def _folder(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Folders where nothing else will do."""
    for one in value if isinstance(value, tuple) else (value,):
        if one is not None and in_milvus(one):
            raise click.BadParameter(
                f"{one} lies in Milvus, and this needs a folder; copy it first: retriever copy {one} DIR"
            )
    return tuple(map(Path, value)) if isinstance(value, tuple) else value and Path(value)


def index_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--index",
        "--store",
        "index",
        callback=_place,
        required=True,
        envvar="RETRIEVER_INDEX",
        metavar="DIR|milvus:URI",
        help="Folder of the collection, or where it lies in Milvus. [or: RETRIEVER_INDEX]",
    )(command)


def encoder_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--encoder",
        metavar="NAME|DIR",
        callback=_not_empty,
        help="Where the collection's encoder lies now, if it has moved.",
    )(command)


def source_options(command: Callable[..., Any], *, required: bool = True) -> Callable[..., Any]:
    for option in reversed(
        [
            click.argument("sources", nargs=-1, required=required, metavar="SOURCE..." if required else "[SOURCE]..."),
            click.option("--text-key", default="text", show_default=True, help="Key or column of the text."),
            click.option("--title-key", default="title", show_default=True, help="Key or column of the title."),
            click.option("--id-key", help="Key or column of the id.  [default: _id or id]"),
            click.option("--lines", is_flag=True, help="Each line of a .txt file is a document of its own."),
            click.option(
                "--on-error",
                type=click.Choice(["skip", "stop"]),
                default="skip",
                show_default=True,
                help="What a line that cannot be read does.",
            ),
        ]
    ):
        command = option(command)
    return command


batch_tokens_option = click.option(
    "--batch-tokens", type=int, help="Tokens the encoder takes at once.  [default: 512, on a GPU 16384]"
)
transform_option = click.option(
    "--transform",
    metavar="SPEC",
    help="auto (chosen by the text itself), none, center, standardize, whiten, flow or bert-flow (as published); "
    "options follow a colon, as in flow:strength=0.5 or whiten:dimension=256.  [default: the collection's, else auto]",
)


def _bytes(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    from indexes.faiss.types import parse_bytes

    return None if value is None else parse_bytes(value)


def index_type_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.option(
                "--index-type",
                metavar="TYPE",
                help="flat (exact), sq8, ivf, hnsw, pq, rabitq, any FAISS factory string, or auto: the quickest that "
                "finds enough.  [default: the collection's, else flat]",
            ),
            click.option(
                "--recall",
                type=float,
                help="With auto: the share of the ten nearest to be found.  [default: the collection's, else 0.95]",
            ),
            click.option(
                "--memory",
                metavar="BYTES",
                callback=_bytes,
                help="With auto: what the index may take, as 500MB or 2GiB.  [default: the collection's, else any]",
            ),
        ]
    ):
        command = option(command)
    return command


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="flow-retriever", prog_name="retriever")
def main() -> None:
    """Search your own text by meaning, with any BERT and no labels.

    \b
    retriever index notes/ --index indexes/notes    makes a collection
    retriever search --index indexes/notes          answers questions about it
    """
    warnings.showwarning = _show_warning
    warnings.simplefilter("default", DamageWarning)
    warnings.simplefilter("ignore", FitWarning)  # the commands print the transform's own notes


@main.command()
@source_options
@index_option
@click.option(
    "--encoder",
    metavar="NAME|DIR",
    callback=_not_empty,
    help="Hugging Face name or folder of a BERT.  [default: the collection's, else all-MiniLM-L6-v2]",
)
@click.option(
    "--pooling",
    type=click.Choice(["auto", "mean", "cls", "first-last", "last2", "max", "first", "word"]),
    help="How token vectors become one; auto has the text of a new collection choose.  [default: the collection's, "
    "else the model's own, else first-last]",
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "fp32", "int8"]),
    help="Of the encoder: int8 is about twice as fast; auto takes it where it keeps the ranking of this text.  "
    "[default: the collection's, else auto]",
)
@click.option("--max-length", type=int, help="Tokens a passage may have.  [default: the model's own, at most 512]")
@transform_option
@index_type_options
@batch_tokens_option
@device_option
@click.option("--prune", is_flag=True, help="Delete documents that the sources no longer have.")
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="What reads, embeds and transforms: threads of this process, or the workers of a Ray cluster.",
)
@click.option(
    "--address",
    metavar="ADDRESS",
    help="With ray: auto, HOST:PORT or ray://HOST:PORT.  [default: a cluster on this machine, for this run]",
)
@stops_cleanly
def index(
    sources: tuple[str, ...],
    text_key: str,
    title_key: str,
    id_key: str | None,
    lines: bool,
    index: str | Path,
    prune: bool,
    **options: Any,
) -> None:
    """Make a collection from text, or bring it up to date.

    SOURCE is a .jsonl, .csv, .tsv, .parquet, .txt or .md file (or .gz of one), a folder of them, a BEIR folder,
    or - for standard input. Only new and changed documents are embedded; interrupted, the same command goes on.
    """
    from retriever.cli import display
    from retriever.corpus import Corpus, Keys
    from retriever.retriever import Retriever

    corpus = Corpus(sources, keys=Keys(text_key, title_key, id_key), lines=lines)
    began = time.monotonic()
    with display.progress_bar() as progress:
        retriever = Retriever.build(corpus, index, prune=prune, progress=progress, **options)
    with retriever:
        _show_built(retriever, index, time.monotonic() - began, asked=options["transform"] is not None)


def _show_built(retriever: "Retriever", index: str | Path, seconds: float, asked: bool = False) -> None:
    from retriever.cli import display

    display.show_ingest(retriever.report)
    display.show_drift(retriever.report, _command("rebuild", index))
    info = retriever.info()
    if info["pooling_choice"] and retriever.report.texts_embedded:
        display.show_pooling_choice(info["pooling_choice"])
    if info["precision_choice"] and retriever.report.texts_embedded:
        display.show_precision_choice(info["precision_choice"])
    if info["choice"] and (retriever.report.texts_embedded or asked):
        display.show_choice(info["choice"], most=4)
    described = display.describe_transform(info["transform"], info["fitted_on"])
    display.out.print(f"transform  {described}", soft_wrap=True)
    if info["index"]["generation"]:
        display.out.print(f"index      {display.describe_index(info['index'])}", soft_wrap=True)
    for note in display.notes(info):
        display.err.print(f"Warning: {note}", style="yellow", soft_wrap=True)
    display.show_notes(retriever.notes())
    display.out.print(
        f"{display.plural(info['documents'], 'document')} in {display.plural(info['passages'], 'passage')}, "
        f"{display.on_disk(info)}{display.duration(seconds)}. "
        f"Search them: {_command('search', index)}",
        soft_wrap=True,
    )


def _command(name: str, index: str | Path) -> str:
    from retriever.terminal import one_line

    return f"retriever {name} --index {one_line(shlex.quote(str(index)))}"


@main.command()
@source_options
@index_option
@encoder_option
@device_option
@stops_cleanly
def add(
    sources: tuple[str, ...],
    text_key: str,
    title_key: str,
    id_key: str | None,
    lines: bool,
    on_error: Any,
    index: str | Path,
    encoder: str | None,
    device: str,
) -> None:
    """Add documents to a collection; a search finds them at once."""
    from retriever.cli import display
    from retriever.corpus import Corpus, Keys
    from retriever.retriever import Retriever

    corpus = Corpus(sources, keys=Keys(text_key, title_key, id_key), lines=lines)
    with (
        display.progress_bar() as progress,
        Retriever.open(index, encoder=encoder, device=device, progress=progress) as retriever,
    ):
        report = retriever.add(corpus, on_error=on_error)
    display.show_ingest(report)
    display.show_drift(report, _command("rebuild", index))


@main.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@index_option
@stops_cleanly
def delete(ids: tuple[str, ...], index: str | Path) -> None:
    """Delete documents by id."""
    from retriever.cli import display
    from retriever.retriever import Retriever

    with Retriever.open(index) as retriever:
        deleted = retriever.delete(ids)
        missing = [i for i in dict.fromkeys(ids) if i not in deleted]
        left = len(retriever)
    display.out.print(f"Deleted {display.plural(len(deleted), 'document')}; {left:,} left.")
    if missing:
        raise Failure(f"not there: {', '.join(missing)}", 1)


where_option = click.option(
    "--where",
    multiple=True,
    metavar="FILTER",
    help="Only documents whose metadata fits, such as 'year >= 2020' or 'lang in (en, de)'; several must all fit.",
)
k_option = click.option("-k", type=int, default=10, show_default=True, help="How many hits.")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a hit and line.")


@main.command()
@click.argument("query", required=False)
@index_option
@k_option
@click.option(
    "--mode",
    type=click.Choice(["dense", "lexical", "hybrid"]),
    default="dense",
    show_default=True,
    help="By meaning (dense), by words (lexical, BM25), or by both.",
)
@where_option
@click.option(
    "--rerank", metavar="NAME|DIR", callback=_not_empty, help="Have this cross-encoder judge the best hits again."
)
@click.option("--min-score", type=float, help="Leave out hits with a lower score.")
@json_option
@click.option(
    "--queries",
    type=click.Path(path_type=Path, dir_okay=False, exists=True, allow_dash=True),
    help="Answer every query of a .jsonl, .csv, .tsv or .txt file, or of standard input (-).",
)
@click.option("--trec", type=click.Path(path_type=Path, dir_okay=False), help="With --queries: write a TREC run file.")
@encoder_option
@device_option
def search(
    query: str | None,
    index: str | Path,
    k: int,
    mode: Any,
    where: tuple[str, ...],
    rerank: str | None,
    min_score: float | None,
    as_json: bool,
    queries: Path | None,
    trec: Path | None,
    encoder: str | None,
    device: str,
) -> None:
    """Answer a query, a file of queries, or, with neither, whatever you type at a prompt."""
    from retriever.cli import display
    from retriever.retriever import Retriever
    from retriever.search.searcher import Options

    if query is not None and queries is not None:
        raise click.UsageError("give a query or --queries, not both.")
    if trec is not None and queries is None:
        raise click.UsageError("--trec goes with --queries.")
    if as_json and query is None and queries is None:
        raise click.UsageError("--json goes with a query or --queries; the prompt has no JSON.")
    if k < 1:
        raise click.BadParameter(f"must be at least 1, not {k}.", param_hint="-k")
    if min_score is not None and math.isnan(min_score):
        raise click.BadParameter("must be a number, not nan.", param_hint="--min-score")
    with Retriever.open(index, encoder=encoder, device=device, progress=display.announce) as retriever:
        options = Options(mode=mode, where=where, min_score=min_score, highlight=queries is None)
        if rerank:
            from retriever.encoder.reranker import Reranker

            options["rerank"] = Reranker(rerank, device=device)
        if queries is not None:
            _answer_file(retriever, queries, trec, k, options, as_json)
        elif query is not None:
            _answer_one(retriever, query, k, options, as_json)
        else:
            from retriever.cli.prompt import Prompt

            retriever.check_filters(where)  # the prompt would refuse every query for a bad one
            Prompt(retriever, k, options).run()


def _answer_one(retriever: "Retriever", query: str, k: int, options: "Options", as_json: bool) -> None:
    from retriever.cli import display

    (answer,) = retriever.answer_many([query], k, **options)
    if as_json:
        for hit in answer.hits:
            _echo_json({"query": query, **hit.to_json()})
    else:
        display.show_hits(answer.hits, filtered=bool(options.get("where")))
    display.show_novelty(answer)
    display.show_notes(retriever.notes())
    k_given = click.get_current_context().get_parameter_source("k") is ParameterSource.COMMANDLINE
    if k_given and k > len(retriever):
        display.err.print(f"The collection has only {display.plural(len(retriever), 'document')}.")


def _answer_file(
    retriever: "Retriever", queries: Path, trec: Path | None, k: int, options: "Options", as_json: bool
) -> None:
    from contextlib import ExitStack

    from retriever.cli import display
    from retriever.cli.query_file import in_batches, read_queries, run_file, write_run
    from retriever.terminal import one_line

    answered, strange, first = 0, 0, ""
    with ExitStack() as stack:
        run = stack.enter_context(run_file(trec)) if trec else None
        for batch in in_batches(read_queries(queries)):
            answers = retriever.answer_many([query.text for query in batch], k, **options)
            for query, answer in zip(batch, answers, strict=True):
                answered += 1
                strange += answer.strange
                first = first or (query.id if answer.strange else "")
                if run:
                    write_run(run, query.id, answer.hits)
                if as_json:
                    for hit in answer.hits:
                        _echo_json({"query_id": query.id, "query": query.text, **hit.to_json()})
                elif not run:
                    display.out.print(f"\n{one_line(query.id)}: {one_line(query.text)}", style="bold", soft_wrap=True)
                    display.show_hits(answer.hits, filtered=bool(options.get("where")))
    display.show_novelties(answered, strange, first)
    display.show_notes(retriever.notes())
    if trec:
        many = "query" if answered == 1 else "queries"
        display.err.print(f"{answered:,} {many} answered, run written to {one_line(str(trec))}.", soft_wrap=True)


def _echo_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False))


@main.command()
@click.argument("id_", metavar="ID")
@index_option
@k_option
@where_option
@json_option
def similar(id_: str, index: str | Path, k: int, where: tuple[str, ...], as_json: bool) -> None:
    """Find the documents most like a stored one."""
    from retriever.cli import display
    from retriever.retriever import Retriever

    with Retriever.open(index) as retriever:
        hits = retriever.similar(id_, k, where=where)
    if as_json:
        for hit in hits:
            _echo_json({"similar_to": id_, **hit.to_json()})
    else:
        display.show_hits(hits, filtered=bool(where))


@main.command()
@index_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(index: str | Path, as_json: bool) -> None:
    """Show what a collection holds and what made it."""
    from retriever.cli import display
    from retriever.retriever import Retriever

    with Retriever.open(index) as retriever:
        found = retriever.info()
    if as_json:
        _echo_json(found)
    else:
        display.show_info(found)


@main.command()
@click.argument("folder", metavar="DIR", callback=_folder)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write, .html or .md.  [default: NAME-card.html in the current folder]",
)
def card(folder: Path, out: Path | None) -> None:
    """Write what a collection is, and what was measured of it, as one HTML or Markdown file."""
    from retriever.card.rendering import check_ending, write_card
    from retriever.cli import display
    from retriever.retriever import Retriever
    from retriever.terminal import one_line

    if out is not None:
        check_ending(out)
    with Retriever.open(folder) as retriever:
        found = retriever.card()
    path = out or Path(f"{found.name}-card.html")
    write_card(found, path)
    display.out.print(f"{one_line(str(path))}  {display.size(path.stat().st_size)}", soft_wrap=True)


@main.command()
@index_option
@transform_option
@index_type_options
@encoder_option
@device_option
@stops_cleanly
def rebuild(index: str | Path, encoder: str | None, device: str, **options: Any) -> None:
    """Fit the transform and build the index again from the stored vectors; no document is embedded."""
    from retriever.cli import display
    from retriever.retriever import Retriever

    with (
        display.progress_bar() as progress,
        Retriever.open(index, encoder=encoder, device=device, progress=progress) as retriever,
    ):
        retriever.rebuild(**options)
        found = retriever.info()
    display.show_info(found)


@main.command()
@click.argument("target", type=click.Path(path_type=Path))
@index_option
@click.option(
    "--format",
    "format_",
    type=click.Choice(["parquet", "npy", "sentence-transformers"]),
    default="parquet",
    show_default=True,
    help="parquet: one file. npy: a folder with passages.jsonl, raw.npy and vectors.npy. sentence-transformers: the "
    "encoder and transform as a model folder, without any document.",
)
@encoder_option
@stops_cleanly
def export(target: Path, index: str | Path, format_: Any, encoder: str | None) -> None:
    """Write documents and vectors, raw and transformed, to TARGET, or the model that makes the vectors."""
    from retriever.cli import display
    from retriever.retriever import Retriever
    from retriever.terminal import one_line

    with display.progress_bar() as progress, Retriever.open(index, encoder=encoder, progress=progress) as retriever:
        files = retriever.export(target, format_)
    if format_ == "sentence-transformers":
        size = display.size(sum(file.stat().st_size for file in files))
        load = f"SentenceTransformer({str(target)!r})"
        display.out.print(f"{one_line(str(target))}  {size}. Load it: {one_line(load)}", soft_wrap=True)
        return
    for file in files:
        display.out.print(f"{one_line(str(file))}  {display.size(file.stat().st_size)}", soft_wrap=True)


@main.command()
@index_option
@click.option(
    "--repair", is_flag=True, help="Make what is derived again; put what is damaged aside (in Milvus: delete it)."
)
@stops_cleanly
def verify(index: str | Path, repair: bool) -> None:
    """Check every hash and every row of a collection."""
    from retriever.cli import display
    from retriever.retriever import Retriever

    with display.progress_bar() as progress, Retriever.open(index, progress=progress) as retriever:
        report = retriever.verify(repair=repair)
    display.show_verify(report)
    if report.database_broken:
        raise Failure(f"the database itself is damaged; {salvage_advice(shlex.quote(str(index)))}", 1)
    if not report.clean and not repair:
        raise Failure(f"put it right with: retriever verify --repair --index {shlex.quote(str(index))}", 1)
    if report.left:
        raise Failure(f"{display.plural(len(report.left), 'problem')} could not be repaired.", 1)


@main.command()
@click.argument("source", callback=_place, metavar="SOURCE")
@click.argument("target", callback=_place, metavar="TARGET")
@click.option("--index-type", metavar="TYPE", help="Of the copy.  [default: the source's]")
@stops_cleanly
def copy(source: str | Path, target: str | Path, index_type: str | None) -> None:
    """Copy a collection from one place to another: folders, or milvus:URI. Interrupted, the same command goes on."""
    from retriever.cli import display
    from retriever.transfer.copy import copy as copied

    with display.progress_bar() as progress:
        report = copied(source, target, index_type=index_type, progress=progress)
    display.show_copy(report, _command("search", target))


@main.command()
@click.argument("target", callback=_folder)
@index_option
@encoder_option
@device_option
@stops_cleanly
def salvage(target: Path, index: str | Path, encoder: str | None, device: str) -> None:
    """Make a new collection in TARGET from all that is sound in one whose database is damaged.

    The damaged one is only read. What is damaged but readable goes to TARGET/quarantine.
    """
    from retriever.cli import display
    from retriever.recovery.salvage import salvage as save

    if not isinstance(index, Path):
        raise click.BadParameter("salvage reads a folder; Milvus keeps its own files.", param_hint="--index")

    with display.progress_bar() as progress:
        report = save(target, index, encoder=encoder, device=device, progress=progress)
    display.show_salvage(report)


@main.command()
@click.option(
    "--index",
    "index",
    type=click.Path(path_type=Path),
    default=Path("indexes/demo"),
    show_default=True,
    help="Folder of the demo's collection.",
)
@device_option
@stops_cleanly
def demo(index: Path, device: str) -> None:
    """Index Python's own documentation and ask it a few questions."""
    from retriever.cli import display
    from retriever.cli.demo import QUESTIONS, stdlib_documents
    from retriever.retriever import Retriever

    display.out.print("Indexing the documentation of Python's standard library…")
    documents = list(stdlib_documents())
    began = time.monotonic()
    with display.progress_bar() as progress:
        retriever = Retriever.build(documents, index, max_length=128, device=device, progress=progress)
    with retriever:
        _show_built(retriever, index, time.monotonic() - began)
        for question, hits in zip(QUESTIONS, retriever.search_many(QUESTIONS, 3, highlight=True), strict=True):
            display.out.print(f"\n{question}", style="bold green")
            display.show_hits(hits)
    display.out.print(f"\nGo on with: {_command('search', index)}", style="bold", soft_wrap=True)


def _documents(ctx: click.Context, parameter: click.Parameter, value: str) -> int:
    from retriever.plan.sample import parse_documents

    return parse_documents(value)


@main.command()
@click.option(
    "--documents",
    required=True,
    metavar="N",
    callback=_documents,
    help="How many documents the corpus will have, as 1e9, 1_000_000 or 250k.",
)
@functools.partial(source_options, required=False)
@click.option(
    "--index",
    "index",
    type=click.Path(path_type=Path),
    help="Base the plan on the documents and options of an existing collection instead of a SOURCE.",
)
@transform_option
@click.option(
    "--memory",
    metavar="BYTES",
    callback=_bytes,
    help="Of one machine, as 64GB; larger indexes are planned in shards.  [default: this machine's]",
)
@click.option("--cores", type=int, help="Of one machine.  [default: this machine's]")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with every rate that was measured.")
@stops_cleanly
def plan(
    documents: int,
    sources: tuple[str, ...],
    text_key: str,
    title_key: str,
    id_key: str | None,
    lines: bool,
    index: Path | None,
    memory: int | None,
    cores: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Predict what a corpus will need, from what a sample of it costs on this machine: time, disk, memory, shards.

    SOURCE is the sample, in any form that `index` accepts. Its first 4,000 documents are indexed and searched in a
    temporary folder, which takes about a minute. Without SOURCE, Python's documentation is the sample.
    """
    from retriever.cli import display
    from retriever.cli.demo import stdlib_documents
    from retriever.corpus import Corpus, Keys
    from retriever.encoder.model_files import DEFAULT_ENCODER
    from retriever.errors import Misuse
    from retriever.ingest.publishing import DEFAULT_TRANSFORM
    from retriever.plan.rehearsal import rehearse
    from retriever.plan.report import plan as predict
    from retriever.plan.report import show
    from retriever.plan.sample import from_collection, from_source

    if cores is not None and cores < 1:
        raise click.BadParameter(f"must be at least 1, not {cores}.", param_hint="--cores")
    on_error = options.pop("on_error")
    if index is not None:
        if sources:
            raise Misuse("give a SOURCE or --index, not both: each is a sample of the corpus.")
        if given := [name for name in options if name != "encoder" and options[name] is not None]:
            flag = given[0].replace("_", "-")
            raise Misuse(f"--{flag} goes with a SOURCE; the plan uses the options that {index} was built with.")
        sample, options = from_collection(index, options["encoder"])
    else:
        options["encoder"] = options["encoder"] or DEFAULT_ENCODER
        options["transform"] = options["transform"] or DEFAULT_TRANSFORM
        if sources:
            sample = from_source(Corpus(sources, keys=Keys(text_key, title_key, id_key), lines=lines), on_error)
        else:
            sample = from_source(stdlib_documents(), description="Python's documentation, which is built in")
    with display.progress_bar() as progress:
        rates = rehearse(sample, options, documents, progress)
    found = predict(rates, documents, memory=memory, cores=cores)
    if as_json:
        _echo_json(found)
    else:
        show(found, display.out)


plan.params += [one for one in index.params if one.name in ("encoder", "pooling", "precision", "max_length")]


def _token(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    token = value.strip()
    if not token:
        raise click.BadParameter("is empty; give --token a secret that cannot be guessed.")
    if not all("\x21" <= character <= "\x7e" for character in token):
        raise click.BadParameter(
            "holds what clients cannot send in a header; take letters, digits and signs of ASCII, without spaces."
        )
    return token


def _origins(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    origins = tuple(origin.lower() for origin in value)  # as browsers write them
    for origin in origins:
        scheme, _, host = origin.partition("://")
        if scheme not in ("http", "https") or not host or set(host) & set("/*?# "):
            raise click.BadParameter(f"{origin!r} is no origin; one is written https://example.org or with a port.")
    return origins


@main.command()
@click.argument("folders", nargs=-1, required=True, callback=_folder, metavar="DIR...")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; another needs --token.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port; 0 takes one that is free."
)
@click.option(
    "--token",
    envvar="RETRIEVER_TOKEN",
    callback=_token,
    help="What clients must show; in the variable others on this machine cannot see it. [or: RETRIEVER_TOKEN]",
)
@click.option("--writable", is_flag=True, help="Let clients add and delete documents.")
@click.option(
    "--cors",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    callback=_origins,
    help="Let pages of this site ask, such as https://example.org; may be repeated.",
)
@encoder_option
@device_option
def serve(folders: tuple[Path, ...], **options: Any) -> None:
    """Serve collections over HTTP: an API, and a page to search them with a browser."""
    # A thread on every core searches for somebody: libraries that begin more for each would have them wait for others.
    for library in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(library, "1")

    from retriever.cli import display

    try:
        from retriever.serve.greeting import greeter
        from retriever.serve.server import serve as run
        from retriever.serve.settings import Settings
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "prometheus_client", "starlette"):
            raise
        raise RetrieverError(
            f"serving needs {error.name}; install it with: pip install 'flow-retriever[serve]'"
        ) from error
    settings = Settings(**options)
    run(folders, settings, ready=greeter(settings), progress=display.announce)


@main.command()
@click.argument("folders", nargs=-1, required=True, callback=_folder, metavar="DIR...")
@encoder_option
@device_option
def mcp(folders: tuple[Path, ...], encoder: str | None, device: str) -> None:
    """Let a language model search collections: the Model Context Protocol over standard input and output."""
    from retriever.signals import exit_immediately

    exit_immediately()
    from retriever.cli import display

    try:
        from retriever.mcp.server import serve as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio", "pydantic"):
            raise
        raise RetrieverError(
            "the Model Context Protocol needs the package mcp, version 2 or newer; install it with: "
            "pip install 'flow-retriever[mcp]'"
        ) from error
    if sys.stdin.isatty():
        display.err.print("Waiting for a client of the Model Context Protocol; it should start this command itself.")
    run(folders, encoder=encoder, device=device, progress=display.announce)


main.add_command(bench)


if __name__ == "__main__":
    main()
