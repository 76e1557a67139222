"""What a file holds that is one document: its text with structure, its title and what it says about itself."""

import re
from dataclasses import dataclass, field
from typing import Any


class Refused(Exception):
    """A file is not read, or not read to its end. The message gives the reason and follows the name of the file."""


@dataclass(slots=True)
class Content:
    """The content of a file. Headings are written as in Markdown, and pages are separated by form feeds."""

    text: str
    title: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    line: int = 1
    """The line of the file on which the text begins. 0 if the lines of the text are not those of the file."""
    note: str = ""
    """What of the file could not be read as it was meant, for the account of the files."""


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?=$|[-_])")
_LIKE_MARKDOWN = re.compile(r"^ {0,3}(?=#{1,6}[ \t]|```|~~~)", re.MULTILINE)
_FIRST_HEADING = re.compile(r"\s*#[ \t]+([^\n]*?)[ \t#]*(?:\n|\Z)")


def described(**facts: Any) -> dict[str, Any]:
    """Return the metadata that a file has about itself, without empty values. A date is shortened to its day."""
    found = {key: value.strip() if isinstance(value, str) else value for key, value in facts.items()}
    if date := _DATE.match(str(found.get("date") or "")):
        found["date"] = date[0]
    else:
        found.pop("date", None)
    if "language" in found:
        language = _LANGUAGE.match(str(found["language"] or "").strip())
        found["language"] = language[0].lower() if language else None
    return {key: value for key, value in found.items() if value not in (None, "", [])}


def without_headings(text: str) -> str:
    """Indent the lines of a plain text that Markdown would take for a heading or for the mark of a code block."""
    return _LIKE_MARKDOWN.sub("    ", text)


def without_first_heading(content: Content) -> Content:
    """If the text begins with a heading of the first level, make it the title and remove it from the text."""
    found = _FIRST_HEADING.match(content.text)
    if found and (title := found[1].strip()) and content.text[found.end() :].strip():
        rest = content.text[found.end() :]
        body = rest.lstrip("\r\n")
        if content.line:
            content.line += content.text.count("\n", 0, found.end()) + rest[: len(rest) - len(body)].count("\n")
        content.title, content.text = content.title or title, body
    return content
