"""Read HTML: the main text with its headings, lists, tables and code, the title, and what the page says about itself.

selectolax has a fast parser in C, lexbor. Navigation, scripts and forms are left out. Between blocks, characters of the
private use area are inserted, so that white space can be collapsed in one step.
"""

import re
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from retriever.corpus.content import Content, described, without_first_heading
from retriever.corpus.encodings import decoded

LEFT_OUT = (
    "script, style, noscript, template, svg, math, iframe, object, nav, footer, button, select, textarea, "
    "aside:not([class*=admonition]):not([class*=callout]):not([class*=note]):not([class*=warning]), "
    "dialog, canvas, audio, video, .headerlink, .toctree-wrapper, .visually-hidden, [hidden], [aria-hidden=true]"
)
MAIN = ("main", "[role=main]", "article")
SMALLEST_MAIN = 0.2
"""The minimum share of the text of the page that its main part must have. Otherwise all of the page is read."""
LARGEST_FORM = 0.5
"""A form is left out, unless it has more than this share of the text of the page: then the page is in it."""
BLOCKS = (
    "p, div, section, table, caption, blockquote, ul, ol, dl, dt, dd, figure, figcaption, hr, li, br, main, article, "
    "aside, header, hgroup, address, fieldset, legend, details, summary, form"
)

_BREAK, _SPACE_KEPT = "\ue000", "\ue001"
_LEVELS = {f"h{level}": "#" * level for level in range(1, 7)}
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)


def read_html(data: bytes, encoding: str | None = None) -> Content:
    declared = _CHARSET.search(data, 0, 4096)
    text, _ = decoded(data, encoding, declared[1].decode("ascii") if declared else None)
    return html_content(text)


def html_content(html: str) -> Content:
    tree = LexborHTMLParser(html.replace(_BREAK, "").replace(_SPACE_KEPT, ""))
    if tree.root is None or tree.body is None:
        return Content("", line=0)
    facts = _facts(tree)
    for node in tree.css(LEFT_OUT):
        node.decompose()
    for form in tree.css("form"):
        if len(form.text(deep=True)) <= LARGEST_FORM * len(tree.body.text(deep=True)):
            form.decompose()
    root = _main(tree)
    headings = [heading for heading in root.css("h1") if heading.text(strip=True)]
    title = _inline(headings[0]) if len(headings) == 1 else facts.pop("title", "")
    facts.pop("title", None)
    _mark_blocks(root)
    text = _one_spaced(root.text(deep=True)).replace(f" {_BREAK}", _BREAK).replace(f"{_BREAK} ", _BREAK)
    while _BREAK * 3 in text:
        text = text.replace(_BREAK * 3, _BREAK * 2)
    text = text.replace(_BREAK, "\n").replace(_SPACE_KEPT, " ").strip()
    content = Content(text, "", facts, line=0)
    if text.startswith("# "):
        content = without_first_heading(content)
    content.title = title or content.title
    return content


def _main(tree: LexborHTMLParser) -> LexborNode:
    """Return the main part of the page. Return the body if the page marks no main part or a very small one."""
    body = tree.body
    assert body is not None
    marked = tree.css(", ".join(MAIN))
    for selector in MAIN if marked else ():
        found = [node for node in marked if node.css_matches(selector)]
        if len(found) == 1 and len(found[0].text(deep=True)) >= SMALLEST_MAIN * len(body.text(deep=True)):
            return found[0]
    for header in tree.css("body > header"):
        if header.css_first("h1") is None:
            header.decompose()
    return body


def _inline(node: LexborNode) -> str:
    return _one_spaced(node.text(deep=True))


def _one_spaced(text: str) -> str:
    """Make every white space one space. This is several times as fast as a regular expression."""
    return " ".join(text.split())


def _mark_blocks(root: LexborNode) -> None:
    """Put breaks around blocks, and mark headings, list items, code and table rows as in Markdown."""
    for node in root.css("pre"):
        code = node.text(deep=True).strip("\n").replace("\n", _BREAK).replace(" ", _SPACE_KEPT)
        node.replace_with(f"{_BREAK * 2}```{_BREAK}{code}{_BREAK}```{_BREAK * 2}")
    for node in root.css("h1, h2, h3, h4, h5, h6"):
        if title := _inline(node):
            node.replace_with(f"{_BREAK * 2}{_LEVELS[node.tag or 'h1']} {title}{_BREAK * 2}")
    for node in root.css(BLOCKS):
        tag = node.tag
        if tag == "li":
            node.insert_before(f"{_BREAK}- ")
        elif tag == "br":
            node.replace_with(_BREAK)
        else:
            node.insert_before(_BREAK * 2 if tag != "p" or (node.parent and node.parent.tag != "li") else " ")
            node.insert_after(_BREAK * 2)
    for node in reversed(root.css("tr")):  # a table in a cell becomes text before the row that it is in
        cells = [_one_spaced(cell.text(deep=True).replace(_BREAK, " ")) for cell in node.css("th, td")]
        node.replace_with(f"{_BREAK}| {' | '.join(cells)} |")


def _facts(tree: LexborHTMLParser) -> dict[str, Any]:
    found: dict[str, str] = {}
    for node in (tree.head or tree).css("meta[content]"):
        name = node.attributes.get("name") or node.attributes.get("property") or ""
        found.setdefault(name.lower(), node.attributes.get("content") or "")
    root, title = tree.root, tree.css_first("title")
    facts = described(
        title=_inline(title) if title else found.get("og:title"),
        author=found.get("author"),
        description=found.get("description"),
        keywords=found.get("keywords"),
        date=found.get("date") or found.get("article:published_time") or found.get("dcterms.date"),
        language=root.attributes.get("lang") if root else None,
    )
    return facts
