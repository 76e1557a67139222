"""Commands that make and change a collection: index, demo, add, delete, rebuild."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retriever.cli.display.errors import Failure
from retriever.cli.options import (
    changed_option,
    description_options,
    device_option,
    encoder_option,
    index_type_options,
    made_option,
    model_options,
    prompt_options,
    source_options,
    stops_cleanly,
    transform_option,
    verbose_option,
)

if TYPE_CHECKING:
    from retriever.corpus import Corpus
    from retriever.corpus.source import Documents
    from retriever.retriever import Retriever

QUESTIONS = (
    "run a function every few seconds in the background",
    "remove duplicates from a list but keep the order",
    "remember the results of a slow function",
    "how similar are two pieces of text",
    "make a password that nobody can guess",
)
"""What the demo asks."""
WATCHED_FOR = 1000
"""Milliseconds after which a watcher without changes returns, so that the first time is soon."""


@click.command()
@source_options()
@made_option
@description_options
@model_options
@prompt_options
@transform_option
@index_type_options
@click.option(
    "--batch-tokens", type=int, help="Number of tokens that are encoded at once.  [default: 512, or 16384 on a GPU]"
)
@device_option
@click.option("--prune", is_flag=True, help="Delete documents that are no longer in the sources.")
@click.option("--watch", is_flag=True, help="Index again whenever a file changes, until it is stopped by Ctrl-C.")
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    help="Where documents are read, embedded and transformed: local (in this process) or ray (on a Ray cluster).",
)
@click.option(
    "--address",
    metavar="ADDRESS",
    help="With --engine ray: the address of the cluster (auto, HOST:PORT or ray://HOST:PORT).  [default: start a "
    "cluster on this machine for this run]",
)
@verbose_option
@stops_cleanly
def index(corpus: "Corpus", index: str | Path, watch: bool, **options: Any) -> None:
    """Make a collection from text, or bring it up to date.

    SOURCE is a file of text, HTML, PDF, Office, e-mail or a table, which may be gzipped (.gz). SOURCE can also be a
    folder of such files, a BEIR folder, or - for standard input. Only new and changed documents are embedded. After an
    interruption, run the same command again to continue.
    """
    changes = _changes(corpus, index) if watch else iter(())
    with built(corpus, index, **options):
        pass
    for again in changes:
        _update(again, index, **options)


def _changes(corpus: "Corpus", index: str | Path) -> "Iterator[Corpus]":
    """Return an iterator that waits for changes of the sources. After each change, it lists the sources again and
    yields them.

    Changes that were made since it was called count, too: the first index may take long. It ends at a signal. Changes
    of the collection itself do not count, because it may be in the source folder.
    """
    import logging

    from retriever.cli.display import console
    from retriever.errors import Misuse, requires_extra

    if corpus.reads_stdin:
        raise Misuse("standard input cannot be watched; name files or folders")
    with requires_extra("files", "--watch"):
        import watchfiles
    logging.getLogger("watchfiles").setLevel(logging.ERROR)  # it would report Ctrl-C, which is no problem

    class Relevant(watchfiles.DefaultFilter):
        def __call__(self, change: watchfiles.Change, path: str) -> bool:
            return super().__call__(change, path) and not Path(path).is_relative_to(Path(index).resolve())

    before = _states(corpus)

    def changed() -> "Iterator[Corpus]":
        console.err.print("Watching for changes. Stop with Ctrl-C.", style="dim")
        is_first = True  # an empty set of changes says that the watcher has started
        for changes in watchfiles.watch(
            *corpus.sources,
            watch_filter=Relevant(),
            raise_interrupt=False,
            rust_timeout=WATCHED_FOR,
            yield_on_timeout=True,
        ):
            if changes or is_first:
                with _errors_shown():
                    again = corpus.listed_again()
                    if changes or _states(again) != before:
                        yield again
            is_first = False

    return changed()


def _states(corpus: "Corpus") -> dict[str, tuple[int, int]]:
    """Return the time of the last change and the size of each file."""
    from retriever.corpus.listing import SourceFile

    found = {}
    for place in corpus.places:
        if isinstance(place, SourceFile):
            with suppress(OSError):
                status = place.path.stat()
                found[str(place.path)] = (status.st_mtime_ns, status.st_size)
    return found


def _update(corpus: "Corpus", index: str | Path, **options: Any) -> None:
    with _errors_shown(), built(corpus, index, **options):
        pass


@contextmanager
def _errors_shown() -> Iterator[None]:
    """Show an error instead of raising it, because the next change of a file may correct it."""
    from retriever.cli.display import console
    from retriever.errors import RetrieverError
    from retriever.terminal import lines

    try:
        yield
    except RetrieverError as error:
        console.warn(lines(str(error)))


@contextmanager
def built(
    documents: "Documents",
    index: str | Path,
    *,
    verbose: bool = False,
    title: str | None = None,
    description: str | None = None,
    **options: Any,
) -> Iterator["Retriever"]:
    """Build a collection, show a report, and yield the open collection."""
    from retriever.cli.display import console
    from retriever.cli.display.reports import show_built
    from retriever.encoder.prompts import Prompts, missing_prompts
    from retriever.retriever import Retriever
    from retriever.settings import described

    began, words = time.monotonic(), described(title, description)
    with console.progress_bar() as progress:
        retriever = Retriever.build(documents, index, progress=progress, **options)
    with retriever:
        if words:
            retriever.describe(**words)
        show_built(retriever, index, time.monotonic() - began, verbose)
        identity = retriever.encoder().identity
        prompts = Prompts(identity.query_prompt, identity.document_prompt)
        if options.get("query_prompt") is None and (hint := missing_prompts(identity.name, prompts)):
            console.warn(f"Hint: {hint}.")
        yield retriever


@click.command()
@click.option(
    "-i",
    "--index",
    type=click.Path(path_type=Path),
    default=Path("collections/demo"),
    help="Folder of the demo's collection.",
)
@device_option
@stops_cleanly
def demo(index: Path, device: str) -> None:
    """Index Python's own documentation and search it."""
    from retriever.cli.display import console
    from retriever.corpus.python_docs import stdlib_documents

    console.out.print("Indexing the documentation of Python's standard library…")
    documents, title = list(stdlib_documents()), "Python’s standard library"
    about = "Documentation of the modules and functions of Python."
    with built(documents, index, title=title, description=about, max_length=128, device=device) as retriever:
        for question, hits in zip(QUESTIONS, retriever.search_many(QUESTIONS, 3, highlight=True), strict=True):
            console.out.print(f"\n{question}", style="bold green")
            console.show_hits(hits)
    console.say(f"\nNow search it yourself: {console.command('search', index)}", "bold")


