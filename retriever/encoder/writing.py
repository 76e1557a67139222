"""How a text is written: full-width letters, composed characters, and queries in capitals or without diacritics.

An encoder knows words as its training text wrote them. A query may be written in another way and mean the same.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable

from indexes.terms import with_few_marks

# Chinese and Japanese texts are written with full-width punctuation, which their encoders know. In these texts, only
# full-width digits and letters are replaced. The expression is compiled when it is first used, because this takes
# milliseconds, and an ASCII query does not need it.
_EAST_ASIAN = "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]"
_WIDE_OR_PUNCTUATION = re.compile("[\uff01-\uff5e]")
_WIDE = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]")
_WIDTH = 0xFEE0
_LATIN = re.compile("[A-Za-z]")
_WORD = re.compile(r"\w+")


def plain(text: str) -> str:
    """Return a text as encoders read it: with composed characters, and without full-width letters."""
    if text.isascii():
        return text
    wide = _WIDE if re.search(_EAST_ASIAN, text) else _WIDE_OR_PUNCTUATION
    text = wide.sub(lambda found: chr(ord(found[0]) - _WIDTH), text)
    return unicodedata.normalize("NFC", with_few_marks(text))


def in_capitals(query: str) -> bool:
    """Return whether all letters of a query that have a case are capitals."""
    return plain(query).isupper()


def without_marks(query: str) -> bool:
    """Return whether a query has Latin letters, and no letter has a diacritic."""
    letters = unicodedata.normalize("NFD", plain(query))
    return bool(_LATIN.search(letters)) and not any(map(unicodedata.combining, letters))


def as_written(query: str, texts: Iterable[str]) -> str:
    """Write a query as the texts write its words most often.

    If it is in capitals, "DNA REPAIR" becomes "DNA repair". A word that the texts do not have is written in lower case.
    In any other query, only diacritics are restored: "cafe" becomes "café" if the texts write that most often.
    """
    query, capitals = plain(query), in_capitals(query)
    wanted = {_folded(word) for word in _WORD.findall(query)}
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for text in texts:
        for word, count in Counter(_WORD.findall(plain(text))).items():
            if (key := _folded(word)) in wanted:
                forms[key][word] += count

    def written(found: re.Match[str]) -> str:
        known = forms.get(_folded(found[0]))
        form = max(known, key=lambda form: (known[form], form)) if known else found[0].lower()
        return form if capitals or _folded(form) != form.casefold() else found[0]

    return _WORD.sub(written, query)


def _folded(word: str) -> str:
    """Return a word without case and without the marks over its letters."""
    letters = unicodedata.normalize("NFD", word.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
