"""The structure of texts: passages along headings and pages, the places of passages, and what counts as a sentence."""

from pathlib import Path
from typing import Any

import files_made_up as made

from retriever.corpus import Corpus, Document
from retriever.corpus.passages import passage_spans, prose
from retriever.corpus.structure import Place, place_of

GUIDE = """---
author: Ada
---
# Guide

Welcome to it.

## Install

### Windows

Run the installer. Then restart.

```
# no heading
```

### Linux

Use the package.

## Use

| a | b |
|---|---|
| 1 | 2 |

Type a word. Press enter.
"""


class Words:
    """Counts words as tokens."""

    token_budget = 200

    def count_tokens(self, texts: list[str]) -> list[int]:
        return [len(text.split()) for text in texts]


def fields(document: Document) -> dict[str, Any]:
    return {name: getattr(document, name) for name in ("title", "text", "metadata", "source")}


def places(document: Document) -> list[tuple[str, Place]]:
    _, spans = passage_spans(document, Words())
    return [(document.text[start:end], place_of(fields(document), start)) for start, end in spans]


def only(path: Path) -> Document:
    (item,) = Corpus([path])
    assert isinstance(item, Document)
    return item


def test_markdown_is_cut_along_its_headings(tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_text(GUIDE)
    lines = GUIDE.split("\n")
    found = places(only(path))
    assert [str(place) for _, place in found] == [
        "guide.md:6",
        "guide.md:8, Guide › Install › Windows",
        "guide.md:18, Guide › Install › Linux",
        "guide.md:22, Guide › Use",
    ]
    for text, place in found:
        assert place.line and text.split("\n")[0] == lines[place.line - 1]


def test_passages_inside_of_a_long_section_know_its_headings(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("# T\n\n## Long\n\n" + "A sentence of five words. " * 200 + "\n\n## Next\n\nEnd.\n")
    found = places(only(path))
    assert len(found) > 5 and {place.headings for _, place in found[:-1]} == {("T", "Long")}
    assert found[-1][1].headings == ("T", "Next")


def test_pages_and_slides(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(made.pdf(["One.", "Two.", "Three."]))
    (tmp_path / "b.pptx").write_bytes(made.pptx_file({"First": "Alpha.", "Second": "Beta."}))
    assert [(text, str(place)) for text, place in places(only(tmp_path / "a.pdf"))] == [
        ("One.", "a.pdf, page 1"),
        ("Two.", "a.pdf, page 2"),
        ("Three.", "a.pdf, page 3"),
    ]
    assert [str(place) for _, place in places(only(tmp_path / "b.pptx"))] == [
        "b.pptx, page 1, First",
        "b.pptx, page 2, Second",
    ]


def test_rows_have_lines_and_other_texts_no_structure(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,text\n1,# no heading\n2,two\n")
    assert [str(place_of(fields(item), 0)) for item in Corpus([path]) if isinstance(item, Document)] == [
        "t.csv:2",
        "t.csv:3",
    ]
    path.write_text("id,text,format,file\n1,# two\f pages,pdf,t.pdf\n2,# one,md,t.csv\n")
    assert [str(place) for item in Corpus([path]) if isinstance(item, Document) for _, place in places(item)] == [
        "t.csv:2",
        "t.csv:3",
    ]
    path.unlink()
    code = tmp_path / "a.py"
    code.write_text("# one\nx = 1\n\n# two\ny = 2\n")
    (item,) = Corpus([tmp_path], include=["*.py"])
    assert isinstance(item, Document) and [str(place) for _, place in places(item)] == ["a.py:1"]
    assert place_of({"title": "", "text": "x", "metadata": {}, "source": ""}, 0) == Place()


def test_headings_code_and_tables_are_no_sentences() -> None:
    passage = GUIDE.partition("---\n# Guide")[2]
    marked = [passage[a:b] for a, b in prose(passage, {"file": "a.md", "format": "md"})]
    assert marked == [
        *("Welcome to it.", "Run the installer.", "Then restart.", "Use the package.", "Type a word.", "Press enter."),
    ]
    assert prose("One sentence.", {"file": "a.md", "format": "md"}) == []
    assert len(prose("One sentence. Another one.", {})) == 2
    indented = (
        "Some words. More words.\n\n    x = 1. y = 2.\n\n    z = 3\n\n- A list.\n\n    Its second part. And more.\n"
    )
    assert [indented[a:b] for a, b in prose(indented, {"file": "a.md", "format": "md"})] == [
        *("Some words.", "More words.", "- A list.", "Its second part.", "And more."),
    ]
    literal = "Do this. Then::\n\n  x = 1. y = 2.\n\n.. note::\n\n   Mind this. And that.\n"
    assert [literal[a:b] for a, b in prose(literal, {"file": "a.rst", "format": "rst"})] == [
        *("Do this.", "Then::", ".. note::", "Mind this.", "And that."),
    ]
