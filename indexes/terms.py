"""The terms of a text: the units that a search by words compares.

A text is folded (compatibility forms, case and diacritics are removed), cut into words, and each word is reduced to its
stem in the language of the collection. Three kinds of text need more than that:

- Scripts without spaces between words, such as Chinese or Thai, are cut into overlapping pairs of characters.
- An identifier such as `json.dumps`, `sha-256` or `IntEnum` is found by its parts, and as a whole by its *compound*,
  which is the parts joined to one term.
- An id of a document is cut like any text. An id without letters has no terms, because a number in a query would find
  it.

Diacritics are removed before stemming, so that a query without diacritics has the same stems as the text.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

LANGUAGES = {
    "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish",
    "et": "estonian", "eu": "basque", "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian",
    "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian", "ne": "nepali", "nl": "dutch",
    "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish",
    "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""The languages that have a stemmer: their ISO 639-1 codes, and their names in Snowball."""
NO_STEMS = ""
"""The language of a collection whose words are compared as they are written."""

# Scripts that put no spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Kana, and Han with its extensions.
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# A combining mark belongs to the word before it. \w leaves out many marks, e.g. the vowel signs of Indic scripts.
_MARKS_OF_WORDS = r"\u0300-\u036f\u0591-\u05c7\u0610-\u065f\u0900-\u0dff"
_MARKED = rf"[{_MARKS_OF_WORDS}]++[^\W_{_UNSPACED}]*+"
_WORD = rf"[^\W_{_UNSPACED}]++(?:{_MARKED})*+"
_RUN = re.compile(rf"[{_UNSPACED}]++|{_WORD}")
_UNSPACED_RANGES = [pair.split("-") for pair in re.findall(".-.", _UNSPACED)]
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# A compound begins where a word begins. Without this, a run of a million letters would be tried from each of them.
_BEGIN = rf"(?<![^\W_{_UNSPACED}])(?<![{_MARKS_OF_WORDS}])"
_JOINER = r"(?:[._:/\\@+#&~-]{1,2}|->)"
# Compiled when a text that is not ASCII needs it, because that takes milliseconds.
_JOINED = rf"{_BEGIN}{_WORD}(?:{_JOINER}{_WORD})++"
# For text in ASCII, these find the same several times faster.
_ASCII_RUN = re.compile(r"[A-Za-z0-9]++")
_ASCII_JOINED = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z0-9]++(?:{_JOINER}[A-Za-z0-9]++)++")
# These say quickly that a text has no identifier: a joiner before a word, and a place where _HUMP matches.
_MAYBE_JOINED = re.compile(r"[._:/\\@+#&~>-][^\W_]")
_HUMPED = re.compile(r"[A-Z](?:(?<=[a-z0-9][A-Z])|(?<=[A-Z][A-Z])[a-z])")
_NOT_IN_TERMS = re.compile(r"[\x00-/:-@\[-`{-\x7f]+")
_QUOTED = re.compile(r'["“„«]([^"“”„«»]+)["”“»]')
# Letters that Unicode does not decompose, but that people type without their strokes.
_STROKES = str.maketrans("øłđħıŧ", "oldhit")
_MARKS = re.compile(r"(?<![\u0438\u0418])[\u0300-\u036f]|(?<=[\u0438\u0418])[\u0300-\u0305\u0307-\u036f]")
_SPACE = re.compile(r"\s")
PIECE = 1 << 20
"""The number of characters of a text whose terms are in memory at once."""
MOST_MARKS = 30
"""Further combining marks in a row are dropped, because normalising n of them takes n² steps. UAX #15 has this limit
for streams, because no written language needs more."""
# Marks are no letters. Other signs that stand in such a row are kept.
_MANY_MARKS = re.compile(rf"[^\w\s\x00-\x7f]{{{MOST_MARKS + 1},}}")
LONGEST = 64
"""Longer terms are cut to this many characters."""
MOST_TERMS = 1000
"""Maximum number of different terms of a query. It matters e.g. if a whole document was pasted as a query."""
MOST_KNOWN = 262_144
"""The number of different words whose terms are remembered for each language."""


class Term(NamedTuple):
    """A term, and where it is in the text."""

    text: str
    start: int
    end: int


def fold(text: str) -> str:
    """Remove what does not change a word: case, diacritics, and compatibility forms such as full-width letters."""
    if text.isascii():
        return text.lower()
    text = with_few_marks(text)
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return unicodedata.normalize("NFC", _MARKS.sub("", folded)).translate(_STROKES)


def with_few_marks(text: str) -> str:
    """Return the text with at most MOST_MARKS combining marks in a row. Call this before a text is normalised."""
    return _MANY_MARKS.sub(_with_few_marks, text) if len(text) > MOST_MARKS else text


def _with_few_marks(run: re.Match[str]) -> str:
    kept, marks = [], 0
    for character in run[0]:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= MOST_MARKS:
            kept.append(character)
    return "".join(kept)


def words_of(text: str) -> list[str]:
    """Return the different words of a text as they are written. A run of a script without spaces is one word."""
    return list({word.lower(): word for word in _RUN.findall(text)}.values())


def text_terms(text: str, language: str) -> list[str]:
    """Return the terms of a text in order, without compounds."""
    return " ".join(map(_known(language).__getitem__, _runs(text))).split()