@click.command()
@source_options()
@changed_option
@encoder_option
@device_option
@stops_cleanly
def add(corpus: "Corpus", index: str | Path, on_error: Any, **options: Any) -> None:
    """Add documents to a collection. Searches find them at once."""
    from retriever.cli.display import console
    from retriever.cli.display.reports import show_ingest

    with console.opened(index, **options) as retriever:
        report = retriever.add(corpus, on_error=on_error)
    show_ingest(report, index)


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@changed_option
@stops_cleanly
def delete(ids: tuple[str, ...], index: str | Path) -> None:
    """Delete documents by id."""
    from retriever.cli.display import console
    from retriever.terminal import plural

    with console.opened(index) as retriever:
        deleted = retriever.delete(ids)
        left = len(retriever)
    console.out.print(f"Deleted {plural(len(deleted), 'document')}; {left:,} left.")
    if missing := [id_ for id_ in dict.fromkeys(ids) if id_ not in deleted]:
        raise Failure(f"not in the collection: {', '.join(missing)}")


@click.command()
@changed_option
@transform_option
@index_type_options
@encoder_option
@device_option
@verbose_option
@stops_cleanly
def rebuild(index: str | Path, encoder: str | None, device: str, verbose: bool, **options: Any) -> None:
    """Fit the transform again and rebuild the index.

    The stored vectors are used, so no document is embedded again. A word table (--pooling learned) is learned again if
    the documents have changed since it was learned.
    """
    from retriever.cli.display import console
    from retriever.cli.display.reports import show_info, show_space
    from retriever.info import notes

    with console.opened(index, encoder=encoder, device=device) as retriever:
        retriever.rebuild(**options)
        info = retriever.info()
    if verbose:
        show_info(info)
        return
    show_space(info)
    for note in notes(info):
        console.warn(f"Warning: {note}")
