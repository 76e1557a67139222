"""List the metadata fields of a collection with their most common values, so that a user can choose a filter."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from indexes.sqlite.documents import DocumentStore
from indexes.sqlite.filters import MOST_LEVELS

Value = str | int | float | bool

MOST_FIELDS = 50
MOST_VALUES = 20
LONGEST_VALUE = 200
# JavaScript cannot represent every integer above this one.
LARGEST_WHOLE_NUMBER = 2**53 - 1
# Maximum number of distinct values that are counted per field. A field with more values is not useful as a choice.
COUNTED_VALUES = 10_000
COUNTED_FIELDS = 1_000


@dataclass(frozen=True)
class FieldValue:
    """A value of a metadata field, and how many documents have it."""

    value: Value
    count: int


@dataclass
class Facet:
    """A metadata field: how many documents have it, and its most common values."""

    name: str
    documents: int = 0
    values: list[FieldValue] = field(default_factory=list)
    more: bool = False
    """Whether the field has values that are not in `values`."""


def facets(store: DocumentStore) -> list[Facet]:
    """Return the most common fields with their most common values. The name of a nested field contains dots."""
    fields: dict[str, Facet] = {}
    counts: dict[str, Counter[tuple[str, Value]]] = {}
    for _, metadata in store.each_metadata():
        found: dict[str, set[tuple[str, Value]]] = {}
        more: set[str] = set()
        for name, value in field_values(metadata):
            if _is_unwieldy(value):
                found.setdefault(name, set())
                more.add(name)
            else:
                # True equals 1 in Python, but not in a filter.
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
        facet.values = [FieldValue(value, count) for (_, value), count in ranked[:MOST_VALUES]]
        facet.more = facet.more or len(ranked) > MOST_VALUES
    return commonest


def field_values(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Yield every value that a filter can select, with the name of its field.

    In a filter, a name with dots is either the name of one field or the path to a nested field. It cannot be a path
    with a key that itself contains a dot, so such fields are left out.
    """
    for key, inner in value.items():
        name = prefix + key.replace("\0", "")  # as in filters
        mixed = "." in key
        if (mixed and prefix) or name.count(".") >= MOST_LEVELS:
            continue
        for part in inner if isinstance(inner, list) else [inner]:
            if isinstance(part, dict) and not mixed:
                yield from field_values(part, f"{name}.")
            elif isinstance(part, str | int | float):
                yield name, part


def _is_unwieldy(value: Value) -> bool:
    """Return whether a value is too long for a list, or too large for JavaScript."""
    if isinstance(value, str):
        return len(value) > LONGEST_VALUE
    return isinstance(value, int) and abs(value) > LARGEST_WHOLE_NUMBER
