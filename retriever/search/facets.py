"""List the metadata fields of a collection with their most common values, so that a user can choose a filter."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

from indexes.sqlite.documents import DocumentStore
from indexes.sqlite.filters import MOST_LEVELS
from retriever.search.ranges import FieldRange, RangeCounter

Value = str | int | float | bool

MOST_FIELDS = 50
MOST_VALUES = 20
LONGEST_VALUE = 200
# JavaScript cannot represent every integer above this one.
LARGEST_WHOLE_NUMBER = 2**53 - 1
# Maximum number of distinct values that are counted per field. A field with more values is not useful as a choice.
COUNTED_VALUES = 10_000
COUNTED_FIELDS = 1_000
# Maximum number of distinct values of one field in which a user can search.
LISTED_VALUES = 200_000


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

    def with_first(self, count: int) -> Self:
        """Return the field with only the first values."""
        return replace(self, values=self.values[:count], more=self.more or len(self.values) > count)


@dataclass
class RangedFacet(Facet):
    """A metadata field, with its range if it has one."""

    range: FieldRange | None = None
    """The range of a field with numbers or dates. None for a field with other values, or with only a few."""


def facets(store: DocumentStore) -> list[RangedFacet]:
    """Return the most common fields with their most common values. The name of a nested field contains dots."""
    fields: dict[str, RangedFacet] = {}
    counts: dict[str, Counter[tuple[str, Value]]] = {}
    ranges: dict[str, RangeCounter] = {}
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
            facet = fields.setdefault(name, RangedFacet(name))
            facet.documents += 1
            facet.more = facet.more or name in more
            own, ranged = counts.setdefault(name, Counter()), ranges.setdefault(name, RangeCounter())
            for key in values:
                ranged.add(key[1])
                if key in own or len(own) < COUNTED_VALUES:
                    own[key] += 1
                else:
                    facet.more = True
    commonest = sorted(fields.values(), key=lambda facet: (-facet.documents, facet.name))[:MOST_FIELDS]
    for facet in commonest:
        ranked = sorted(counts[facet.name].items(), key=lambda item: (-item[1], str(item[0][1])))
        facet.values = [FieldValue(value, count) for (_, value), count in ranked[:MOST_VALUES]]
        facet.more = facet.more or len(ranked) > MOST_VALUES
        facet.range = ranges[facet.name].range()
    return commonest


def value_counts(store: DocumentStore, name: str) -> list[FieldValue]:
    """Return the values of a field, most common first. Documents with unwieldy values only are not counted."""
    counts: Counter[tuple[str, Value]] = Counter()
    for _, metadata in store.each_metadata():
        found = {(type(value).__name__, value) for field, value in field_values(metadata) if field == name}
        for key in found:
            if not _is_unwieldy(key[1]) and (key in counts or len(counts) < LISTED_VALUES):
                counts[key] += 1
    ranked = sorted(counts.items(), key=lambda item: (-item[1], str(item[0][1])))
    return [FieldValue(value, count) for (_, value), count in ranked]


def matching_values(counted: list[FieldValue], contained: str) -> tuple[list[FieldValue], bool]:
    """Return the most common values that contain a text, ignoring case, and whether there are more such values."""
    wanted = contained.casefold().strip()
    found = [one for one in counted if wanted in str(one.value).casefold()]
    return found[:MOST_VALUES], len(found) > MOST_VALUES


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
