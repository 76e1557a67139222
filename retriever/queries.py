"""Batches of queries from a file, and their answers as a TREC run."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

from retriever.corpus import Corpus, Document
from retriever.errors import BadSource, Misuse
from retriever.search import Hit


def read_queries(path: Path) -> Iterator[Document]:
    """Queries as (id, text): a .jsonl with `_id` or `id`, a .csv or .tsv with those columns, a .txt line by line."""
    for number, item in enumerate(Corpus([path], lines=True), 1):
        if not isinstance(item, Document):
            raise BadSource(f"{item.where}: {item.reason}. Mend the query file; nothing was left out silently.")
        own = item.id if item.id != item.source else str(number)
        yield Document(own, item.text)


def write_run(file: TextIO, query_id: str, hits: Iterable[Hit], tag: str = "retriever") -> None:
    """The hits of one query as lines of a TREC run file: query Q0 document rank score tag."""
    for hit in hits:
        for name in (query_id, hit.id):
            if any(c.isspace() for c in name):
                raise Misuse(f"the id {name!r} holds white space, which a TREC run file cannot carry; use --json.")
        file.write(f"{query_id} Q0 {hit.id} {hit.rank} {hit.score:.9f} {tag}\n")


def in_batches(queries: Iterator[Document], count: int = 256) -> Iterator[list[Document]]:
    """Queries some at a time, as many as are encoded together."""
    while batch := list(islice(queries, count)):
        yield batch
