"""The part of a hit's passage that is shown where there is little room: one line around its highlighted sentence."""

from typing import NamedTuple

from retriever.search.searcher import Hit
from retriever.terminal import one_line


class Excerpt(NamedTuple):
    """One line in three parts, fit to be shown; `marked` is the highlighted sentence, or nothing."""

    before: str
    marked: str
    after: str


def excerpt(hit: Hit, length: int) -> Excerpt:
    """About `length` characters of the passage, twice that where its highlighted sentence is long."""
    start, end = hit.highlight or (0, 0)
    first = max(0, min(start - length // 4, len(hit.passage) - length))
    last = min(len(hit.passage), max(first + length, min(end, first + 2 * length)))
    opening, closing = "… " if first > 0 else "", " …" if last < len(hit.passage) else ""
    if not hit.highlight:
        return Excerpt(opening + one_line(hit.passage[first:last]), "", closing)
    marked = hit.passage[max(first, start) : end][: last - start]
    return Excerpt(
        opening + _piece(hit.passage[first:start]), one_line(marked), _piece(hit.passage[end:last]) + closing
    )


def _piece(text: str) -> str:
    """Part of a passage on one line, with a space where it ends in white space, to be joined to its neighbours."""
    line = one_line(text)
    if not line:
        return " " if text else ""
    return " " * text[0].isspace() + line + " " * text[-1].isspace()
