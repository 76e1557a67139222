"""Files of every format: text, title, metadata, structure, and a reason for each one that cannot be read."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import files_made_up as made
import pytest

from retriever.corpus import Corpus, Document, Skipped
from retriever.corpus.formats import ENDINGS
from retriever.corpus.structure import headings
from retriever.errors import Misuse


def only(path: Path, **options: object) -> Document | Skipped:
    (item,) = Corpus([path], **options)  # type: ignore[arg-type]
    return item


def document(path: Path, **options: object) -> Document:
    item = only(path, **options)
    assert isinstance(item, Document), item
    return item


def test_every_format_is_read_in_a_folder(tmp_path: Path) -> None:
    for ending, content in made.every_format("The tapir sleeps.").items():
        (tmp_path / f"a.{ending}").write_bytes(content)
    corpus = Corpus([tmp_path])
    read = list(corpus)
    assert not [item for item in read if isinstance(item, Skipped)]
    assert all("tapir" in item.text for item in read if isinstance(item, Document))
    assert set(corpus.account.read) == set(ENDINGS.values()) and sum(corpus.account.read.values()) == len(read)


def test_markdown_with_front_matter(tmp_path: Path) -> None:
    path = tmp_path / "notes" / "a.md"
    path.parent.mkdir()
    path.write_text("---\ntitle: T\nauthor: Ada\ndate: 2024-05-06\ntags: [x, y]\n---\n\n# Install\n\nText.\n")
    (item,) = Corpus([tmp_path])
    assert isinstance(item, Document)
    assert (item.title, item.text, item.source) == ("T", "\n# Install\n\nText.\n", "notes/a.md:7")
    assert item.metadata == {
        "author": "Ada",
        "date": "2024-05-06",
        "tags": ["x", "y"],
        "file": "notes/a.md",
        "folder": "notes",
        "format": "md",
    }


@pytest.mark.parametrize(
    "front",
    [
        "- a\n- b\n",
        "a: &x [1]\nb: [*x, *x]\n",
        "a: [\n",
        "just text\n",
        "a: !!python/object:os.system x\n",
        "? [a]\n: b\n",
    ],
)
def test_what_is_no_front_matter_is_text_or_harmless(tmp_path: Path, front: str) -> None:
    path = tmp_path / "a.md"
    path.write_text(f"---\n{front}---\nBody.\n")
    found = document(path)
    assert "Body." in found.text
    json.dumps(found.metadata, allow_nan=False)


@pytest.mark.parametrize("opening", ["- ", "[", "{", "? ", "a: ["])
def test_front_matter_that_is_nested_too_deeply_is_named(tmp_path: Path, opening: str) -> None:
    """The C library for YAML composes nested values on the stack, and would end the process."""
    path = tmp_path / "a.md"
    path.write_text(f"---\n{opening * (60_000 // len(opening))}\n---\nBody.\n")
    item = only(path)
    assert isinstance(item, Skipped) and item.reason == "has front matter of more than 100 levels"


@pytest.mark.parametrize(
    ("front", "title", "author", "is_noted"),
    [
        ("title: Guide: part two\nauthor: Ada\n", "Guide: part two", "Ada", True),
        ("title:\tGuide\nauthor: Ada\n\tand Bob\n", "Guide", "Ada", True),
        ("title: Guide\nauthor: *ada\n", "Guide", "*ada", True),
        ("title: 2024\nauthor: Ada\n", "2024", "Ada", False),
        ("title: 2024-05-06\nauthor: 'Ada'\n", "2024-05-06", "Ada", False),
    ],
)
@pytest.mark.parametrize("before", ["", "\n", " \n\n"])
def test_front_matter_that_is_not_valid(
    tmp_path: Path, front: str, title: str, author: str, is_noted: bool, before: str
) -> None:
    (tmp_path / "a.md").write_text(f"{before}---\n{front}---\nBody.\n")
    corpus = Corpus([tmp_path / "a.md"])
    (found,) = corpus
    assert isinstance(found, Document)
    assert (found.title, found.metadata["author"], found.text) == (title, author, "Body.\n")
    assert any("not valid YAML" in one and "a.md" in one for one in corpus.account.sentences()) is is_noted


def test_text_between_two_lines_is_no_front_matter(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("---\n*Note*: read this\nfirst: yes\n---\nBody.\n")
    assert "read this" in document(tmp_path / "a.md").text


def test_underlined_headings(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("Guide\n=====\n\nText.\n\nInstall\n---\n\nMore.\n\n```\nx\n---\n```\n\n- item\n---\n")
    found = document(path)
    assert (found.title, found.source) == ("Guide", "a.md:4")
    assert found.text == "Text.\n\n## Install\n\n\nMore.\n\n```\nx\n---\n```\n\n- item\n---\n"


def test_comments_in_text_without_headings_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.rst").write_text(
        ".. _label:\n\nTitle\n=====\n\nCode::\n\n   # a comment\n   x = 1\n\n~~~~~\n\nEnd.\n"
    )
    (tmp_path / "b.eml").write_text("From: a@b.c\nSubject: S\n\nDo this:\n# run this\nThen rest.\n")
    guide, message = (item for item in Corpus([tmp_path]) if isinstance(item, Document))
    assert guide.title == "Title" and headings(guide.text) == headings(message.text) == []
    assert "# a comment" in guide.text and "# run this" in message.text


def test_html(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text(
        '<!doctype html><html lang="en-GB"><head><title>Page — Site</title><meta name=author content=Bob>'
        "<meta property='article:published_time' content='2024-02-03T10:00'><style>p{}</style></head><body>"
        "<nav>Home</nav><main><h1>Page <a class=headerlink>¶</a></h1><p>Hello <b>bold</b>\n world.</p><h2>Sub</h2>"
        "<ul><li>one<li><p>two</p></ul><pre>x = 1\n  y</pre><table><tr><th>a<th>b<tr><td>1<td>2</table></main>"
        "<footer>foot</footer><script>bad()</script></body></html>"
    )
    found = document(path)
    assert found.title == "Page"
    assert found.text == ("Hello bold world.\n\n## Sub\n\n- one\n- two\n\n```\nx = 1\n  y\n```\n\n| a | b |\n| 1 | 2 |")
    assert {key: found.metadata[key] for key in ("author", "date", "language")} == {
        "author": "Bob",
        "date": "2024-02-03",
        "language": "en",
    }


@pytest.mark.parametrize(
    ("html", "text"),
    [
        (
            "<details><summary>More</summary><p>text</p></details><address>Here</address>there",
            "More\n\ntext\n\nHere\n\nthere",
        ),
        (
            "<article>one</article><article>two</article><div><header>three</header>four</div>",
            "one\n\ntwo\n\nthree\n\nfour",
        ),
        ("<fieldset><legend>a</legend>b</fieldset>c", "a\n\nb\n\nc"),
        ("<table><tr><td><p>a</p><ul><li>b<li>c</ul><td>d</table>", "| a - b - c | d |"),
        ("<table><tr><td>x<table><tr><td>in<td>ner</table><td>y</table>", "| x | in | ner | | y |"),
        ("<main><p>one</p><aside class='admonition note'>two</aside><aside>not this</aside></main>", "one\n\ntwo"),
        ("<form><p>All of the page.</p><input><button>Send</button></form>", "All of the page."),
        ("<p>A page with some text in it.</p><form>Search</form>", "A page with some text in it."),
    ],
)
def test_blocks_of_html_stay_apart(tmp_path: Path, html: str, text: str) -> None:
    path = tmp_path / "a.html"
    path.write_text(f"<body>{html}</body>")
    assert document(path).text == text


def test_pdf_has_pages_and_a_scanned_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(made.pdf(["First page.", "Second page."]))
    (tmp_path / "b.pdf").write_bytes(made.pdf(["", ""]))
    read, scanned = Corpus([tmp_path])
    assert isinstance(read, Document) and read.text == "First page.\fSecond page." and read.metadata["pages"] == 2
    assert isinstance(scanned, Skipped) and scanned.reason.startswith("is scanned or blank: its 2 pages have no text")


def test_office_and_books(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(made.docx_file("Doc title", {"Chapter": "A paragraph."}))
    (tmp_path / "b.pptx").write_bytes(made.pptx_file({"One": "First slide.", "Two": "Second slide."}))
    (tmp_path / "c.epub").write_bytes(made.epub("Book", {"Ch 1": "It began.", "Ch 2": "It ended."}))
    word, slides, book = Corpus([tmp_path])
    assert isinstance(word, Document) and isinstance(slides, Document) and isinstance(book, Document)
    assert (word.title, word.text) == ("Doc title", "# Chapter\n\nA paragraph.")
    assert slides.text == "## One\n\nFirst slide.\n\f\n## Two\n\nSecond slide."
    assert (book.title, book.text) == ("Book", "# Ch 1\n\nIt began.\n\n# Ch 2\n\nIt ended.")
    assert book.metadata["author"] == "An Author" and book.metadata["language"] == "en"


WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def test_all_text_of_a_word_file_is_read(tmp_path: Path) -> None:
    import docx
    from docx.oxml import parse_xml

    made_by_hand = docx.Document()
    made_by_hand.add_paragraph("An ordinary paragraph.")
    made_by_hand.sections[0].header.paragraphs[0].text = "The page header."
    table = made_by_hand.add_table(1, 2)
    table.cell(0, 0).text = "outer"
    table.cell(0, 1).add_table(1, 1).cell(0, 0).text = "nested"
    run = "<w:r><w:t>{}</w:t></w:r>"
    for xml in (
        f"<w:sdt {WORD}><w:sdtContent><w:p>{run.format('A content control.')}</w:p></w:sdtContent></w:sdt>",
        f"<w:p {WORD}><w:ins>{run.format('An insertion.')}</w:ins><w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
        f"<w:moveFrom>{run.format('gone too')}</w:moveFrom></w:p>",
    ):
        made_by_hand.element.body.insert(0, parse_xml(xml))
    made_by_hand.save(str(tmp_path / "a.docx"))
    assert document(tmp_path / "a.docx").text == (
        "An insertion.\n\nA content control.\n\nAn ordinary paragraph.\n\n\n| outer | nested |\n\nThe page header."
    )


def test_restructured_text(tmp_path: Path) -> None:
    path = tmp_path / "a.rst"
    path.write_text(
        "=====\nTitle\n=====\n\n:author: Zed\n\nSee :ref:`there <x>`.\n\nPart\n----\n\nBody.\n\nPart 2\n------\n\nx\n"
    )
    found = document(path)
    assert found.title == "Title" and found.metadata["author"] == "Zed"
    assert found.text.split("\n")[2] == "See there." and "## Part\n" in found.text and "## Part 2\n" in found.text


def test_mail(tmp_path: Path) -> None:
    path = tmp_path / "a.mbox"
    path.write_bytes(
        b"From x\nFrom: a@b.c\nMessage-ID: <1@x>\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\n"
        b"Date: Mon, 1 Jan 2024 10:00:00 +0000\n"
        b"\nFirst.\n>From here.\n\nFrom y\nFrom: z@b\nContent-Type: text/html\n\n<p>Second <b>one</b>.</p>\n"
    )
    first, second = Corpus([path])
    assert isinstance(first, Document) and isinstance(second, Document)
    assert (first.id, first.title, first.text) == ("<1@x>", "Grüße", "First.\nFrom here.")
    assert (first.metadata["author"], first.metadata["date"], first.source) == ("a@b.c", "2024-01-01", "a.mbox:1")
    assert second.text == "Second one." and second.id.startswith("a.mbox#")


@pytest.mark.parametrize(
    "value",
    [
        [{"id": 1, "text": "one"}, {"id": 2, "text": "two"}],
        {"documents": [{"id": 1, "text": "one"}, {"id": 2, "text": "two"}], "count": 2},
        {"1": {"text": "one"}, "2": {"text": "two"}},
    ],
)
def test_json(tmp_path: Path, value: object) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value, indent=1))
    assert [(d.id, d.text) for d in Corpus([path]) if isinstance(d, Document)] == [("1", "one"), ("2", "two")]


def test_json_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for content, reason in (
        ("[1]", "is a number, not an object"),
        ('{"a": 1}', "has no text"),
        ("{", "not valid JSON"),
    ):
        path.write_text(content)
        item = only(path)
        assert isinstance(item, Skipped) and item.reason.startswith(reason)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_and_quotes_are_found(tmp_path: Path, name: str, delimiter: str) -> None:
    path = tmp_path / name
    path.write_text(f'id{delimiter}text{delimiter}n\n1{delimiter}"a{delimiter} ""b"""{delimiter}2\n')
    assert [(d.text, d.metadata) for d in Corpus([path]) if isinstance(d, Document)] == [
        (f'a{delimiter} "b"', {"n": "2"})
    ]


