"""Explains why no document meets the filters of a search, and names the nearest value.

Refuses dates in another form.
"""

import difflib
import re
from collections import Counter
from collections.abc import Sequence

from indexes.errors import BadFilter
from indexes.sqlite.conditions import Condition
from indexes.sqlite.documents import DocumentStore
from indexes.stores import AnyStore
from retriever.search.facets import Value, field_values
from retriever.terminal import cut, one_line, plural

SHOWN = 8
LONGEST_SHOWN = 60
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
BEGINS_ISO_DATE = re.compile(r"\d{4}(-\d{2}(-\d{2}.*)?)?", re.DOTALL)
ORDERED = ("<", "<=", ">", ">=")
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")


def why_none(store: AnyStore, conditions: Sequence[Condition]) -> str:
    """Explain why no document meets all conditions. The text is empty if some documents do."""
    if not isinstance(store, DocumentStore):
        return ""
    with store.snapshot():
        if len(store.matching(conditions)):
            return ""
        counts = [len(store.matching([condition])) for condition in conditions]
        for condition, count in zip(conditions, counts, strict=True):
            if not count:
                values = _values(store, condition.field)
                return _why(condition, values, [] if values else _parts(store, condition.field))
    alone = "; ".join(
        f"{_written(condition)} by {plural(count, 'document')}"
        for condition, count in zip(conditions, counts, strict=True)
    )
    return f"No document meets all filters together. Each filter alone is met: {alone}."


def refuse_other_dates(store: AnyStore, condition: Condition) -> None:
    """Raise `BadFilter` for a date such as 05.03.2024 if the field has dates such as 2024-03-05.

    Texts are compared by code point, so the search would find documents that do not meet the filter. If it would find
    none, `why_none` explains the problem instead.
    """
    wanted = condition.values[0]
    if condition.operator not in ORDERED or not isinstance(wanted, str) or BEGINS_ISO_DATE.fullmatch(wanted):
        return
    if not isinstance(store, DocumentStore) or not len(store.matching([condition])):
        return
    texts = [value for value in _values(store, condition.field) if isinstance(value, str)]
    if texts and all(map(ISO_DATE.match, texts)):
        field, example = one_line(condition.field), texts[0][:10]
        raise BadFilter(f"{_written(condition)}: dates of {field} are written like {example}; write this one so too.")


def _values(store: DocumentStore, field: str) -> Counter[Value]:
    counts: Counter[Value] = Counter()
    for _, metadata in store.each_metadata():
        counts.update({value for name, value in field_values(metadata) if name == field})
    return counts


def _parts(store: DocumentStore, field: str) -> list[str]:
    """Return the fields inside an object that the field holds."""
    names = {name for _, metadata in store.each_metadata() for name, _ in field_values(metadata)}
    return sorted(name for name in names if name.startswith(f"{field}."))


def _why(condition: Condition, values: Counter[Value], parts: Sequence[str]) -> str:
    none = f"No document has {_written(condition)}."
    field = one_line(condition.field)
    if condition.values == (None,):
        return f"{none} All documents have a value of {field}." if condition.operator == "=" else none
    if condition.operator == "!=":
        return f"{none} Every document that has {field} has this value."
    texts = sorted(value for value in values if isinstance(value, str))
    numbers = sorted(value for value in values if isinstance(value, int | float) and not isinstance(value, bool))
    wanted = condition.values[0]
    if not values:
        inside = f" It holds other fields: {', '.join(map(one_line, parts[:SHOWN]))}." if parts else ""
        return f"{none} {field} has no value in any document.{inside}"
    if condition.operator in ORDERED:
        if not texts and not numbers:
            return f"{none} The values of {field} are true or false, which have no order."
        if not isinstance(wanted, str) and not numbers and not any(NUMBER.fullmatch(text) for text in texts):
            return f"{none} The values of {field} are texts, e.g. {_shown(texts[0])}. Write the value in quotes."
        if isinstance(wanted, str) and not texts:
            return f"{none} The values of {field} are numbers, from {numbers[0]:g} to {numbers[-1]:g}."
        if isinstance(wanted, str) and ISO_DATE.match(texts[0]) and not ISO_DATE.match(f"{wanted}-01-01"[:10]):
            return f"{none} Dates of {field} are written like {texts[0][:10]}."
        if isinstance(wanted, str):
            return f"{none} Its values are from {_shown(texts[0])} to {_shown(texts[-1])}."
        numbers += [float(text) for text in texts if NUMBER.fullmatch(text)]
        others = [text for text in texts if not NUMBER.fullmatch(text)]
        also = f" Some values are not numbers, e.g. {_shown(others[0])}." if others else ""
        return f"{none} Its values are from {min(numbers):g} to {max(numbers):g}.{also}"
    if isinstance(wanted, int) and any(ISO_DATE.match(text) and text.startswith(f"{wanted}-") for text in texts):
        return f"{none} It has dates of that year. Write two filters: {field} >= {wanted}, and {field} <= {wanted}."
    near = [meant for value in condition.values if (meant := _nearest(value, values)) is not None]
    question = f" Did you mean {' or '.join(map(_shown, near))}?" if near else ""
    known = ", ".join(_shown(value) for value, _ in values.most_common(SHOWN))
    which = f"The most common of {len(values):,} values are" if len(values) > SHOWN else "The values are"
    return f"{none}{question} {which} {known}."


def _nearest(wanted: Value | None, values: Counter[Value]) -> Value | None:
    """Return the existing value whose spelling is nearest to the wanted one, if one is near enough."""
    folded: dict[str, Value] = {}
    for value, _ in values.most_common():
        folded.setdefault(str(value).casefold(), value)
    near = difflib.get_close_matches(str(wanted).casefold(), folded, n=1)
    return folded[near[0]] if near else None


def _written(condition: Condition) -> str:
    values = ", ".join("null" if value is None else _shown(value) for value in condition.values)
    value = f"({values})" if condition.operator == "in" else values
    return f"{one_line(condition.field)} {condition.operator} {value}"


def _shown(value: Value) -> str:
    """Return a value as a filter has it. A text that looks like a number is in quotes."""
    if isinstance(value, bool):
        return str(value).lower()
    shown = cut(one_line(str(value)), LONGEST_SHOWN)
    return f"'{shown}'" if isinstance(value, str) and NUMBER.fullmatch(value) else shown
