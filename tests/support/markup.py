"""HTML held against its own rules: every element closed, nothing that runs, nothing a strict policy would refuse."""

from html.parser import HTMLParser

EMPTY = {"meta", "br", "wbr", "img", "input", "hr", "link"}
DRAWN = {"line", "path", "circle", "rect"}


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and the text outside of its style."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), attrs
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in EMPTY | DRAWN, tag
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def refuse_what_acts(self) -> None:
        """No script, no style of an element's own, no address, no handler."""
        for tag, attributes in self.elements:
            assert tag not in {"script", "iframe", "object", "embed", "link", "img", "a", "form", "base"}, tag
            for name in attributes:
                assert not name.startswith("on") and name not in {"style", "href", "src", "xlink:href"}, (tag, name)
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        assert len(ids) == len(set(ids))
