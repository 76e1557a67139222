"""Format quantities for people, and make foreign text safe to print: without control characters and not too long."""

import re
import unicodedata
from typing import NamedTuple

SPACE = re.compile(r"\s+")
LONGEST_WORD = 40
JOINERS = "\u200c\u200d"
"""Invisible characters that are kept, because Persian, Indic scripts and emoji are drawn wrongly without them."""
REPLACED = ("Cc", "Cs", "Cn", "Zl", "Zp")


class Excerpt(NamedTuple):
    """One printable line in three parts. `marked` is the highlighted sentence; it is empty if there is none."""

    before: str
    marked: str
    after: str


def one_line(text: str) -> str:
    """Join the lines of a text into one line, and replace control characters."""
    return _printable(" ".join(text.split()))


def lines(text: str) -> str:
    """Replace control characters, but keep line breaks, e.g. those of an error message."""
    return "\n".join(_printable(line) for line in text.split("\n"))


def cut(text: str, length: int) -> str:
    """Shorten the text to at most `length` characters. A shortened text ends with an ellipsis."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def duration(seconds: float) -> str:
    """Format a duration, e.g. "2 min 5 s"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def size(count: float) -> str:
    """Format a number of bytes in decimal units, e.g. "1.5 GB"."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:,.0f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def excerpt(passage: str, highlight: tuple[int, int] | None, length: int) -> Excerpt:
    """Cut out about `length` characters around the highlighted sentence, or up to twice as many if it is long.

    The cuts are between words if the script has spaces.
    """
    start, end = highlight or (0, 0)
    first = max(0, min(start - length // 4, len(passage) - length))
    last = min(len(passage), max(first + length, min(end, first + 2 * length)))
    if 0 < first < start and (space := SPACE.search(passage, first - 1, min(start, first + LONGEST_WORD))):
        first = space.end()
    if last < len(passage) and (ends := list(SPACE.finditer(passage, max(end, last - LONGEST_WORD), last + 1))):
        last = ends[-1].start()
    opening, closing = "… " if first > 0 else "", " …" if last < len(passage) else ""
    if not highlight:
        return Excerpt(opening + one_line(passage[first:last]), "", closing)
    marked = passage[max(first, start) : end][: last - start]
    return Excerpt(opening + _piece(passage[first:start]), one_line(marked), _piece(passage[end:last]) + closing)


def _piece(text: str) -> str:
    """Join a part of a passage into one line. If an end next to another part has white space, keep one space there."""
    line = one_line(text)
    if not line:
        return " " if text else ""
    return " " * text[0].isspace() + line + " " * text[-1].isspace()


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(map(_character, text))


def _character(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cf" and character not in JOINERS:
        return ""
    return "\ufffd" if category in REPLACED else character
