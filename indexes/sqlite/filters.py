"""Parses filters. A filter is a text with one condition on the metadata, such as `year >= 2020`.

    FIELD  = VALUE     also == != < <= > >=
    FIELD in (VALUE, VALUE, ...)

A field is a bare name (letters of any script, digits, _ - .) or any name in quotes. A value is one of these: a number,
true, false or null; a text in quotes; or all words up to the end, without quotes. Within quotes, a quote is doubled or
preceded by a backslash. A value in quotes is always a text: `year = 2020` compares numbers, and `year = '2020'`
compares texts. A number with leading zeros is also a text, because it is probably a code. indexes/sqlite/conditions.py
defines what a condition means.
"""

import math
import re
import unicodedata
from itertools import takewhile
from typing import NoReturn

from indexes.errors import BadFilter
from indexes.sqlite.conditions import Condition, Value

SYMBOLS = {"=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
OPERATORS = "= != < <= > >= or in"
SPACE = re.compile(r"\s*")
OPERATOR = re.compile(r"[=!<>~]+|\w+|")
QUOTES = ("'", '"')
QUOTED = re.compile(r"""(['"])((?:\1\1|\\['"\\]?|(?!\1)[^\\])*+)\1""")
# Outside of quotes, the characters = < > ( ) " probably belong to another condition. It must not silently become part
# of a text.
BARE = re.compile(r'[^=<>()"]*')
BARE_IN_LIST = re.compile(r'[^=<>()",]*')
NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
MORE_CONDITIONS = re.compile(r"[+-]?[0-9][0-9.]*\s+(?:and|or)\s", re.IGNORECASE)
WORDS: dict[str, Value] = {"true": True, "false": False, "null": None}
MOST_LEVELS = 16
LONGEST = 4_000_000
SHOWN_AROUND = 60


def parse(text: str) -> Condition:
    """Parse a filter. An error names the column where the filter is invalid, and what was expected there."""
    if len(text) > LONGEST:
        raise BadFilter(f"the filter has {len(text):,} characters; the limit is {LONGEST:,}.")
    return _Parser(text).condition()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def condition(self) -> Condition:
        if wrong := re.search("[\0\ud800-\udfff]", self.text):
            what = "a NUL character" if wrong[0] == "\0" else "bytes that are not valid UTF-8"
            self.fail(f"expected text, found {what}", wrong.start())
        self.take(SPACE)
        start = self.position
        field = self.field()
        if field.count(".") >= MOST_LEVELS:
            self.fail(f"expected a field at most {MOST_LEVELS} levels deep", start)
        operator = self.operator()
        values = self.listed() if operator == "in" else (self.single(operator),)
        self.take(SPACE)
        if self.position < len(self.text):
            self.fail(f"expected the end of the filter, found {self.next}; give each condition as a filter of its own")
        return Condition(field, operator, values)

    def field(self) -> str:
        if self.next in QUOTES:
            return self.quoted()
        name = "".join(takewhile(_in_name, self.text[self.position :]))
        if not name:
            self.fail(f"expected the name of a metadata field, found {self.next}")
        self.position += len(name)
        return name

    def operator(self) -> str:
        self.take(SPACE)
        found, start = self.next, self.position
        word = self.take(OPERATOR)
        if word.casefold() != "in" and word not in SYMBOLS:
            also = "; a field with a space in its name goes in quotes" if word.isalnum() else ""
            self.fail(f"expected {OPERATORS}, found {word or found}{also}", start)
        return SYMBOLS.get(word, "in")

    def single(self, operator: str) -> Value:
        self.take(SPACE)
        start = self.position
        value = self.value(BARE)
        if operator not in ("=", "!=") and (value is None or isinstance(value, bool)):
            self.fail(f"expected a number or a text after {operator}, found {self.text[start:].strip()}", start)
        return value

    def listed(self) -> tuple[Value, ...]:
        self.take(SPACE)
        if self.next != "(":
            self.fail(f"expected ( and a list of values after in, found {self.next}")
        values: list[Value] = []
        while self.next != ")":
            self.position += 1  # the parenthesis or comma
            self.take(SPACE)
            values.append(self.value(BARE_IN_LIST))
            self.take(SPACE)
            if self.next not in (",", ")"):
                self.fail(f"expected , or ) after a value of the list, found {self.next}")
        self.position += 1
        return tuple(values)

    def value(self, bare: re.Pattern[str]) -> Value:
        """Parse a text in quotes, or whatever `bare` matches: a number, true, false, null, or a text."""
        if self.next in QUOTES:
            return self.quoted()
        start = self.position
        word = self.take(bare).rstrip()
        if not word:
            also = "; put it in quotes to make it a text" if self.next in ("=", "<", ">", "(", ")") else ""
            self.fail(f"expected a value, found {self.next}{also}")
        if bare is BARE and self.position < len(self.text):
            self.fail(
                f"expected the end of the filter, found {self.next}; put a value with it in quotes, "
                "and give each condition as a filter of its own"
            )
        if word.casefold() in WORDS:
            return WORDS[word.casefold()]
        if MORE_CONDITIONS.match(word):
            self.fail("expected one value; give each condition as a filter of its own, or a list: in (…, …)", start)
        if not NUMBER.fullmatch(word):
            return word
        number = float(word)
        if math.isinf(number):
            self.fail("expected a smaller number", start)
        return int(word) if WHOLE_NUMBER.fullmatch(word) else number

    def quoted(self) -> str:
        found = QUOTED.match(self.text, self.position)
        if found is None:
            self.fail(f"expected a second {self.next} that closes this quote")
        self.position = found.end()
        return re.sub(rf"""\\(['"\\])|{found[1]}({found[1]})""", r"\1\2", found[2])

    @property
    def next(self) -> str:
        """The next character, for comparisons and messages."""
        return self.text[self.position : self.position + 1] or "the end"

    def take(self, pattern: re.Pattern[str]) -> str:
        """Consume and return the text that the pattern matches at this position. It may be empty."""
        found = pattern.match(self.text, self.position)
        assert found is not None
        self.position = found.end()
        return found[0]

    def fail(self, expected: str, position: int | None = None) -> NoReturn:
        place = self.position if position is None else position
        first = max(0, place - SHOWN_AROUND)
        before, after = self.text[first:place], self.text[place : place + SHOWN_AROUND]
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in before + after)
        indent = "".join("\u3000" if unicodedata.east_asian_width(c) in "WF" else " " for c in before)
        raise BadFilter(f"the filter cannot be understood at column {place + 1}: {expected}.\n  {shown}\n  {indent}^")


def _in_name(character: str) -> bool:
    # Python does not count marks as letters, but many scripts write their vowels with them.
    return character.isalnum() or character in "_-." or unicodedata.category(character)[0] == "M"
