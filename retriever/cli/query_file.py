"""Queries from a file, and their hits as a TREC run file."""

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
    """Yield queries from a .jsonl, .csv or .tsv with `text` and `_id` or `id`, or from the lines of a .txt file.

    `-` is standard input: JSONL, or one query per line. A query without an id gets its number as id.
    """
    number = 0
    for number, item in enumerate(Corpus([path], keys=Keys(fixed=True), lines=True), 1):
        if not isinstance(item, Document):
            raise BadSource(f"{item.where}: {item.reason}. Correct the query file; no query is skipped.")
        has_own = item.id not in (item.source, text_id(item.text))
        yield Document(item.id if has_own else str(number), item.text)
    if not number:
        raise Misuse(f"{'standard input' if str(path) == '-' else path} has no queries.")


@contextlib.contextmanager
def run_file(path: Path) -> Iterator[TextIO]:
    """Open a run file that replaces an older one only when it is complete."""
    target = path.resolve()
    if target.exists() and not target.is_file():  # /dev/stdout or a pipe cannot be replaced
        with target.open("w", encoding="utf-8") as file:
            yield file
        return
    if not target.parent.is_dir():
        raise Misuse(f"cannot write {path}: there is no folder {target.parent}.")
    with atomic_write(target) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file


def write_run(file: TextIO, query_id: str, hits: Iterable[Hit], tag: str = "retriever") -> None:
    """Write the hits of one query in the TREC format: query Q0 document rank score tag."""
    for hit in hits:
        for name in (query_id, hit.id):
            if any(c.isspace() for c in name):
                raise Misuse(f"the id {name!r} has white space, which a TREC run file cannot hold. Use --json instead.")
        file.write(f"{query_id} Q0 {hit.id} {hit.rank} {hit.score!r} {tag}\n")


def in_batches(queries: Iterator[Document], count: int = 256) -> Iterator[list[Document]]:
    """Group queries to be encoded together."""
    while batch := list(islice(queries, count)):
        yield batch
