"""Read documents that are zip archives: DOCX and PPTX from Office, and EPUB books."""

import io
import posixpath
import re
import zipfile
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import docx
import pptx
from lxml import etree

from retriever.corpus.content import Content, Refused, described, without_first_heading, without_headings
from retriever.corpus.readers.html import read_html

MOST_UNPACKED = 512 << 20
"""Maximum unpacked size of an archive in bytes."""
MOST_RATIO = 200
"""Maximum ratio of the unpacked size of a part to its packed size, for parts of more than `SMALL_PART` bytes."""
SMALL_PART = 16 << 20
MOST_PARTS = 20_000
CONTAINER = "META-INF/container.xml"
BOOK = "{*}"
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
BETWEEN = {WORD + "tab": "\t", WORD + "br": "\n", WORD + "cr": "\n", WORD + "noBreakHyphen": "-"}
NOT_TEXT = {
    *(WORD + name for name in ("del", "moveFrom", "pPr", "rPr", "sdtPr", "sectPr", "tblPr", "trPr", "tcPr")),
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
}
"""Deleted text, properties, and the second copy of a text box for old programs."""


def checked_zip(data: bytes) -> zipfile.ZipFile:
    """Open an archive. Raise `Refused` if it is damaged, encrypted, or unpacks to far more than its size."""
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        raise Refused("is encrypted, or in the format of Office before 2007; save a copy in the current format")
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise Refused(f"is not a readable archive: {error}") from error
    parts = archive.infolist()
    if len(parts) > MOST_PARTS:
        raise Refused(f"has more than {MOST_PARTS:,} parts")
    if sum(part.file_size for part in parts) > MOST_UNPACKED:
        raise Refused(f"unpacks to more than {MOST_UNPACKED >> 20} MiB")
    if any(part.file_size > SMALL_PART and part.file_size > MOST_RATIO * part.compress_size for part in parts):
        raise Refused(f"unpacks to more than {MOST_RATIO} times its size")
    if any(part.flag_bits & 1 for part in parts):
        raise Refused("is encrypted; save a copy without a password")
    return archive


def read_docx(data: bytes) -> Content:
    """Read the text, with tables, text boxes, content controls and tracked insertions; then notes, headers and footers.

    python-docx itself passes over text in a content control, a tracked insertion, a text box or a nested table.
    """
    checked_zip(data)
    document = docx.Document(io.BytesIO(data))
    levels = {style.style_id: _level(style.name or "") for style in document.styles}
    lines = _docx_lines(document.element.body, levels)
    parts = {str(each.target_part.partname): each for each in document.part.rels.values() if not each.is_external}
    for kind in ("footnotes", "endnotes", "header", "footer"):
        roots = [
            _xml(parts[name].target_part.blob) for name in sorted(parts) if parts[name].reltype.endswith(f"/{kind}")
        ]
        texts = dict.fromkeys(text for root in roots for text in _docx_lines(root, {}) if re.search(r"[^\W\d_]", text))
        lines += [line for text in texts for line in (text, "")]
    return _office("\n".join(lines), document.core_properties)


def _docx_lines(node: Any, levels: Mapping[str, int]) -> list[str]:
    """Return the lines of the paragraphs and tables in a part of a document."""
    lines: list[str] = []
    for child in node.iterchildren("*"):
        if child.tag == WORD + "p":
            if text := _docx_text(child).strip():
                style = child.find(f"{WORD}pPr/{WORD}pStyle")
                level = levels.get(style.get(WORD + "val"), 0) if style is not None else 0
                lines += [f"{'#' * level} {' '.join(text.split())}" if level else without_headings(text), ""]
        elif child.tag == WORD + "tbl":
            lines += [
                "",
                *(_docx_row(row) for row in child.iter(WORD + "tr") if next(row.iterancestors(WORD + "tbl")) is child),
                "",
            ]
        elif child.tag not in NOT_TEXT:
            lines += _docx_lines(child, levels)
    return lines


def _docx_row(row: Any) -> str:
    cells = [cell for cell in row.iter(WORD + "tc") if next(cell.iterancestors(WORD + "tr")) is row]
    return "| " + " | ".join(" ".join(_docx_text(cell).split()) for cell in cells) + " |"


