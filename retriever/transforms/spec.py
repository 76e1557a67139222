"""A transform's spec: its family and options as one line of text, e.g. `whiten:dimension=256,gamma=0.5`.

A spec holds only the options that were given. If a default changes in a later version, the same spec therefore gives
another transform.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from retriever.errors import Misuse

Option = int | float | str

AUTO = "auto"
"""Used instead of a spec. The transform is then chosen by measurements on the text."""


@dataclass(frozen=True)
class Rule:
    """The function that parses the value of an option, and a description of valid values for error messages."""

    read: Callable[[str], Option]
    takes: str


def _number(kind: type[int] | type[float], lowest: int, highest: int, word: str = "") -> Rule:
    """Return the rule for a number within limits. If `word` is given, this word is valid too."""

    def read(text: str) -> Option:
        if word and text == word:
            return word
        value = kind(text)
        if not lowest <= value <= highest:  # also refuses NaN
            raise ValueError(text)
        return value

    limits = f"a whole number from {lowest} to {highest:,}" if kind is int else f"a number from {lowest} to {highest}"
    return Rule(read, f"{word}, or {limits}" if word else limits)


def _method(text: str) -> str:
    if text not in ("pca", "zca"):
        raise ValueError(text)
    return text


OPTIONS: dict[str, dict[str, Rule]] = {
    "none": {},
    "center": {},
    "standardize": {},
    "whiten": {
        "method": Rule(_method, "pca or zca"),
        "dimension": _number(int, 1, 1_000_000),
        "gamma": _number(float, 0, 1),
        "shrinkage": _number(float, 0, 1, AUTO),
        "soft": _number(float, 0, 1000),
    },
    "flow": {
        "strength": _number(float, 0, 1),
        "steps": _number(int, 0, 1_000_000),
    },
    "bert-flow": {
        "steps": _number(int, 1, 1_000_000),
        "levels": _number(int, 1, 16),
        "depth": _number(int, 1, 64),
        "width": _number(int, 1, 4096),
    },
}

FAMILIES = tuple(OPTIONS)


@dataclass(frozen=True)
class Spec:
    """The family of a transform and the options that were given. `str` returns the canonical text."""

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
    """Parse `family` or `family:option=value,...`. Raise `Misuse` for any other text."""
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
