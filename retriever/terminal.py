"""Make text from documents, files and users safe to print: terminals obey control characters."""

import unicodedata

JOINERS = "\u200c\u200d"
"""Invisible characters that Persian, Indic scripts and emoji need; the other invisible ones are removed."""
REPLACED = ("Cc", "Cs", "Cn", "Zl", "Zp")


def one_line(text: str) -> str:
    """Put a text on one line and replace control characters."""
    return _shown(" ".join(text.split()))


def lines(text: str) -> str:
    """Replace control characters but keep the line breaks, e.g. of an error message."""
    return "\n".join(_shown(line) for line in text.split("\n"))


def cut(text: str, length: int) -> str:
    """Cut a text that is longer than `length` and end it with an ellipsis."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _shown(text: str) -> str:
    return text if text.isprintable() else "".join(map(_character, text))


def _character(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cf" and character not in JOINERS:
        return ""
    return "\ufffd" if category in REPLACED else character
