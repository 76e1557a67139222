"""What a filter asks of a document's metadata, as SQL in which every name and value is bound.

A field's values are all it holds but null: the value itself, or each element if it is a list. A dot in its name
reaches into an object, or into each object of a list; a key that is the whole name, dot included, counts as well.

    field = value      some value equals it (`in`: equals one of them); missing fields do not match
    field != value     there are values, and none equals it
    field < value      some value is lower, and likewise <=, > and >=
    field = null       there are no values: the field is missing, null, or a list of nothing
    field != null      there are some

A number is compared as one, with stored numbers and with stored texts that are numbers (all that a CSV has); whole
numbers beyond 64 bits as floating-point ones. A text is compared with texts only, exactly, by code point. true and
false equal the JSON values, and texts that say so in any case; they are no numbers. NULs in metadata are passed over.
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
"""An expression and what is bound to its placeholders."""

SHOWN_FIELDS = 20
# Of names there may be as many as documents, or more: so many are gathered, and compared with one that is not there.
MOST_FIELDS = 100_000
COMPARED_FIELDS = 2000
COMPARED_LENGTH = 200
NOT_METADATA = {"id", "_id", "title", "text"}

# SQLite ends a text at a NUL in some versions and not in others. Pairs of backslashes are written in another way
# first, so that what is left of \u0000 is a NUL and never the end of an escaped backslash and "u0000".
METADATA = r"""CASE WHEN instr(documents.metadata, '\u0000')
 THEN replace(replace(documents.metadata, '\\', '\u005c'), '\u0000', '') ELSE documents.metadata END"""
# Compared with CAST(... AS NUMERIC), a text that is wholly a number becomes one; any other text stays what it is,
# and sorts after every number, infinity included.
NUMERIC = "CAST(? AS NUMERIC)"
INFINITY = "CAST('9e999' AS NUMERIC)"


@dataclass(frozen=True, slots=True)
class Condition:
    """A field, one of = != < <= > >= in, and one value (for `in` one or more)."""

    field: str
    operator: str
    values: tuple[Value, ...]

    def sql(self) -> Sql:
        """Whether a row of `documents` meets it, as an expression that is true or false, never NULL."""
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
    """A test of one JSON value, given as `{0}.type` and `{0}.value`: does it equal one of these?"""
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
    """The same for < <= > >=."""
    if isinstance(value, str):
        return f"{{0}}.type = 'text' AND {{0}}.value {operator} ?", [value]
    # As text, because SQLite then reads the digits as it reads those of the metadata, rounding included.
    return (
        f"{{0}}.type IN ('integer', 'real', 'text') AND {{0}}.value {operator} {NUMERIC} AND {{0}}.value <= {INFINITY}",
        [str(value)],
    )


def _any_value(field: str, test: Sql) -> Sql:
    """Whether one of the field's values passes a test."""
    one, bound = test
    whole = (
        f"CASE {{0}}.type WHEN 'array' THEN EXISTS (SELECT 1 FROM json_each({{0}}.value) AS element"  # noqa: S608 - constant text
        f" WHERE {one.format('element')}) ELSE {one} END"
    )
    return _any_place(field, (whole, bound * 2))


def _any_place(field: str, test: Sql) -> Sql:
    """Whether what stands under the field's name, found by either reading of it, passes a test."""
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
    """Refuse a condition on a field that no document has, with the names of those there are."""
    for field in dict.fromkeys(condition.field for condition in conditions):
        there, bound = _any_place(field, ("1", []))
        query = f"SELECT EXISTS (SELECT 1 FROM documents WHERE {there})"  # noqa: S608 - names and values are bound
        if not connection.execute(query, bound).fetchone()[0]:
            raise no_such_field(field, known_fields(connection))


def no_such_field(field: str, known: list[str]) -> BadFilter:
    """The refusal of a field that no document has; `known` are those there are, the most common first."""
    return BadFilter(f"no document has a metadata field {_shown(field)}; {_advice(field, known)}")


def known_fields(connection: sqlite3.Connection) -> list[str]:
    """The names of all metadata fields of a database."""
    rows = connection.execute("SELECT metadata FROM documents WHERE metadata <> '{}'")
    return names_in(json.loads(metadata) for (metadata,) in rows)


def names_in(every: Iterable[Any]) -> list[str]:
    """The names of all fields in the metadata of documents, those inside objects with dots, the most common first."""
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
        return "a filter looks at the metadata, not at id, title and text."
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
