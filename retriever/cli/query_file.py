"""Batches of queries from a file, and their answers as a TREC run."""

import contextlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

from retriever.corpus import Corpus, Document, Keys
from retriever.corpus.document import text_id
from retriever.errors import BadSource, Misuse
from retriever.files import atomic_write
from retriever.hits import Hit


def read_queries(path: Path) -> Iterator[Document]:
    """Queries as (id, text): a .jsonl with `_id` or `id`, a .csv or .tsv with those columns, a .txt line by line.

    `-` is standard input: JSONL, or a query a line. A query without an id goes by its number.
    """
    number = 0
    for number, item in enumerate(Corpus([path], keys=Keys(fixed=True), lines=True), 1):
        if not isinstance(item, Document):
            raise BadSource(f"{item.where}: {item.reason}. Mend the query file; nothing was left out silently.")
        has_own = item.id not in (item.source, text_id(item.text))
        yield Document(item.id if has_own else str(number), item.text)
    if not number:
        raise Misuse(f"{'standard input' if str(path) == '-' else path}: there is no query in it.")


@contextlib.contextmanager
def run_file(path: Path) -> Iterator[TextIO]:
    """A file to write a run to, which takes its name only once it is whole; an older one stays until then."""
    target = path.resolve()
    if target.exists() and not target.is_file():  # /dev/stdout, a pipe: nothing that could be renamed over
        with target.open("w", encoding="utf-8") as file:
            yield file
        return
    if not target.parent.is_dir():
        raise Misuse(f"{path}: there is no folder {target.parent} to write it to.")
    with atomic_write(target) as aside, aside.open("w", encoding="utf-8") as file:
        yield file


def write_run(file: TextIO, query_id: str, hits: Iterable[Hit], tag: str = "retriever") -> None:
    """The hits of one query as lines of a TREC run file: query Q0 document rank score tag."""
    for hit in hits:
        for name in (query_id, hit.id):
            if any(c.isspace() for c in name):
                raise Misuse(f"the id {name!r} holds white space, which a TREC run file cannot carry; use --json.")
        file.write(f"{query_id} Q0 {hit.id} {hit.rank} {hit.score!r} {tag}\n")


def in_batches(queries: Iterator[Document], count: int = 256) -> Iterator[list[Document]]:
    """Queries some at a time, as many as are encoded together."""
    while batch := list(islice(queries, count)):
        yield batch
