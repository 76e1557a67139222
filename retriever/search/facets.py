"""The metadata fields of a collection with their commonest values, for choosing a filter without typing it."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from indexes.sqlite.filters import MOST_LEVELS

Value = str | int | float | bool

MOST_FIELDS = 50
MOST_VALUES = 20
LONGEST_VALUE = 200
# JavaScript has only floating-point numbers, which miss some whole ones beyond this.
LARGEST_WHOLE_NUMBER = 2**53 - 1
# Of each field so many different values are counted: beyond that it is no field to choose from.
COUNTED_VALUES = 10_000
COUNTED_FIELDS = 1_000


@dataclass
class Facet:
    """A field: in how many documents it is, and its commonest values."""

    name: str
    documents: int = 0
    values: list[tuple[Value, int]] = field(default_factory=list)
    more: bool = False
    """Whether it has other values than these."""


def facets(connection: sqlite3.Connection) -> list[Facet]:
    """The commonest fields, those inside objects with dots, each with its commonest values."""
    fields: dict[str, Facet] = {}
    counts: dict[str, Counter[tuple[str, Value]]] = {}
    for (metadata,) in connection.execute("SELECT metadata FROM documents WHERE metadata <> '{}'"):
        found: dict[str, set[tuple[str, Value]]] = {}
        more: set[str] = set()
        for name, value in _values(json.loads(metadata), ""):
            if _is_unwieldy(value):
                found.setdefault(name, set())
                more.add(name)
            else:
                # True equals 1 to Python, and not to a filter.
                found.setdefault(name, set()).add((type(value).__name__, value))
        for name, values in found.items():
            if name not in fields and len(fields) >= COUNTED_FIELDS:
                continue
            facet = fields.setdefault(name, Facet(name))
            facet.documents += 1
            facet.more = facet.more or name in more
            own = counts.setdefault(name, Counter())
            for key in values:
                if key in own or len(own) < COUNTED_VALUES:
                    own[key] += 1
                else:
                    facet.more = True
    commonest = sorted(fields.values(), key=lambda facet: (-facet.documents, facet.name))[:MOST_FIELDS]
    for facet in commonest:
        ranked = sorted(counts[facet.name].items(), key=lambda item: (-item[1], str(item[0][1])))
        facet.values = [(value, count) for (_, value), count in ranked[:MOST_VALUES]]
        facet.more = facet.more or len(ranked) > MOST_VALUES
    return commonest


def _values(value: Any, prefix: str) -> Iterator[tuple[str, Value]]:
    """Every value a filter could name, with the name of its field.

    To a filter a name with dots is that of one field, or of fields inside each other, and no mixture of both.
    """
    for key, inner in value.items():
        name = prefix + key.replace("\0", "")  # as filters see it
        mixed = "." in key
        if (mixed and prefix) or name.count(".") >= MOST_LEVELS:
            continue
        for part in inner if isinstance(inner, list) else [inner]:
            if isinstance(part, dict) and not mixed:
                yield from _values(part, f"{name}.")
            elif isinstance(part, str | int | float):
                yield name, part


def _is_unwieldy(value: Value) -> bool:
    """Whether nobody would choose it from a list, or a browser could not hold it as it is."""
    if isinstance(value, str):
        return len(value) > LONGEST_VALUE
    return isinstance(value, int) and abs(value) > LARGEST_WHOLE_NUMBER
