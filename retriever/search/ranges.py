"""The range of a metadata field with numbers or dates, and a histogram of it, so that a user can choose a part."""

import math
import random
import re
from dataclasses import dataclass
from datetime import date
from typing import Literal

BINS = 24
FEWEST_DISTINCT = 9
"""A field with fewer different values is a choice among them, e.g. grades."""
MOSTLY = 0.9
"""A field has a range if at least this share of its values are numbers, or dates."""
SAMPLED = 50_000
NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
DATE = re.compile(r"\d{4}-\d\d-\d\d(?=$|[T ])")


@dataclass(frozen=True)
class FieldRange:
    """The least and the greatest value of a field, and how the values are spread between them."""

    kind: Literal["number", "date"]
    least: float | str
    """A number, or a date as YYYY-MM-DD."""
    greatest: float | str
    whole: bool
    """Whether all values are whole numbers, or dates without a time."""
    histogram: list[int]
    """Counts of values in parts of equal width. They are of a sample if the field has very many values."""


class RangeCounter:
    """Collects the values of a field in one pass, in bounded memory."""

    def __init__(self) -> None:
        self._all = 0
        self._kinds = {"number": _Spread(), "date": _Spread()}

    def add(self, value: object) -> None:
        self._all += 1
        if isinstance(value, str):
            if NUMBER.fullmatch(value):
                self._kinds["number"].add(float(value), "." not in value)
            elif found := DATE.match(value):
                try:
                    self._kinds["date"].add(date.fromisoformat(found[0]).toordinal(), len(value) == len(found[0]))
                except ValueError:
                    return  # e.g. 2020-02-31
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(_float(value)):
            self._kinds["number"].add(_float(value), isinstance(value, int))

    def range(self) -> FieldRange | None:
        for kind, spread in self._kinds.items():
            if spread.count and spread.count >= MOSTLY * self._all and spread.distinct >= FEWEST_DISTINCT:
                return spread.range("date" if kind == "date" else "number")
        return None


class _Spread:
    """The extremes of some numbers, and a random sample of them."""

    def __init__(self) -> None:
        self.count = 0
        self.whole = True
        self._least, self._greatest = math.inf, -math.inf
        self._sample: list[float] = []
        self._random = random.Random(0)

    @property
    def distinct(self) -> int:
        return len(set(self._sample))

    def add(self, value: float, whole: bool) -> None:
        self.count += 1
        self.whole &= whole
        self._least, self._greatest = min(self._least, value), max(self._greatest, value)
        if len(self._sample) < SAMPLED:
            self._sample.append(value)
        elif (place := self._random.randrange(self.count)) < SAMPLED:
            self._sample[place] = value

    def range(self, kind: Literal["number", "date"]) -> FieldRange:
        histogram = [0] * BINS
        # Halved, because the difference of the two largest floats would be infinite.
        span = self._greatest / 2 - self._least / 2
        for value in self._sample:
            histogram[min(BINS - 1, int(BINS * ((value / 2 - self._least / 2) / span)))] += 1
        ends: list[float | str] = [self._least, self._greatest]
        if kind == "date":
            ends = [date.fromordinal(int(end)).isoformat() for end in (self._least, self._greatest)]
        elif self.whole:
            ends = [int(end) for end in (self._least, self._greatest)]
        return FieldRange(kind, ends[0], ends[1], self.whole, histogram)


def _float(value: float) -> float:
    """Return a number as a float, infinite if it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
