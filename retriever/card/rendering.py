"""The card as one HTML file, as a part of a page, and as Markdown.

The HTML file needs no other: no script, no font, no network; its own policy forbids a browser to fetch anything.
Whatever comes from data is escaped by the templates.
"""

import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from retriever.card.contents import Card
from retriever.card.sections import headline, sections
from retriever.errors import Misuse
from retriever.files import atomic_write
from retriever.terminal import one_line

ENDINGS = (".html", ".htm", ".md")
# What Markdown would obey anywhere in a line, and what GitHub makes a link or a mention of by itself.
_MARKS = re.compile(r"[\\`*_\[\]<>&|~#!$@{}]|:(?=//)|(?<=www)\.", re.IGNORECASE)


class Written(str):
    """Markdown that is written as it stands."""


def article(card: Card) -> str:
    """The card as `<article class="card">`, to be styled by card.css; it has no style and no script of its own."""
    return _html().get_template("article.html").render(_content(card)).strip()


def page(card: Card) -> str:
    """The card as a whole HTML file."""
    css = resources.files("retriever.serve").joinpath("page", "card.css").read_text(encoding="utf-8")
    return _html().get_template("page.html").render(_content(card), css=Markup(css))


def markdown(card: Card) -> str:
    """The card as Markdown, without its plots."""
    text = _markdown().get_template("card.md").render(_content(card))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def write_card(card: Card, path: Path) -> None:
    """Write the card, whole or not at all, in the format that the ending of the file's name says."""
    check_ending(path)
    text = markdown(card) if path.suffix.lower() == ".md" else page(card)
    with atomic_write(path) as aside:
        aside.write_text(text, encoding="utf-8")


def check_ending(path: Path) -> None:
    """Refuse a file that is neither HTML nor Markdown by its name."""
    if path.suffix.lower() not in ENDINGS:
        raise Misuse(f"{path} says no format; a card is written as .html or .md.")


def _content(card: Card) -> dict[str, Any]:
    return {"card": card, "headline": headline(card), "sections": sections(card)}


@cache
def _html() -> Environment:
    return Environment(
        loader=PackageLoader("retriever.card"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _markdown() -> Environment:
    environment = Environment(
        loader=PackageLoader("retriever.card"),
        undefined=StrictUndefined,
        finalize=_escaped,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["written"] = Written
    return environment


def _shown(value: object) -> str:
    """No character that a reader would not see reaches the page: it could turn what stands beside it around."""
    return value if isinstance(value, Markup) else one_line(str(value))


def _escaped(value: object) -> str:
    return value if isinstance(value, Written) else _MARKS.sub(r"\\\g<0>", one_line(str(value)))
