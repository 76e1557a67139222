"""Conditions on a document's metadata as SQL expressions. Every name and value is a bound parameter.

A field that holds a list has the elements of the list as its values. Any other field has one value. null does not count
as a value. A dot in a field's name leads into an object, or into each object of a list. A key that itself contains a
dot matches as well.

    field = value      at least one value of the field equals `value`; a missing field does not match
    field in (...)     at least one value of the field equals one of the listed values
    field != value     the field has values, and none of them equals `value`
    field < value      at least one value of the field is lower than `value`; <=, > and >= work in the same way
    field = null       the field has no values: it is missing, null or an empty list
    field != null      the field has values

A number is compared with stored numbers and with stored texts that are numbers, because a CSV file has only texts.
With < <= > >=, a number of four digits is also compared with the years of stored dates, such as 2024-05-01.
Integers beyond 64 bits are compared as floating-point numbers. A text is compared only with texts, by code point. true
and false equal the JSON values true and false, and the texts "true" and "false" in upper or lower case. They never
equal numbers. NUL characters in metadata are ignored.
"""

import difflib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from indexes.errors import BadFilter

Value = str | int | float | bool | None
Sql = tuple[str, list[Any]]
"""An SQL expression, and the values of its placeholders."""

SHOWN_FIELDS = 20
# There may be more field names than documents. Only some of them are collected and compared with an unknown name.
MOST_FIELDS = 100_000
COMPARED_FIELDS = 2000
COMPARED_LENGTH = 200
NOT_METADATA = {"id", "_id", "title", "text"}

# Some versions of SQLite end a text at a NUL. Escaped backslashes are rewritten first. After that, every \u0000
# is a NUL, and never the second backslash of a pair followed by "u0000".
METADATA = r"""CASE WHEN instr(documents.metadata, '\u0000')
 THEN replace(replace(documents.metadata, '\\', '\u005c'), '\u0000', '') ELSE documents.metadata END"""
# When SQLite compares a text with CAST(... AS NUMERIC), it converts a text that is a number. Any other text stays
# a text, and sorts after every number, including infinity.
NUMERIC = "CAST(? AS NUMERIC)"
YEAR_DIGITS = 4
DATE = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*"
INFINITY = "CAST('9e999' AS NUMERIC)"


@dataclass(frozen=True, slots=True)
class Condition:
    """A field, one of the operators = != < <= > >= in, and its value. `in` has one or more values."""

    field: str
    operator: str
    values: tuple[Value, ...]

    def sql(self) -> Sql:
        """Return an SQL expression that is true if a row of `documents` meets the condition, else false.

        It is never NULL.
        """
        if self.operator not in ("=", "!=", "in"):
            return _any_value(self.field, _ordered(self.operator, self.values[0]))
        equal = _any_value(self.field, _equal([value for value in self.values if value is not None]))
        there = _any_value(self.field, ("{0}.type <> 'null'", []))
        if self.operator == "!=":
            return there if None in self.values else _both(there, "AND NOT", equal)
        return _both(equal, "OR NOT", there) if None in self.values else equal


def _both(left: Sql, joint: str, right: Sql) -> Sql:
    return f"({left[0]} {joint} {right[0]})", left[1] + right[1]


