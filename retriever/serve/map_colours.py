"""What colours the points of a map: a metadata field as categories, or along a scale where it holds numbers."""

import base64
import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.sqlite.documents import DocumentStore
from retriever.maps.mapping import Map
from retriever.search.facets import Facet

NONE = 255
GREATEST_CODE = 254
MOST_CATEGORIES = 20
LONGEST_NAME = 200
# So few different numbers are categories, such as grades; and so many of the values must be numbers for a scale.
FEW_NUMBERS = 12
MOSTLY = 0.9


def usable(facets: list[Facet]) -> list[str]:
    """The fields that colours would tell something of: numbers, or values that several documents share."""
    return [facet.name for facet in facets if _tells(facet)]


def _tells(facet: Facet) -> bool:
    if not facet.values:
        return False
    numbers = sum(_number(value) is not None for value, _ in facet.values)
    return facet.values[0][1] > 1 or (numbers > 1 and numbers >= MOSTLY * len(facet.values))


def colours(store: DocumentStore, shown: Map, field: str) -> dict[str, Any] | None:
    """The code of every point, 255 where the document has no value or a rare one; None where none has the field."""
    values: list[Any] = [None] * len(shown)
    place = {number: n for n, number in enumerate(shown.numbers.tolist())}
    found = False
    for number, metadata in store.db.conn.execute("SELECT number, metadata FROM documents WHERE metadata <> '{}'"):
        value = next(_values(json.loads(metadata), field), None)
        if value is not None:
            found = True
            if number in place:
                values[place[number]] = value
    if not found:
        return None
    numbers = [_number(value) for value in values]
    known = [number for number in numbers if number is not None]
    there = sum(value is not None for value in values)
    if len(set(known)) > FEW_NUMBERS and len(known) >= MOSTLY * there:
        least, greatest = min(known), max(known)
        codes = np.array(
            [NONE if n is None else round(GREATEST_CODE * _along(n, least, greatest)) for n in numbers], np.uint8
        )
        return {"kind": "number", "least": least, "greatest": greatest, "codes": _text(codes)}
    named = [None if value is None else _name(value) for value in values]
    commonest = Counter(name for name in named if name is not None).most_common()
    ranked = sorted(commonest, key=lambda item: (-item[1], item[0]))[:MOST_CATEGORIES]
    code = {name: n for n, (name, _) in enumerate(ranked)}
    codes = np.array([NONE if name is None else code.get(name, NONE) for name in named], np.uint8)
    return {"kind": "category", "values": list(code), "codes": _text(codes)}


def _values(value: Any, field: str) -> Iterator[str | int | float]:
    """The values of a field; a dot reaches into objects, and into each object of a list."""
    for key, inner in value.items():
        parts = inner if isinstance(inner, list) else [inner]
        if key == field:
            yield from (part for part in parts if isinstance(part, str | int | float))
        elif field.startswith(f"{key}."):
            for part in parts:
                if isinstance(part, dict):
                    yield from _values(part, field[len(key) + 1 :])


def _number(value: Any) -> float | None:
    """A number, or a text that is one, as all that a CSV has are."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _along(number: float, least: float, greatest: float) -> float:
    # Halves, because the span of the widest would be infinite.
    return min(1.0, max(0.0, (number / 2 - least / 2) / (greatest / 2 - least / 2)))


def _name(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)[:LONGEST_NAME]


def _text(codes: NDArray[np.uint8]) -> str:
    return base64.b64encode(codes.tobytes()).decode("ascii")
