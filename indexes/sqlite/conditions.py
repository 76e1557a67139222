"""Conditions on a document's metadata, as SQL in which every name and value is bound.

The values of a field are the value itself or, if it is a list, its elements; null is no value. A dot in a field's name
reaches into an object, or into each object of a list. A key that contains the dot itself matches as well.

    field = value      at least one value equals it (`in`: equals one of the list); a missing field does not match
    field != value     the field has values, and none of them equals it
    field < value      at least one value is lower; <=, > and >= likewise
    field = null       the field has no values: it is missing, null or an empty list
    field != null      the field has values

A number equals stored numbers, and stored texts that are numbers, because a CSV file has only texts. Integers beyond 64
bits are compared as floating-point numbers. A text is compared with texts only, by code point. true and false equal the
JSON values and the texts "true" and "false" in any case; they never equal numbers. NUL characters in metadata are
ignored.
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
"""An expression, and the values of its placeholders."""

SHOWN_FIELDS = 20
# There may be more field names than documents, so only some are collected and compared with an unknown one.
MOST_FIELDS = 100_000
COMPARED_FIELDS = 2000
COMPARED_LENGTH = 200
NOT_METADATA = {"id", "_id", "title", "text"}

# Some versions of SQLite end a text at a NUL. Escaped backslashes are rewritten first, so that every \u0000 left is
# a NUL, and never the second backslash of a pair followed by "u0000".
METADATA = r"""CASE WHEN instr(documents.metadata, '\u0000')
 THEN replace(replace(documents.metadata, '\\', '\u005c'), '\u0000', '') ELSE documents.metadata END"""
# Compared with CAST(... AS NUMERIC), a text that is a number becomes one. Any other text stays a text, and sorts after
# every number, infinity included.
NUMERIC = "CAST(? AS NUMERIC)"
INFINITY = "CAST('9e999' AS NUMERIC)"


@dataclass(frozen=True, slots=True)
class Condition:
    """A field, one of the operators = != < <= > >= in, and one value (for `in` one or more)."""

    field: str
    operator: str
    values: tuple[Value, ...]

    def sql(self) -> Sql:
        """Return an expression on a row of `documents`: true if it meets the condition, else false, never NULL."""
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
    """Return a test that one JSON value, `{0}.type` and `{0}.value`, equals one of these."""
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
    """Return a test that one JSON value is lower or higher than this one."""
    if isinstance(value, str):
        return f"{{0}}.type = 'text' AND {{0}}.value {operator} ?", [value]
    # Bound as text, so that SQLite rounds its digits as it rounds those of the metadata.
    return (
        f"{{0}}.type IN ('integer', 'real', 'text') AND {{0}}.value {operator} {NUMERIC} AND {{0}}.value <= {INFINITY}",
        [str(value)],
    )


def _any_value(field: str, test: Sql) -> Sql:
    """Return an expression that is true if one of the field's values passes the test."""
    one, bound = test
    whole = (
        f"CASE {{0}}.type WHEN 'array' THEN EXISTS (SELECT 1 FROM json_each({{0}}.value) AS element"  # noqa: S608 - constant text
        f" WHERE {one.format('element')}) ELSE {one} END"
    )
    return _any_place(field, (whole, bound * 2))


def _any_place(field: str, test: Sql) -> Sql:
    """Return an expression that is true if the field passes the test, its name taken whole or split at its dots."""
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
    """Refuse a condition on a field that no document has, and name the existing ones."""
    for field in dict.fromkeys(condition.field for condition in conditions):
        there, bound = _any_place(field, ("1", []))
        query = f"SELECT EXISTS (SELECT 1 FROM documents WHERE {there})"  # noqa: S608 - names and values are bound
        if not connection.execute(query, bound).fetchone()[0]:
            raise no_such_field(field, known_fields(connection))


def no_such_field(field: str, known: list[str]) -> BadFilter:
    """Make the error about a field that no document has; `known` are the existing ones, the most common first."""
    return BadFilter(f"no document has a metadata field {_shown(field)}; {_advice(field, known)}")


def known_fields(connection: sqlite3.Connection) -> list[str]:
    """Return the names of all metadata fields, the most common first."""
    rows = connection.execute("SELECT metadata FROM documents WHERE metadata <> '{}'")
    return names_in(json.loads(metadata) for (metadata,) in rows)


def names_in(every: Iterable[Any]) -> list[str]:
    """Return the names of all fields in this metadata, the most common first; a dot leads into an object."""
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
    return f"{meant}There are: {', '.join(map(_shown, known[:SHOWN_FIELDS]))}{more}."


def _shown(name: str) -> str:
    return repr(name if len(name) <= COMPARED_LENGTH else name[: COMPARED_LENGTH - 1] + "…")
