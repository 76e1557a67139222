"""Detect the language of a corpus. Search by words reduces words to their stems in this language."""

from collections import Counter
from collections.abc import Sequence

from indexes.terms import LANGUAGES, NO_STEMS
from retriever.corpus.document import Document

CHUNKS = 20
CHUNK = 1000
"""The number of characters that are judged at a time. A shorter text is too often taken for another language."""
SHARE = 0.6
"""A language counts if at least this share of the chunks is in it."""


OF_TEXT = 500
"""The number of characters by which one text is judged, because every file of a folder is."""
SHORTEST = 120
"""A text with fewer characters is too often taken for another language."""
UNKNOWN = "zxx"


def language_of_text(text: str) -> str:
    """Return the code of the language of a text, or an empty string if it is unknown."""
    part = text[:OF_TEXT]
    if len(part) < SHORTEST:
        return ""
    import py3langid

    code = str(py3langid.classify(part)[0])
    return "" if code == UNKNOWN else code


def language_of(documents: Sequence[Document]) -> str:
    """Return the code of the language of most text, or NO_STEMS if there is none or if it has no stemmer."""
    step = max(len(documents) // (4 * CHUNKS), 1)
    text = " ".join(f"{document.title} {document.text[:CHUNK]}" for document in documents[::step])[: CHUNKS * CHUNK]
    if not text.strip():
        return NO_STEMS
    import py3langid

    chunks = [text[start : start + CHUNK] for start in range(0, len(text), CHUNK)]
    if len(chunks) > 1 and len(chunks[-1]) < CHUNK / 2:
        del chunks[-1]
    (code, count), *_ = Counter(str(py3langid.classify(chunk)[0]) for chunk in chunks).most_common(1)
    return code if code in LANGUAGES and count >= SHARE * len(chunks) else NO_STEMS