TEXTS = {
    "cp1252": "Die Größe der Straße hängt von den Bäumen ab, und für die Gärten gilt überall das Gleiche.",
    "cp1250": "Příliš žluťoučký kůň úpěl ďábelské ódy a potom běžel přes louku až k řece, kde ležel medvěd.",
    "cp1251": "Съешь ещё этих мягких французских булок, да выпей же чаю, сказал он и закрыл дверь.",
    "shift_jis": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "utf-16": "A text with wide characters, as Windows writes it: größer.",
    "utf-16-le": "A text with wide characters and no mark at its beginning.",
    "utf-8-sig": "A text with a mark: größer.",
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_encodings_are_detected(tmp_path: Path, encoding: str) -> None:
    text = tmp_path / "a.txt"
    text.write_bytes(TEXTS[encoding].encode(encoding))
    assert document(text).text == TEXTS[encoding]
    assert document(text, encoding=encoding).text == TEXTS[encoding]
    table = tmp_path / "a.csv"
    table.write_bytes(f'id,text\n1,"{TEXTS[encoding]}"\n'.encode(encoding))
    assert document(table).text == TEXTS[encoding]


def test_the_first_character_beyond_ascii_is_far_from_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = "".join(f"{n},a row in plain letters\n" for n in range(9000))
    for encoding in ("cp1252", "utf-8"):
        path.write_bytes(f"id,text\n{rows}last,Größe und Straße\n".encode(encoding))
        assert path.stat().st_size > 3 << 16
        *_, last = Corpus([path])
        assert isinstance(last, Document) and last.text == "Größe und Straße"


def test_json_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"id": 1, "text": "größer"}\n'.encode("utf-16"))
    assert document(path).text == "größer"
    path.write_bytes('{"id": 1, "text": "größer"}\n'.encode("cp1252"))
    item = only(path)
    assert isinstance(item, Skipped) and item.reason.endswith("if it is no UTF-8, give its `encoding`")
    assert document(path, encoding="cp1252").text == "größer"


