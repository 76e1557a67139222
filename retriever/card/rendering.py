"""Rendering of a card as an HTML file, as a part of a page, or as Markdown.

The HTML file needs no other file. It has no script and no external font, and its content security policy forbids
browsers to load anything. The templates escape all data.
"""

import re
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from retriever.card.contents import Card
from retriever.card.sections import headline, main_plot, sections, verdict
from retriever.errors import Misuse
from retriever.files import atomic_write
from retriever.terminal import one_line

EXTENSIONS = (".html", ".htm", ".md")
# Characters that have a meaning in Markdown, or that GitHub turns into links or mentions.
_MARKS = re.compile(r"[\\`*_\[\]<>&|~#!$@{}]|:(?=//)|(?<=www)\.", re.IGNORECASE)


class RawMarkdown(str):
    """Markdown that is not escaped."""


def article(card: Card) -> str:
    """Render `<article class="card">` without style or script. The file card.css has its style."""
    return _render("article.html", card).strip()


def page(card: Card) -> str:
    """Render a complete HTML file."""
    css = resources.files("retriever.serve").joinpath("page", "card.css").read_text(encoding="utf-8")
    return _render("page.html", card, css=Markup(css))


def markdown(card: Card) -> str:
    """Render Markdown, without plots."""
    return re.sub(r"\n{3,}", "\n\n", _render("card.md", card)).strip() + "\n"


def write_card(card: Card, path: Path) -> None:
    """Write the card atomically. The file name extension decides between HTML and Markdown."""
    check_extension(path)
    text = markdown(card) if path.suffix.lower() == ".md" else page(card)
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_extension(path: Path) -> None:
    """Raise Misuse unless the file name extension means HTML or Markdown."""
    if path.suffix.lower() not in EXTENSIONS:
        raise Misuse(f"unknown file type of {path}; a card is written as .html or .md.")


@cache
def _environment(finalize: Callable[[object], str], autoescape: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("retriever.card"),
        autoescape=autoescape,  # off for Markdown, because `_escaped` escapes it
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["raw_markdown"] = RawMarkdown
    return environment


def _render(template: str, card: Card, **more: Any) -> str:
    environment = _environment(_escaped, False) if template.endswith(".md") else _environment(_visible, True)
    found = sections(card)
    return environment.get_template(template).render(
        card=card,
        verdict=verdict(card),
        main_plot=main_plot(found),
        headline=headline(card),
        sections=found,
        **more,
    )


def _visible(value: object) -> str:
    """Remove invisible characters. They could e.g. reverse the text that follows them."""
    return value if isinstance(value, Markup) else one_line(str(value))


def _escaped(value: object) -> str:
    return value if isinstance(value, RawMarkdown) else _MARKS.sub(r"\\\g<0>", one_line(str(value)))