def _docx_text(node: Any) -> str:
    """Return the text of a paragraph or a cell as it is now: with what was inserted, without what was deleted."""
    found = []
    for child in node.iterchildren("*"):
        if child.tag == WORD + "t":
            found.append(child.text or "")
        elif child.tag in BETWEEN:
            found.append(BETWEEN[child.tag])
        elif child.tag in (WORD + "p", WORD + "tc"):
            found.append(f"{_docx_text(child)}\n")
        elif child.tag not in NOT_TEXT:
            found.append(_docx_text(child))
    return "".join(found)


def _level(style: str) -> int:
    if style == "Title":
        return 1
    head, _, number = style.partition(" ")
    return min(int(number), 6) if head.lower() == "heading" and number.isdecimal() and int(number) else 0


def _office(text: str, facts: Any) -> Content:
    metadata = described(
        author=facts.author if facts.author != "python-docx" else "",
        keywords=facts.keywords,
        date=(facts.modified or facts.created or "") and str(facts.modified or facts.created),
        language=facts.language,
    )
    title = facts.title if facts.title not in ("PowerPoint Presentation", "Word Document") else ""
    content = Content(text.strip("\n"), "", metadata, line=0)
    content = without_first_heading(content)
    content.title = (title or "").strip() or content.title
    return content


def read_pptx(data: bytes) -> Content:
    checked_zip(data)
    presentation = pptx.Presentation(io.BytesIO(data))
    slides = []
    for slide in presentation.slides:
        title = slide.shapes.title
        parts = [f"## {' '.join(title.text.split())}"] if title is not None and title.text.strip() else []
        parts += [
            text
            for shape in slide.shapes
            if title is None or shape.shape_id != title.shape_id
            for text in _texts(shape)
        ]
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            parts.append(slide.notes_slide.notes_text_frame.text)
        slides.append("\n\n".join(part.replace("\f", " ").replace("\v", "\n") for part in parts if part.strip()))
    content = _office("", presentation.core_properties)
    content.text = "\n\f\n".join(slides)
    content.metadata["pages"] = len(slides)
    return content


def _texts(shape: Any, depth: int = 0) -> list[str]:
    if depth > 20:
        return []
    if shape.has_text_frame:
        return [shape.text_frame.text]
    if getattr(shape, "has_table", False) and shape.has_table:
        rows = shape.table.rows
        return ["\n".join("| " + " | ".join(" ".join(cell.text.split()) for cell in row.cells) + " |" for row in rows)]
    return [text for inner in getattr(shape, "shapes", ()) for text in _texts(inner, depth + 1)]


def read_epub(data: bytes) -> Content:
    archive = checked_zip(data)
    try:
        container = _xml(archive.read(CONTAINER))
        place = container.find(f".//{BOOK}rootfile").get("full-path")
        package = _xml(archive.read(place))
    except (KeyError, AttributeError, TypeError, etree.XMLSyntaxError) as error:
        raise Refused(f"is not a readable EPUB: {error}") from error
    folder = posixpath.dirname(place)
    items = {item.get("id"): item.get("href") or "" for item in package.iterfind(f"{BOOK}manifest/{BOOK}item")}
    chapters = []
    for reference in package.iterfind(f"{BOOK}spine/{BOOK}itemref"):
        name = posixpath.normpath(posixpath.join(folder, unquote(items.get(reference.get("idref"), ""))))
        try:
            chapter = read_html(archive.read(name))
        except KeyError:
            continue
        heading = f"# {chapter.title}\n\n" if chapter.title and not chapter.text.startswith("#") else ""
        chapters.append(heading + chapter.text)
    facts = {
        name: package.findtext(f"{BOOK}metadata/{BOOK}{name}") for name in ("title", "creator", "language", "date")
    }
    metadata = described(author=facts["creator"], language=facts["language"], date=facts["date"])
    return Content("\n\n".join(chapters), (facts["title"] or "").strip(), metadata, line=0)


def _xml(data: bytes) -> Any:
    return etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False))
