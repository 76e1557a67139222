"""Read reStructuredText: headings become those of Markdown, fields at the top become metadata.

docutils is not used, because it is slow, and does not know the directives and roles of Sphinx, which most files have.
Every line stays on its line.
"""

import re

from retriever.corpus.content import Content, described, without_first_heading, without_headings

_ADORNMENT = re.compile(r"([!-/:-@[-`{-~])\1{2,}[ \t]*$")
_FIELD = re.compile(r":([A-Za-z][\w -]{0,40}):[ \t]+(\S.*)$")
_LABEL = re.compile(r"[ \t]*\.\. _[^\n]*:[ \t]*$")
"""The name of a place for links, which is no text. It often stands before the title."""
_ROLE = re.compile(r":[\w:+.-]+:`~?([^`<]+?)(?:\s*<[^`>]*>)?`")


def read_rst(text: str) -> Content:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    styles: list[tuple[str, bool]] = []
    found: list[str] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        over = _ADORNMENT.match(line)
        if (
            over
            and number + 2 < len(lines)
            and lines[number + 2].rstrip() == line.rstrip()
            and lines[number + 1].strip()
        ):
            found += ["", _heading(lines[number + 1], (over[1], True), styles), ""]
            number += 3
            continue
        under = _ADORNMENT.match(lines[number + 1]) if number + 1 < len(lines) else None
        is_title = bool(line.strip()) and not line[0].isspace() and not over and (not found or not found[-1].strip())
        if under and is_title and len(under[0].rstrip()) >= min(len(line.rstrip()), 4):
            found += [_heading(line, (under[1], False), styles), ""]
            number += 2
            continue
        found.append("" if _LABEL.match(line) else without_headings(line))
        number += 1
    content = without_first_heading(Content(_ROLE.sub(r"\1", "\n".join(found))))
    content.metadata = described(**_fields(lines))
    return content


def _heading(title: str, style: tuple[str, bool], styles: list[tuple[str, bool]]) -> str:
    """Return a heading. Its level is the position of its adornment in the list of the file's adornments."""
    if style not in styles:
        styles.append(style)
    return f"{'#' * min(styles.index(style) + 1, 6)} {title.strip()}"


def _fields(lines: list[str]) -> dict[str, str]:
    """Return the fields before the first section and after the title, e.g. `:author: Ada`."""
    fields: dict[str, str] = {}
    for line in lines[:40]:
        if found := _FIELD.match(line):
            fields[found[1].lower()] = found[2].strip()
        elif fields and line.strip():
            break
    return fields
