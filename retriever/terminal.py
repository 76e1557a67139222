"""Text from documents, files and users made fit for a terminal, which obeys some characters instead of showing them."""

import unicodedata

JOINERS = "\u200c\u200d"
"""What decides how Persian, Indic scripts and emoji are drawn; the other invisible characters are left out."""
REPLACED = ("Cc", "Cs", "Cn", "Zl", "Zp")


def one_line(text: str) -> str:
    """A text on one line, without what a terminal would obey."""
    return _shown(" ".join(text.split()))


def lines(text: str) -> str:
    """The same for a text whose own lines are kept, such as an error message."""
    return "\n".join(_shown(line) for line in text.split("\n"))


def cut(text: str, length: int) -> str:
    """The beginning of a text that is too long to be shown whole."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _shown(text: str) -> str:
    return text if text.isprintable() else "".join(map(_character, text))


def _character(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cf" and character not in JOINERS:
        return ""
    return "\ufffd" if category in REPLACED else character
