"""The structure of a stored text: its sections, where a passage is in its file, and which parts are sentences.

Everything is found in the text itself. Headings are written as in Markdown, and pages are separated by form feeds. The
metadata `format` says which of them a text has. So nothing else has to be stored, and every collection can name the
place of a passage.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from retriever.corpus.formats import format_of

WITH_HEADINGS = frozenset({"md", "rst", "ipynb", "html", "eml", "docx", "pptx", "epub"})
"""Formats whose text has headings as Markdown writes them: a line that begins with one to six #."""
WITH_PAGES = frozenset({"pdf", "pptx"})
"""Formats whose text has pages or slides, separated by form feeds."""


class Span(NamedTuple):
    """A part of a text: `text[start:end]`. The span of a passage is never empty and has no white space at its ends."""

    start: int
    end: int


SEPARATOR = " › "


@dataclass(frozen=True, slots=True)
class Place:
    """Where a passage is, as far as it is known."""

    file: str = ""
    line: int | None = None
    """The line of the file on which the passage begins. None if the text is not the lines of a file."""
    page: int | None = None
    """The page or slide, from 1."""
    headings: tuple[str, ...] = ()
    """The headings that the passage is under, from the title of the document down."""

    def __str__(self) -> str:
        file = f"{self.file}:{self.line}" if self.line else self.file
        page = f"page {self.page}" if self.page else ""
        return ", ".join(part for part in (file, page, SEPARATOR.join(self.headings)) if part)


NOWHERE = Place()


_FENCE_OR_HEADING = re.compile(r"^ {0,3}(?:(`{3,}|~{3,})|(#{1,6})[ \t]+([^\n]*?)[ \t#]*$)", re.MULTILINE)
_TABLE_ROW = re.compile(r"^[ \t]*\|.*$|^[ \t]*[|:+=-][|:+=\- \t]{2,}$", re.MULTILINE)
_INDENTED = re.compile(r"(?:\A|(?<=\n\n))(?:(?: {4}|\t)[^\n]*(?:\n|\Z)|[ \t]*\n(?= {4}|\t))+")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\(?\w{1,3}[.)])[ \t]|[ \t]+\S")
_LITERAL = re.compile(
    r"^(?![ \t]*\.\. (?!code|sourcecode|parsed-literal))[^\n]*::[ \t\w+-]*\n((?:[ \t]+\S[^\n]*(?:\n|\Z)|[ \t]*\n)+)",
    re.MULTILINE,
)
"""Code in reStructuredText: it is indented after `::`."""
_PAGE = "\f"
_NUMBERED = re.compile(r"(?:document \d+|(.*?)(?::(\d+)|\[\d+\])?)", re.DOTALL)
"""The source of a document. One that was not read from a file has only its number."""


@dataclass(frozen=True, slots=True)
class Heading:
    start: int
    level: int
    title: str


def headings(text: str) -> list[Heading]:
    """Return the headings outside of code blocks, in order."""
    found = []
    fence = ""
    for match in _FENCE_OR_HEADING.finditer(text):
        mark, level, title = match.groups()
        if mark:
            if not fence:
                fence = mark
            elif mark[0] == fence[0] and len(mark) >= len(fence):
                fence = ""
        elif not fence and title:
            found.append(Heading(match.start(), len(level), title))
    return found


def format_of_whole(metadata: Mapping[str, Any], source: str = "") -> str:
    """Return the format of a document that is a whole file or a message.

    It is empty for any other document, although a row of a table may have columns `file` and `format`. `source` is the
    place of the document, if it is known.
    """
    file, format = metadata.get("file"), metadata.get("format")
    if source and (found := _NUMBERED.fullmatch(source)) and file not in (source, found[1]):
        return ""
    of_name = format_of(file) if isinstance(file, str) else ""
    return of_name if of_name == format else "eml" if (of_name, format) == ("mbox", "eml") else ""


def sections(text: str, metadata: Mapping[str, Any], source: str) -> list[Span]:
    """Return the parts of a text that passages do not cross: sections under one heading, and pages.

    A heading without a text of its own belongs to the section after it. A text without structure is one section.
    """
    format = format_of_whole(metadata, source)
    cuts: set[int] = set()
    if format in WITH_HEADINGS:
        cuts.update(_section_starts(text))
    if format in WITH_PAGES:
        cuts.update(match.start() for match in re.finditer(_PAGE, text))
    cuts -= {0}
    ends = [*sorted(cuts), len(text)]
    return [Span(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _section_starts(text: str) -> list[int]:
    starts: list[int] = []
    end_of_last: int | None = None
    for heading in headings(text):
        if end_of_last is None or text[end_of_last : heading.start].strip():
            starts.append(heading.start)
        line_end = text.find("\n", heading.start)
        end_of_last = len(text) if line_end < 0 else line_end
    return starts


def place_of(document: Mapping[str, Any], start: int) -> Place:
    """Return where the passage of a stored document that begins at `start` is."""
    text, metadata, title = document["text"], document["metadata"], document["title"]
    found = _NUMBERED.fullmatch(document.get("source", ""))
    file, number = (found[1] or "", found[2]) if found else ("", None)
    whole = bool(metadata.get("file")) and metadata.get("file") == file and isinstance(metadata.get("format"), str)
    format = format_of_whole(metadata) if whole else ""
    line: int | None = None
    if not whole:
        line = int(number) if number else None
    elif format not in _WITHOUT_LINES:
        line = int(number or 1) + text.count("\n", 0, start)
    page = text.count(_PAGE, 0, start + 1) + 1 if format in WITH_PAGES else None
    path = _path(text, start) if format in WITH_HEADINGS else ()
    if path and title and path[0] != title:
        path = (title, *path)
    return Place(file, line, page, path)


_WITHOUT_LINES = (WITH_HEADINGS | WITH_PAGES) - {"md", "rst"}


def _path(text: str, start: int) -> tuple[str, ...]:
    """Return the headings that an offset is under. A heading that begins at the offset counts too."""
    path: list[Heading] = []
    for heading in headings(text):
        if heading.start > start and text[start : heading.start].strip():
            break
        while path and path[-1].level >= heading.level:
            path.pop()
        path.append(heading)
        line_end = text.find("\n", heading.start)
        start = max(start, len(text) if line_end < 0 else line_end) if heading.start >= start else start
    return tuple(heading.title for heading in path)


def no_prose(text: str) -> list[Span]:
    """Return the parts of a text that are not sentences: headings, code blocks and rows of tables."""
    found = [Span(row.start(), row.end()) for row in _TABLE_ROW.finditer(text)]
    found += [Span(code.start(1), code.end()) for code in _LITERAL.finditer(text)]
    for code in _INDENTED.finditer(text):
        before = text[: code.start()].rstrip()
        if not _LIST_ITEM.match(before, before.rfind("\n") + 1):
            found.append(Span(code.start(), code.end()))
    fence, began = "", 0
    for match in _FENCE_OR_HEADING.finditer(text):
        mark = match[1]
        if not mark:
            found.append(Span(match.start(), match.end()))
        elif not fence:
            fence, began = mark, match.start()
        elif mark[0] == fence[0] and len(mark) >= len(fence):
            found.append(Span(began, match.end()))
            fence = ""
    return [*found, Span(began, len(text))] if fence else found
