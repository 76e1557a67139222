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
from typing import NoReturn

from indexes.errors import BadFilter
from indexes.sqlite.conditions import Condition, Value

SYMBOLS = {"=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
OPERATORS = "= != < <= > >= or in"
NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
MORE_CONDITIONS = re.compile(r"[+-]?[0-9][0-9.]*\s+(?:and|or)\s", re.IGNORECASE)
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
WORDS: dict[str, Value] = {"true": True, "false": False, "null": None}
QUOTES = "'\""
# Outside of quotes, these characters probably belong to another condition. It must not silently become part of a text.
NEEDS_QUOTES = '=<>()"'
MOST_LEVELS = 16
LONGEST = 4_000_000
SHOWN_AROUND = 60


def parse(text: str) -> Condition:
    """Parse a filter. An error names the column where the filter is invalid, and what was expected there."""
    return _Parser(text).condition()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def condition(self) -> Condition:
        if len(self.text) > LONGEST:
            raise BadFilter(f"the filter has {len(self.text):,} characters; the limit is {LONGEST:,}.")
        for position, character in enumerate(self.text):
            if character == "\0":
                self.fail("expected text, found a NUL character", position)
            if "\ud800" <= character <= "\udfff":
                self.fail("expected text, found bytes that are not valid UTF-8", position)
        self.skip_space()
        start = self.position
        field = self.field()
        if field.count(".") >= MOST_LEVELS:
            self.fail(f"expected a field at most {MOST_LEVELS} levels deep", start)
        operator = self.operator()
        values = self.listed() if operator == "in" else (self.value(operator),)
        self.skip_space()
        if not self.at_end():
            self.fail(
                f"expected the end of the filter, found {self.found()}; give each condition as a filter of its own"
            )
        return Condition(field, operator, values)

    def field(self) -> str:
        if self.peek() and self.peek() in QUOTES:
            return self.quoted()
        start = self.position
        while _in_name(self.peek()):
            self.position += 1
        if self.position == start:
            self.fail(f"expected the name of a metadata field, found {self.found()}")
        return self.text[start : self.position]

    def operator(self) -> str:
        self.skip_space()
        start = self.position
        word = re.compile(r"[=!<>~]+|\w+|").match(self.text, start)
        assert word is not None
        if word[0].casefold() != "in" and word[0] not in SYMBOLS:
            also = "; a field with a space in its name goes in quotes" if word[0].isalnum() else ""
            self.fail(f"expected {OPERATORS}, found {word[0] or self.found()}{also}")
        self.position = word.end()
        return SYMBOLS.get(word[0], "in")

    def value(self, operator: str) -> Value:
        self.skip_space()
        start = self.position
        value = self.quoted() if self.peek() and self.peek() in QUOTES else self.bare("")
        if operator not in ("=", "!=") and (value is None or isinstance(value, bool)):
            self.fail(f"expected a number or a text after {operator}, found {self.text[start:].strip()}", start)
        return value

    def listed(self) -> tuple[Value, ...]:
        self.skip_space()
        if self.peek() != "(":
            self.fail(f"expected ( and a list of values after in, found {self.found()}")
        values: list[Value] = []
        while self.peek() != ")":
            self.position += 1  # the parenthesis or comma
            self.skip_space()
            values.append(self.quoted() if self.peek() and self.peek() in QUOTES else self.bare(","))
            self.skip_space()
            if self.peek() not in (",", ")"):
                self.fail(f"expected , or ) after a value of the list, found {self.found()}")
        self.position += 1
        return tuple(values)

    def bare(self, separators: str) -> Value:
        """Parse a value without quotes, up to the end or a separator: a number, true, false, null, or a text."""
        start = self.position
        while not self.at_end() and self.peek() not in separators and self.peek() not in NEEDS_QUOTES:
            self.position += 1
        word = self.text[start : self.position].rstrip()
        if not word:
            also = "; put it in quotes to make it a text" if not self.at_end() and self.peek() in NEEDS_QUOTES else ""
            self.fail(f"expected a value, found {self.found()}{also}")
        if not self.at_end() and not separators:
            self.fail(
                f"expected the end of the filter, found {self.found()}; put a value with it in quotes, "
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
        start, quote = self.position, self.peek()
        self.position += 1
        characters: list[str] = []
        while not self.at_end():
            here, following = self.peek(), self.text[self.position + 1 : self.position + 2]
            escaped = (here == "\\" and following and following in QUOTES + "\\") or here == following == quote
            if here == quote and not escaped:
                self.position += 1
                return "".join(characters)
            characters.append(following if escaped else here)
            self.position += 2 if escaped else 1
        self.fail(f"expected another {quote} that closes the one here", start)

    def peek(self) -> str:
        """Return the next character, or an empty string at the end."""
        return self.text[self.position : self.position + 1]

    def at_end(self) -> bool:
        return self.position >= len(self.text)

    def skip_space(self) -> None:
        while self.peek().isspace():
            self.position += 1

    def found(self) -> str:
        return "the end" if self.at_end() else self.peek()

    def fail(self, expected: str, position: int | None = None) -> NoReturn:
        place = self.position if position is None else position
        first = max(0, place - SHOWN_AROUND)
        before, after = self.text[first:place], self.text[place : place + SHOWN_AROUND]
        shown = "".join(
            character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in before + after
        )
        indent = "".join("\u3000" if unicodedata.east_asian_width(c) in "WF" else " " for c in before)
        raise BadFilter(f"the filter cannot be understood at column {place + 1}: {expected}.\n  {shown}\n  {indent}^")


def _in_name(character: str) -> bool:
    # Python does not count marks as letters, but many scripts write their vowels with them.
    return character != "" and (character.isalnum() or character in "_-." or unicodedata.category(character)[0] == "M")
