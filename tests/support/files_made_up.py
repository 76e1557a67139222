"""Files of every format, made up with the libraries that write them, or by hand where there is none."""

import io
import json
import zipfile

import docx
import pptx
import pyarrow
import pyarrow.parquet


def every_format(sentence: str) -> dict[str, bytes]:
    """A file of every ending that is read, with the sentence in it."""
    record = {"id": "1", "text": sentence}
    table = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": [sentence]}), table)
    message = f"From: a@b.c\nMessage-ID: <{len(sentence)}@x>\nSubject: S\n\n{sentence}\n"
    notebook = {"cells": [{"cell_type": "markdown", "source": [sentence]}], "metadata": {}, "nbformat": 4}
    page = f"<html><head><title>T</title></head><body><p>{sentence}</p></body></html>"
    texts = {
        "jsonl": json.dumps(record),
        "ndjson": json.dumps(record),
        "json": json.dumps([record]),
        "csv": f'id,text\n1,"{sentence}"\n',
        "tsv": f"id\ttext\n1\t{sentence}\n",
        "txt": sentence,
        "text": sentence,
        "md": f"# T\n\n{sentence}\n",
        "markdown": sentence,
        "rst": f"T\n====\n\n{sentence}\n",
        "ipynb": json.dumps(notebook),
        "html": page,
        "htm": page,
        "xhtml": page,
        "eml": message,
        "mbox": f"From x\n{message}",
    }
    return {
        **{ending: text.encode() for ending, text in texts.items()},
        "parquet": table.getvalue(),
        "pdf": pdf([sentence]),
        "docx": docx_file("T", {"H": sentence}),
        "pptx": pptx_file({"T": sentence}),
        "epub": epub("T", {"H": sentence}),
    }


def docx_file(title: str, sections: dict[str, str]) -> bytes:
    document = docx.Document()
    document.add_heading(title, 0)
    for heading, text in sections.items():
        document.add_heading(heading, 1)
        document.add_paragraph(text)
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def pptx_file(slides: dict[str, str]) -> bytes:
    presentation = pptx.Presentation()
    for title, text in slides.items():
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
    buffer = io.BytesIO()
    presentation.save(buffer)
    return buffer.getvalue()


def epub(title: str, chapters: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    items = "".join(f'<item id="c{n}" href="c{n}.xhtml"/>' for n in range(len(chapters)))
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
        )
        archive.writestr(
            "OEBPS/book.opf",
            '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
            f"<dc:title>{title}</dc:title><dc:creator>An Author</dc:creator><dc:language>en</dc:language></metadata>"
            f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
        )
        for n, (heading, text) in enumerate(chapters.items()):
            page = f"<html><head><title>{heading}</title></head><body><p>{text}</p></body></html>"
            archive.writestr(f"OEBPS/c{n}.xhtml", page)
    return buffer.getvalue()


def pdf(pages: list[str]) -> bytes:
    """A PDF with a line of text on each page. A page without text is like a scanned one."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * n} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    data, places = b"%PDF-1.4\n", []
    for n, content in enumerate(objects, 1):
        places.append(len(data))
        data += f"{n} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    tail = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF"
    return data + head.encode() + tail.encode()
