"""Shows hits and documents in the terminal."""

from collections.abc import Sequence

from rich.text import Text

from retriever.cli.display import console
from retriever.corpus import Document
from retriever.hits import Answer, Hit
from retriever.terminal import cut, excerpt, one_line

PASSAGE_LENGTH = 420
TITLE_LENGTH = 120
CELL_LENGTH = 60


def show_hits(hits: Sequence[Hit], *, filtered: bool = False) -> None:
    """Show rank, score, title and id of each hit, and its passage with the matching sentence highlighted."""
    if not hits:
        console.out.print(f"Nothing found{' among the documents that match the filter' if filtered else ''}.")
    for hit in hits:
        head = Text().append(f"{hit.rank:>3}  ", style="bold").append(f"{hit.score:.3f}  ", style="cyan")
        console.out.print(head + _name(hit.title, hit.id), soft_wrap=True)
        shown = excerpt(hit.passage, hit.highlight, PASSAGE_LENGTH)
        passage = Text(shown.before).append(shown.marked, style="bold yellow").append(shown.after)
        for line in passage.wrap(console.out, max(console.out.width - 5, 20)):
            console.out.print(Text("     ") + line)


def show_novelty(answer: Answer) -> None:
    """Warn about a query that is far from everything in the collection."""
    if answer.strange:
        console.warn(
            "Note: this query is unlike anything in the collection "
            f"({answer.novelty:.2f} bits per dimension; ordinary short texts stay below {answer.limit:.2f}), "
            "so the hits may be irrelevant."
        )


def show_novel_queries(answered: int, strange: int, first: str) -> None:
    """Warn in one line about the queries of a file that are far from everything in the collection."""
    if strange:
        console.warn(
            f"Note: {strange:,} of {'1 query is' if answered == 1 else f'{answered:,} queries are'} unlike anything in "
            f"the collection, so their hits may be irrelevant. The first: {one_line(first)}"
        )


def show_comparison(query: str, chosen: Sequence[Hit], raw: Sequence[Hit]) -> None:
    """Show the ranking of the index next to the ranking by raw vectors, and how many ranks each hit moved."""
    if not chosen and not raw:
        console.out.print("Nothing found.")
        return
    raw_ranks = {hit.id: hit.rank for hit in raw}
    table = console.table(">rank", "in the index", ">moved", "raw encoder", title=f"“{one_line(query)}”")
    for place in range(max(len(chosen), len(raw))):
        own = chosen[place] if place < len(chosen) else None
        other = raw[place] if place < len(raw) else None
        table.add_row(str(place + 1), _cell(own), _moved(own, raw_ranks, len(raw)) if own else Text(), _cell(other))
    console.out.print(table)


def show_document(document: Document) -> None:
    console.out.print(_name(document.title, document.id), soft_wrap=True)
    for key, value in document.metadata.items():
        console.out.print(Text(f"{one_line(str(key))}: {one_line(str(value))}", style="dim"), soft_wrap=True)
    for line in document.text.splitlines():
        console.out.print(one_line(line), soft_wrap=True)


def _name(title: str, id_: str) -> Text:
    """Return the title and the id, or only the id if there is no title or it equals the id."""
    title, id_ = cut(one_line(title), TITLE_LENGTH), one_line(id_)
    named = Text().append(title or id_, style="bold")
    return named.append(f"  {id_}", style="dim") if title and title != id_ else named


def _cell(hit: Hit | None) -> Text:
    if hit is None:
        return Text()
    name = cut(one_line(hit.title) or one_line(hit.id), CELL_LENGTH)
    return Text().append(f"{hit.score:.3f} ", style="cyan").append(name)


def _moved(hit: Hit, raw_ranks: dict[str, int], shown: int) -> Text:
    if hit.id not in raw_ranks:
        return Text(f"new (>{shown})", style="green")
    step = raw_ranks[hit.id] - hit.rank
    return Text(f"▲ {step}", style="green") if step > 0 else Text(f"▼ {-step}", style="red") if step else Text("=")
