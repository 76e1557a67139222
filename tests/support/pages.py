"""HTML as a browser's parser meets it: elements that are closed, their attributes and their text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "wbr", "img", "link", "input", "hr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of its text, on one line."""
        parts = [child if isinstance(child, str) else child.text for child in self.children]
        return " ".join("".join(parts).split())

    def find(self, tag: str, kind: str = "") -> list[Element]:
        """Everything inside of it with this tag and, if given, this class."""
        return [one for one in self if one.tag == tag and (not kind or kind in one.attributes.get("class", "").split())]

    def __iter__(self) -> Iterator[Element]:
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("page", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        closed = self.open.pop()
        assert closed.tag == tag, f"<{closed.tag}> is closed by </{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse_page(text: str) -> Element:
    """The page as a tree; one whose tags do not match fails the test."""
    parser = _Parser()
    parser.feed(text)
    parser.close()
    assert [one.tag for one in parser.open] == ["page"], "not everything is closed"
    return parser.open[0]
