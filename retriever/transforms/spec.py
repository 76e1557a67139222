"""A transform's spec: its family and options as one line of text, e.g. `whiten:dimension=256,gamma=0.5`.

Only the given options are stored. A later change of a default therefore changes the fitted transform, not the spec.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from retriever.errors import Misuse

Option = int | float | str

AUTO = "auto"
"""In place of a spec: choose the transform from the text."""


@dataclass(frozen=True)
class Rule:
    """How the value of an option is parsed, and a description of valid values for error messages."""

    read: Callable[[str], Option]
    takes: str


def _whole(lowest: int, highest: int) -> Rule:
    def read(text: str) -> int:
        value = int(text)
        if not lowest <= value <= highest:
            raise ValueError(text)
        return value

    return Rule(read, f"a whole number from {lowest} to {highest:,}")


def _real(lowest: float, highest: float) -> Rule:
    def read(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and lowest <= value <= highest):
            raise ValueError(text)
        return value

    return Rule(read, f"a number from {lowest:g} to {highest:g}")


def _word(*words: str) -> Rule:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return Rule(read, " or ".join(words))


def _either(first: Rule, second: Rule) -> Rule:
    def read(text: str) -> Option:
        try:
            return first.read(text)
        except ValueError:
            return second.read(text)

    return Rule(read, f"{first.takes}, or {second.takes}")


OPTIONS: dict[str, dict[str, Rule]] = {
    "none": {},
    "center": {},
    "standardize": {},
    "whiten": {
        "method": _word("pca", "zca"),
        "dimension": _whole(1, 1_000_000),
        "gamma": _real(0, 1),
        "shrinkage": _either(_word("auto"), _real(0, 1)),
        "soft": _real(0, 1000),
    },
    "flow": {
        "strength": _real(0, 1),
        "steps": _whole(0, 1_000_000),
    },
    "bert-flow": {
        "steps": _whole(1, 1_000_000),
        "levels": _whole(1, 16),
        "depth": _whole(1, 64),
        "width": _whole(1, 4096),
    },
}

FAMILIES = tuple(OPTIONS)


@dataclass(frozen=True)
class Spec:
    """A family and the given options. `str` returns the canonical text."""

    family: str
    options: Mapping[str, Option] = field(default_factory=dict)

    def __str__(self) -> str:
        given = ",".join(f"{name}={_text(value)}" for name, value in sorted(self.options.items()))
        return f"{self.family}:{given}" if given else self.family

    def __hash__(self) -> int:
        return hash(str(self))


def _text(value: Option) -> str:
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def parse(text: str | Spec) -> Spec:
    """Parse `family` or `family:option=value,...`. Raises `Misuse` with the valid names for anything else."""
    family, colon, rest = str(text).strip().partition(":")
    if family not in OPTIONS:
        raise Misuse(f"unknown transform {family!r}; the transforms are: {', '.join(FAMILIES)}")
    rules = OPTIONS[family]
    options: dict[str, Option] = {}
    for part in rest.split(",") if colon else []:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in rules:
            known = f"its options are: {', '.join(rules)}" if rules else "it has no options"
            raise Misuse(f"the transform {family!r} has no option {name!r}; {known}")
        if name in options:
            raise Misuse(f"the option {name!r} of the transform {family!r} is given twice")
        try:
            options[name] = rules[name].read(value if equals else "")
        except ValueError:
            takes = rules[name].takes
            raise Misuse(f"the option {name!r} of the transform {family!r} takes {takes}, not {value!r}") from None
    if options.get("method") == "zca" and "dimension" in options:
        raise Misuse("whitening with method=zca keeps every dimension; for fewer dimensions use method=pca")
    return Spec(family, options)
