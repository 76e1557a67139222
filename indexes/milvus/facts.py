"""Translates filters over metadata into Milvus expressions.

The filters have the same meaning as in SQLite (indexes/sqlite/conditions.py).

Each document's metadata is stored in a form that simple expressions can test. A *fact* is a short hash of one
statement: a field exists, has a value, or equals a certain text, number or boolean. The *bounds* of a field are its
lowest and highest number and text, encoded so that they sort as texts. An expression therefore contains only hashes and
hexadecimal digits, and no field name or value of a user can change its meaning.

The operators < <= > >= compare only the first 128 bytes of a text.
"""

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from indexes.milvus.schema import JSON_BYTES, MAX_FACTS
from indexes.sqlite.conditions import Condition, Value
from indexes.sqlite.filters import MOST_LEVELS

# The texts that SQLite converts to a number.
NUMBER = re.compile(r"[ \t\n\v\f\r]*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[ \t\n\v\f\r]*", re.ASCII)
WHOLE = re.compile(r"[ \t\n\v\f\r]*[+-]?\d+[ \t\n\v\f\r]*", re.ASCII)
COMPARED_BYTES = 128

KEY, VALUE, TEXT, NUMERIC, BOOLEAN = "k", "v", "t", "n", "b"


def facts_and_bounds(metadata: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return the facts and bounds of a document with this metadata."""
    facts: dict[str, None] = {}
    bounds: dict[str, str] = {}

    def bound(name: str, kind: str, written: str) -> None:
        low, high = _bound_names(name, kind)
        bounds[low] = min(bounds.get(low, written), written)
        bounds[high] = max(bounds.get(high, written), written)

    for name, value in _fields(metadata):
        facts[_fact(KEY, name)] = None
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                facts[_fact(VALUE, name)] = None
            if isinstance(one, str):
                one = one.replace("\0", "")
                facts[_fact(TEXT, name, one)] = None
                bound(name, TEXT, text_key(one))
                if _ascii_lower(one) in ("true", "false"):
                    facts[_fact(BOOLEAN, name, _ascii_lower(one))] = None
            elif isinstance(one, bool):
                facts[_fact(BOOLEAN, name, json.dumps(one))] = None
            if (number := _number(one)) is not None:
                facts[_fact(NUMERIC, name, number_key(number))] = None
                bound(name, NUMERIC, number_key(number))
    return list(facts), bounds


def metadata_problem(metadata: Mapping[str, Any]) -> str | None:
    """Return why Milvus cannot store this metadata, or None if it can."""
    facts, bounds = facts_and_bounds(metadata)
    if len(facts) > MAX_FACTS:
        return f"its metadata has {len(facts):,} values for filters, but Milvus can store only {MAX_FACTS:,}"
    if (size := len(json.dumps(bounds))) > JSON_BYTES:
        return f"its metadata needs {size:,} bytes for range filters, but Milvus can store only {JSON_BYTES:,}"
    return None


def expression(conditions: Sequence[Condition]) -> str:
    """Return a Milvus expression that is true for a row that meets all conditions."""
    return " and ".join(f"({_expression(condition)})" for condition in conditions)


def has_key(name: str) -> str:
    """Return a Milvus expression that is true if the metadata has this field, even if its value is null."""
    return _contains_any([_fact(KEY, name)])


def _expression(condition: Condition) -> str:
    name, operator = condition.field, condition.operator
    has_value = _contains_any([_fact(VALUE, name)])
    if operator not in ("=", "!=", "in"):
        (value,) = condition.values
        kind, written = (TEXT, text_key(value)) if isinstance(value, str) else (NUMERIC, number_key(_exact(value)))
        low, high = _bound_names(name, kind)
        return f'bounds["{low if operator in ("<", "<=") else high}"] {operator} "{written}"'
    known = [value for value in condition.values if value is not None]
    if not known:
        return has_value if operator == "!=" else f"not {has_value}"
    equal = _contains_any([_equal_fact(name, value) for value in known])
    if operator == "!=":
        return f"{has_value} and not {equal}"
    return f"{equal} or not {has_value}" if None in condition.values else equal


def _contains_any(facts: Iterable[str]) -> str:
    return f"array_contains_any(facts, {json.dumps(list(facts))})"


def _equal_fact(name: str, value: Value) -> str:
    if isinstance(value, bool):
        return _fact(BOOLEAN, name, json.dumps(value))
    if isinstance(value, str):
        return _fact(TEXT, name, value)
    return _fact(NUMERIC, name, number_key(_exact(value)))


def _fact(kind: str, name: str, value: str = "") -> str:
    return kind + hashlib.sha256(json.dumps([kind, name, value]).encode()).hexdigest()[:24]


def _bound_names(name: str, kind: str) -> tuple[str, str]:
    own = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{kind}{own}l", f"{kind}{own}h"


def _fields(metadata: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every field with its value, under the name that filters use (`indexes.sqlite.conditions`)."""
    for key, value in metadata.items():
        key = key.replace("\0", "")
        yield key, value
        if "." not in key:
            yield from _nested_fields(key, value, 1)


def _nested_fields(name: str, value: Any, level: int) -> Iterator[tuple[str, Any]]:
    if level > MOST_LEVELS:
        return
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            for key, inner in one.items():
                key = key.replace("\0", "")
                if "." not in key:
                    yield f"{name}.{key}", inner
                    yield from _nested_fields(f"{name}.{key}", inner, level + 1)


# ---- encoding numbers and texts so that they sort as texts ----------------------------------------------------------


def number_key(number: int | float) -> str:
    """Convert a number to a string of hexadecimal digits.

    The strings sort like the numbers, and equal numbers have equal strings. The digits encode the nearest
    floating-point number and, for an integer, its difference from that number.
    """
    near = float(number) or 0.0  # -0.0 becomes 0.0
    (bits,) = struct.unpack(">Q", struct.pack(">d", near))
    ordered = bits ^ (0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else 1 << 63)
    rest = number - int(near) if isinstance(number, int) else 0
    return f"{ordered:016x}{rest + 0x8000:04x}"


def text_key(text: str) -> str:
    """Return the first bytes of a text as hexadecimal digits, which sort like the code points of the text."""
    return text.encode("utf-8", "surrogatepass")[:COMPARED_BYTES].hex()


def _number(value: Any) -> int | float | None:
    """Return a stored value as a number, or None if it is neither a number nor the text of a number."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return _exact(value)
    if isinstance(value, str) and NUMBER.fullmatch(value):
        return _exact(int(value)) if WHOLE.fullmatch(value) and len(value) < 100 else _exact(float(value))
    return None


def _exact(value: Any) -> int | float:
    """Return an integer of at most 64 bits unchanged, and any other number as a float."""
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _ascii_lower(text: str) -> str:
    return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in text)