def placed_terms(text: str, language: str) -> Iterator[Term]:
    """Yield the terms of a text with their places."""
    known = _known(language)
    for run in _RUN.finditer(text):
        for start, end in _parts(run.group()):
            for term in known[run.group()[start:end]].split():
                yield Term(term, run.start() + start, run.start() + end)


def compounds(text: str, language: str) -> list[str]:
    """Return the compounds of a text: the identifiers that have several parts, each joined to one term."""
    found: list[str] = []
    if _MAYBE_JOINED.search(text):
        joined: str | re.Pattern[str] = _ASCII_JOINED if text.isascii() else _JOINED
        found = ["".join(_runs(whole)) for whole in re.findall(joined, text)]
    if _HUMPED.search(text):
        known = _known(language)
        short = (run for run in _runs(text) if len(run) <= LONGEST and not is_unspaced(run))
        found += [run for run in short if " " in known[run]]
    return [_stem(fold(whole), language) for whole in found if len(whole) <= LONGEST]


def field_terms(text: str, language: str) -> list[str]:
    """Return the terms and the compounds of a title or a query."""
    return text_terms(text, language) + compounds(text, language)


def query_terms(query: str, language: str) -> list[str]:
    """Return the different terms and compounds of a query, at most MOST_TERMS."""
    return list(dict.fromkeys(field_terms(_beginning(query), language)))[:MOST_TERMS]


def query_words(query: str) -> list[str]:
    """Return the different words of a query as they are written, at most MOST_TERMS."""
    return words_of(_beginning(query))[:MOST_TERMS]


def _beginning(query: str) -> str:
    """Return as many different words of a query as MOST_TERMS can need."""
    return " ".join(dict.fromkeys(query.split()))[: MOST_TERMS * LONGEST]


def id_terms(id_: str, language: str) -> list[str]:
    """Return the terms and the compounds of a document's id. An id without letters has none."""
    return field_terms(id_, language) if any(map(str.isalpha, id_)) else []


def joined(terms: Callable[[str, str], list[str]], text: str, language: str) -> str:
    """Return the terms of a text, separated by spaces, as FTS5 reads them.

    The terms of a text of many megabytes need far more memory than the text, so it is cut between words.
    """
    if len(text) <= PIECE:
        return " ".join(terms(text, language)) if text else ""
    return " ".join(" ".join(terms(piece, language)) for piece in _pieces(text))


def _pieces(text: str) -> Iterator[str]:
    """Cut a text at white space into pieces of about PIECE characters. No term contains white space."""
    start = 0
    while (space := _SPACE.search(text, start + PIECE)) is not None:
        yield text[start : space.start()]
        start = space.end()
    yield text[start:]


def phrases(query: str, language: str) -> list[list[str]]:
    """Return the terms of each quoted phrase of a query. A quotation mark without a partner is ignored."""
    found = (text_terms(phrase, language) for phrase in _QUOTED.findall(query))
    return [phrase for phrase in found if phrase]


def unquoted(query: str) -> str:
    """Return a query without the quotation marks of its phrases."""
    return _QUOTED.sub(r" \1 ", query)


def replaced_words(text: str, replacements: Mapping[str, str]) -> str:
    """Replace whole words of a text. The keys are in lower case."""
    return _RUN.sub(lambda run: replacements.get(run.group().lower(), run.group()), text)


def is_unspaced(term: str) -> bool:
    """Return whether a term is of a script without spaces."""
    return not term.isascii() and any(first <= term[0] <= last for first, last in _UNSPACED_RANGES)


def _runs(text: str) -> list[str]:
    """Return the words of a text, and its runs of scripts without spaces."""
    return (_ASCII_RUN if text.isascii() else _RUN).findall(text)


class _Known(dict[str, str]):
    """The terms of words of a language, separated by spaces. A word is added when it is first looked up."""

    def __init__(self, language: str) -> None:
        self._language = language

    def __missing__(self, run: str) -> str:
        lower = run.lower()
        if run.isascii() and (lower == run or not _HUMPED.search(run)):
            found = self[lower] if lower != run else _stem(run, self._language)
        elif len(parts := list(_parts(run))) > 1:
            found = " ".join(filter(None, (self[run[start:end]] for start, end in parts)))
        else:
            found = fold(run) if is_unspaced(run) else _stem(fold(run), self._language)
        if len(run) <= LONGEST:
            if len(self) >= MOST_KNOWN:
                self.clear()
            self[run] = found
        return found


_known = lru_cache(_Known)


def _parts(run: str) -> Iterable[tuple[int, int]]:
    """Return where the parts of a run are: its pairs of characters, or what is between the humps of an identifier."""
    if is_unspaced(run):
        return ((place, place + 2) for place in range(max(len(run) - 1, 1)))
    if not _HUMPED.search(run):
        return ((0, len(run)),)
    return pairwise([0, *(match.start() for match in _HUMP.finditer(run)), len(run)])


def _stem(word: str, language: str) -> str:
    if not word.isalnum():
        word = _NOT_IN_TERMS.sub("", word)
    if language in LANGUAGES and not word.isdigit():
        word = _stemmer(language).stemWord(word)
    return word[:LONGEST]


@lru_cache
def _stemmer(language: str) -> Any:
    import Stemmer

    return Stemmer.Stemmer(LANGUAGES[language], 0)  # no cache, because `_Known` remembers what words become
