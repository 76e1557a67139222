"""Read PDF files page by page with PDFium, the reader of Chromium."""

import re

import pypdfium2

from retriever.corpus.content import Content, Refused, described

MOST_PAGES = 20_000
FEWEST_CHARACTERS = 3
"""The minimum average of characters of a page. Below it, the pages are pictures."""
_HYPHEN = re.compile("[\x02\ufffe]\n?")


def read_pdf(data: bytes) -> Content:
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise Refused("is encrypted; save a copy without a password") from error
        raise Refused(f"is not a readable PDF: {str(error).rstrip('.')}") from error
    count = len(document)
    if count > MOST_PAGES:
        raise Refused(f"has {count:,} pages; the maximum is {MOST_PAGES:,}")
    pages = [_page(document, number) for number in range(count)]
    if sum(len(page.strip()) for page in pages) < FEWEST_CHARACTERS * count:
        what = "page has" if count == 1 else "pages have"
        raise Refused(
            f"is scanned or blank: its {count:,} {what} no text; recognise a scanned one first, e.g. with ocrmypdf"
        )
    facts = document.get_metadata_dict()
    created = re.match(r"D:(\d{4})(\d{2})(\d{2})", facts.get("CreationDate") or "")
    metadata = described(
        author=facts.get("Author"),
        keywords=facts.get("Keywords"),
        date="-".join(created.groups()) if created else None,
        pages=count,
    )
    return Content("\f".join(pages), (facts.get("Title") or "").strip(), metadata, line=0)


def _page(document: pypdfium2.PdfDocument, number: int) -> str:
    try:
        page = document[number]
        text = page.get_textpage().get_text_range()
    except pypdfium2.PdfiumError:
        return ""
    return _HYPHEN.sub("", text.replace("\r\n", "\n").replace("\f", "\n")).strip("\n")
