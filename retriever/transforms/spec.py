"""A transform's spec: its family and options as one line of text, e.g. `whiten:dimension=256,gamma=0.5`.

A spec holds only the options that were given. If a default changes in a later version, the same spec therefore gives
another transform.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from retriever.errors import Misuse

Option = int | float | str

AUTO = "auto"
"""Used instead of a spec. The transform is then chosen by measurements on the text."""


@dataclass(frozen=True)
class Rule:
    """The valid values of an option: one of `words`, or a number from `lowest` to `highest`."""

    words: tuple[str, ...] = ()
    number: type[int] | type[float] | None = None
    lowest: int = 0
    highest: int = 1

    def read(self, text: str) -> Option:
        """Parse a value. Raise `ValueError` if it is not valid."""
        if text in self.words:
            return text
        if self.number is None or not self.lowest <= (value := self.number(text)) <= self.highest:  # also refuses NaN
            raise ValueError(text)
        return value

    def __str__(self) -> str:
        """Describe the valid values, for error messages."""
        words = " or ".join(self.words)
        if self.number is None:
            return words
        kind, highest = ("a whole number", f"{self.highest:,}") if self.number is int else ("a number", self.highest)
        limits = f"{kind} from {self.lowest} to {highest}"
        return f"{words}, or {limits}" if words else limits


OPTIONS: dict[str, dict[str, Rule]] = {
    "none": {},
    "center": {},
    "standardize": {},
    "whiten": {
        "method": Rule(("pca", "zca")),
        "dimension": Rule((), int, 1, 1_000_000),
        "gamma": Rule((), float),
        "shrinkage": Rule((AUTO,), float),
        "soft": Rule((), float, 0, 1000),
    },
    "flow": {
        "strength": Rule((), float),
        "steps": Rule((), int, 0, 1_000_000),
    },
    "bert-flow": {
        "steps": Rule((), int, 1, 1_000_000),
        "levels": Rule((), int, 1, 16),
        "depth": Rule((), int, 1, 64),
        "width": Rule((), int, 1, 4096),
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
            raise Misuse(
                f"the option {name!r} of the transform {family!r} takes {rules[name]}, not {value!r}"
            ) from None
    if options.get("method") == "zca" and "dimension" in options:
        raise Misuse("whitening with method=zca keeps every dimension; for fewer dimensions use method=pca")
    return Spec(family, options)