def _equal(values: Sequence[Value]) -> Sql:
    """Return an SQL test: does a JSON value, `{0}.type` and `{0}.value`, equal one of the given values?"""
    texts = [value for value in values if isinstance(value, str)]
    numbers = [str(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    tests: list[str] = []
    bound: list[Any] = []
    if texts:
        tests.append("{0}.type = 'text' AND {0}.value IN (SELECT value FROM json_each(?))")
        bound.append(json.dumps(texts))
    if numbers:
        tests.append(
            "{0}.type IN ('integer', 'real', 'text') AND {0}.value IN (SELECT CAST(value AS NUMERIC) FROM json_each(?))"
        )
        bound.append(json.dumps(numbers))
    for value in (True, False):
        if any(own is value for own in values):
            tests.append("({0}.type = ? OR {0}.type = 'text' AND lower({0}.value) = ?)")
            bound += [json.dumps(value)] * 2
    return " OR ".join(tests) or "0", bound


def _ordered(operator: str, value: Value) -> Sql:
    """Return an SQL test: is a JSON value lower or higher than the given value, according to the operator?"""
    if isinstance(value, str):
        return f"{{0}}.type = 'text' AND {{0}}.value {operator} ?", [value]
    # The number is bound as a text, so that SQLite rounds it in the same way as the numbers in the metadata.
    test = (
        f"{{0}}.type IN ('integer', 'real', 'text') AND {{0}}.value {operator} {NUMERIC} AND {{0}}.value <= {INFINITY}"
    )
    if isinstance(value, int) and len(str(value)) == YEAR_DIGITS and value > 0:
        of_date = f"{{0}}.type = 'text' AND {{0}}.value GLOB '{DATE}' AND CAST(substr({{0}}.value, 1, 4) AS INTEGER)"
        return f"({test} OR {of_date} {operator} {NUMERIC})", [str(value)] * 2
    return test, [str(value)]


def _any_value(field: str, test: Sql) -> Sql:
    """Return an expression that is true if one of the field's values passes the test."""
    one, bound = test
    whole = (
        f"CASE {{0}}.type WHEN 'array' THEN EXISTS (SELECT 1 FROM json_each({{0}}.value) AS element"  # noqa: S608 - constant text
        f" WHERE {one.format('element')}) ELSE {one} END"
    )
    return _any_place(field, (whole, bound * 2))


def _any_place(field: str, test: Sql) -> Sql:
    """Return an expression that is true if the field passes the test.

    The name of the field is tried as a whole, and split at its dots.
    """
    readings = [[field], field.split(".")] if "." in field else [[field]]
    found = [_place(keys, test) for keys in readings]
    return f"({' OR '.join(text for text, _ in found)})", [value for _, bound in found for value in bound]


def _place(keys: Sequence[str], test: Sql) -> Sql:
    sources = [f"json_each({METADATA}) AS at0"]
    for level in range(1, len(keys)):
        above, object_ = f"at{level - 1}", f"object{level}"
        sources.append(
            f"json_each(CASE {above}.type WHEN 'array' THEN {above}.value"
            f" WHEN 'object' THEN '[' || {above}.value || ']' END) AS {object_}"
        )
        sources.append(f"json_each(CASE {object_}.type WHEN 'object' THEN {object_}.value END) AS at{level}")
    met = " AND ".join([*(f"at{level}.key = ?" for level in range(len(keys))), test[0].format(f"at{len(keys) - 1}")])
    return f"EXISTS (SELECT 1 FROM {', '.join(sources)} WHERE {met})", [*keys, *test[1]]  # noqa: S608 - constant text


# ---- fields --------------------------------------------------------------------------------------------------


def check_fields(connection: sqlite3.Connection, conditions: Sequence[Condition]) -> None:
    """Refuse a condition on a field that no document has. The error names the existing fields."""
    for field in dict.fromkeys(condition.field for condition in conditions):
        there, bound = _any_place(field, ("1", []))
        query = f"SELECT EXISTS (SELECT 1 FROM documents WHERE {there})"  # noqa: S608 - names and values are bound
        if not connection.execute(query, bound).fetchone()[0]:
            raise no_such_field(field, known_fields(connection))


def no_such_field(field: str, known: list[str]) -> BadFilter:
    """Return the error about a field that no document has.

    `known` are the names of the existing fields, the most common first.
    """
    return BadFilter(f"no document has a metadata field {_shown(field)}; {_advice(field, known)}")


def known_fields(connection: sqlite3.Connection) -> list[str]:
    """Return the names of all metadata fields, the most common first."""
    rows = connection.execute("SELECT metadata FROM documents WHERE metadata <> '{}'")
    return names_in(json.loads(metadata) for (metadata,) in rows)


def names_in(every: Iterable[Any]) -> list[str]:
    """Return the names of all fields in the given metadata, the most common first.

    The name of a field inside an object is the names of both, joined by a dot.
    """
    counts: Counter[str] = Counter()
    for metadata in every:
        counts.update(set(_names(metadata, "")))
        if len(counts) > MOST_FIELDS:
            break
    return sorted(counts, key=lambda name: (-counts[name], name))


def _names(value: Any, prefix: str) -> Iterator[str]:
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, dict):
            for key, inner in part.items():
                name = prefix + key.replace("\0", "")
                yield name
                yield from _names(inner, f"{name}.")


def _advice(field: str, known: list[str]) -> str:
    if field in NOT_METADATA:
        return "a filter applies to the metadata, not to id, title and text."
    if not known:
        return "no document has any metadata."
    near_in_length = (name for name in known[:COMPARED_FIELDS] if len(name) <= COMPARED_LENGTH)
    folded = {name.casefold(): name for name in reversed(list(near_in_length))}
    near = difflib.get_close_matches(field.casefold(), folded, n=1) if len(field) <= COMPARED_LENGTH else []
    meant = f"did you mean {folded[near[0]]!r}? " if near else ""
    more = f" and {len(known) - SHOWN_FIELDS:,} more" if len(known) > SHOWN_FIELDS else ""
    return f"{meant}{'The' if meant else 'the'} fields are: {', '.join(map(_shown, known[:SHOWN_FIELDS]))}{more}."


def _shown(name: str) -> str:
    return repr(name if len(name) <= COMPARED_LENGTH else name[: COMPARED_LENGTH - 1] + "…")
