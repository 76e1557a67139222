"""Commands that find documents: search, similar."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
from click.core import ParameterSource

from retriever.cli.options import choice, device_option, echo_json, encoder_option, index_option, model
from retriever.errors import BadSource, Misuse

if TYPE_CHECKING:
    from retriever.corpus import Document
    from retriever.hits import Hit, Options, Where
    from retriever.retriever import Retriever

BATCH = 256
"""Number of queries of a file that are encoded together."""

where_option = click.option(
    "--where",
    multiple=True,
    metavar="FILTER",
    help="Find only documents whose metadata matches, e.g. 'year >= 2020' or 'lang in (en, de)'. If repeated, all "
    "filters "
    "must match.",
)
k_option = click.option("-k", type=click.IntRange(1), default=10, help="Number of hits.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print each hit as a JSON object on its own line.")


@click.command()
@click.argument("query", required=False)
@index_option
@k_option
@choice(
    "--mode",
    ("hybrid", "dense", "lexical"),
    "Search by both meaning and words (hybrid), by meaning (dense), or by words (lexical, BM25).",
    default="hybrid",
)
@where_option
@click.option("--rerank", metavar="NAME|DIR", callback=model, help="Cross-encoder that ranks the best hits again.")
@click.option("--min-score", type=float, help="Leave out hits with a score below this, 0 to 100.")
@click.option("--explain", is_flag=True, help="Say why each hit was found: its rank by meaning and by words.")
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
    explain: bool,
    as_json: bool,
    queries: Path | None,
    trec: Path | None,
    encoder: str | None,
    device: str,
) -> None:
    """Search a collection for a query, for each query of a file, or interactively.

    Without QUERY or --queries, an interactive prompt opens.
    """
    if query is not None and queries is not None:
        raise click.UsageError("give a query or --queries, not both.")
    if trec is not None and queries is None:
        raise click.UsageError("--trec needs --queries.")
    if as_json and query is None and queries is None:
        raise click.UsageError("--json needs a query or --queries; the prompt cannot print JSON.")
    if min_score is not None and not 0 <= min_score <= 100:
        raise click.BadParameter(f"must be a number from 0 to 100, not {min_score:g}.", param_hint="'--min-score'")

    from retriever.cli.display import console
    from retriever.hits import Options
    from retriever.retriever import Retriever

    with Retriever.open(index, encoder=encoder, device=device, progress=console.announce) as retriever:
        options = Options(mode=mode, where=where, min_score=min_score, highlight=queries is None, explain=explain)
        if rerank:
            from retriever.encoder.reranker import Reranker

            options["rerank"] = Reranker(rerank, device=device)
        if queries is not None:
            _answer_file(retriever, queries, trec, k, options, as_json)
        elif query is not None:
            _answer_one(retriever, query, k, options, as_json)
        else:
            from retriever.cli.prompt import Prompt

            retriever.check_filters(where)  # a bad filter would make every query fail
            Prompt(retriever, k, options).run()


def _print_hits(hits: "list[Hit]", where: "Where", as_json: bool, **facts: str) -> None:
    """Show the hits, or print each hit as JSON together with `facts` about its query."""
    from retriever.cli.display import console

    if not as_json:
        console.show_hits(hits, filtered=bool(where))
        return
    for hit in hits:
        echo_json({**facts, **hit.to_json()})


def _answer_one(retriever: "Retriever", query: str, k: int, options: "Options", as_json: bool) -> None:
    from retriever.cli.display import console
    from retriever.terminal import plural

    (answer,) = retriever.answer_many([query], k, **options)
    _print_hits(answer.hits, options["where"], as_json, query=query)
    console.show_answer_notes(answer)
    console.show_notes(retriever.notes())
    k_given = click.get_current_context().get_parameter_source("k") is ParameterSource.COMMANDLINE
    if k_given and k > len(retriever):
        console.err.print(f"The collection has only {plural(len(retriever), 'document')}.")


def _answer_file(
    retriever: "Retriever", queries: Path, trec: Path | None, k: int, options: "Options", as_json: bool
) -> None:
    from retriever.cli.display import console
    from retriever.terminal import one_line

    answered, strange, first = 0, 0, ""
    with ExitStack() as stack:
        run = stack.enter_context(_run_file(trec)) if trec else None
        found = read_queries(queries)
        while batch := list(islice(found, BATCH)):
            answers = retriever.answer_many([query.text for query in batch], k, **options)
            for query, answer in zip(batch, answers, strict=True):
                answered += 1
                strange += answer.strange
                first = first or (query.id if answer.strange else "")
                if run:
                    _write_run(run, query.id, answer.hits)
                if not as_json and not run:
                    console.say(f"\n{one_line(query.id)}: {one_line(query.text)}", "bold")
                if as_json or not run:
                    _print_hits(answer.hits, options["where"], as_json, query_id=query.id, query=query.text)
    console.show_novel_queries(answered, strange, first)
    console.show_notes(retriever.notes())
    if trec:
        count = "1 query" if answered == 1 else f"{answered:,} queries"
        console.say(f"{count} answered, run written to {one_line(str(trec))}.", to=console.err)


def read_queries(path: Path) -> Iterator["Document"]:
    """Yield the queries of a file as documents.

    A .jsonl, .csv or .tsv file has the query in `text` and its id in `_id` or `id`. A .txt file has one query per line.
    `-` is standard input, which is JSONL or has one query per line. A query without an id gets its number as id.
    """
    from retriever.corpus import Corpus, Document, Keys
    from retriever.corpus.document import content_id, text_id

    number = 0
    for number, item in enumerate(Corpus([path], keys=Keys(fixed=True), lines=True), 1):
        if not isinstance(item, Document):
            raise BadSource(f"{item.where}: {item.reason}. Correct the query file and run the command again.")
        has_own = item.id not in (text_id(item.text), content_id(item.source.rpartition(":")[0], *item.content()))
        yield Document(item.id if has_own else str(number), item.text)
    if not number:
        raise Misuse(f"{'standard input' if str(path) == '-' else path} has no queries.")


@contextmanager
def _run_file(path: Path) -> Iterator[TextIO]:
    """Open a run file for writing. An older file is replaced only when the new one is complete."""
    from retriever.files import atomic_write

    target = path.resolve()
    if target.exists() and not target.is_file():  # /dev/stdout or a pipe cannot be replaced
        with target.open("w", encoding="utf-8") as file:
            yield file
        return
    if not target.parent.is_dir():
        raise Misuse(f"cannot write {path}: there is no folder {target.parent}.")
    with atomic_write(target) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file


def _write_run(file: TextIO, query_id: str, hits: "list[Hit]") -> None:
    """Write the hits of one query in the TREC format. The columns are: query, Q0, document, rank, score, tag."""
    for hit in hits:
        for name in (query_id, hit.id):
            if any(c.isspace() for c in name):
                raise Misuse(f"the id {name!r} has white space, which a TREC run file cannot hold. Use --json instead.")
        file.write(f"{query_id} Q0 {hit.id} {hit.rank} {hit.score!r} retriever\n")


@click.command()
@click.argument("id_", metavar="ID")
@index_option
@k_option
@where_option
@json_option
def similar(id_: str, index: str | Path, k: int, where: tuple[str, ...], as_json: bool) -> None:
    """Find the documents that are most similar to a stored document."""
    from retriever.retriever import Retriever

    with Retriever.open(index) as retriever:
        hits = retriever.similar(id_, k, where=where)
    _print_hits(hits, where, as_json, similar_to=id_)