def test_rows_with_an_empty_id_go_by_their_content(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,text\n1,one\n,two\n")
    one, two = (item for item in Corpus([path]) if isinstance(item, Document))
    assert one.id == "1" and two.id.startswith("a.csv#")


def test_a_file_without_a_good_record_was_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{\n}\n")
    (tmp_path / "b.jsonl").write_text('{"text": "good"}\n{\n')
    corpus = Corpus([tmp_path])
    assert sum(isinstance(item, Skipped) for item in corpus) == 3
    assert corpus.account.read == {"jsonl": 1}
    assert corpus.account.unread["jsonl", "none of its records can be read"].names == ["a.jsonl"]


def test_a_binary_file_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\x7fELF" + bytes(range(256)))
    item = only(path)
    assert isinstance(item, Skipped) and item.reason == "is not text: it looks like a program"


def test_source_code_is_read_when_asked(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("# a comment\nx = 1\n")
    (item,) = Corpus([tmp_path], include=["*.py"])
    assert isinstance(item, Document) and item.text == "# a comment\nx = 1\n" and item.metadata["format"] == "py"
    assert document(tmp_path / "a.py", include=["*.py"]).metadata["format"] == "py"
    with pytest.raises(Misuse, match=r'To read it as text, give `include=\["\*\.py"\]`'):
        Corpus([tmp_path / "a.py"])
    (tmp_path / "b.txt").write_text("text")
    corpus = Corpus([tmp_path])
    assert len(list(corpus)) == 1
    assert corpus.account.sentences()[-1:] == [
        'Not read: 1 .py, unknown kind (`include=["*.py"]` reads it as text): a.py'
    ]


# What is damaged or made to do harm


def zipped(parts: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


HOSTILE: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "bomb": ("docx", lambda: zipped({"word/document.xml": b"\0" * (64 << 20)}), "unpacks to more than 200 times"),
    "no zip": ("docx", lambda: b"PK\x03\x04 nothing", "is not a readable archive"),
    "old office": ("docx", lambda: b"\xd0\xcf\x11\xe0" + bytes(600), "is encrypted, or in the format of Office before"),
    "empty zip": ("epub", lambda: zipped({}), "is not a readable EPUB"),
    "encrypted": (
        "pdf",
        lambda: made.pdf(["secret"]).replace(
            b"/Root 1 0 R",
            b"/ID [(a) (a)] /Root 1 0 R /Encrypt << /Filter /Standard /V 1 /R 2 /O (%b) /U (%b) /P -4 >>"
            % (b"0" * 32, b"0" * 32),
        ),
        "is encrypted; save a copy without a password",
    ),
    "no pdf": ("pdf", lambda: b"%PDF-1.7 nothing", "is not a readable PDF"),
    "entities": (
        "epub",
        lambda: zipped({"META-INF/container.xml": b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>'}),
        "is not a readable EPUB",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_named_and_the_next_is_read(tmp_path: Path, name: str) -> None:
    ending, content, reason = HOSTILE[name]
    (tmp_path / f"a.{ending}").write_bytes(content())
    (tmp_path / "b.html").write_text("<p>after it")
    bad, good = Corpus([tmp_path])
    assert isinstance(bad, Skipped) and bad.reason.startswith(reason)
    assert isinstance(good, Document) and good.text == "after it"


def test_deep_and_long_pages(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<div>" * 10_000 + "deep" + "</div>" * 10_000)
    (tmp_path / "b.html").write_bytes(b"<p>" + b"x" * (100 << 20))
    (tmp_path / "c.html").write_text("<p>after them")
    deep, long, good = Corpus([tmp_path])
    assert deep.text == "deep" if isinstance(deep, Document) else "crash" in deep.reason
    assert isinstance(long, Skipped) and "64 MiB" in long.reason
    assert isinstance(good, Document) and good.text == "after them"
