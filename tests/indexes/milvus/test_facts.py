"""Filters as Milvus expressions: what they find is what SQLite finds, whatever stands in names and values."""

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexes.checksums import metadata_text
from indexes.milvus import schema
from indexes.milvus.address import Address
from indexes.milvus.client import Client
from indexes.milvus.facts import expression, facts_and_bounds, has_key, metadata_problem, number_key
from indexes.sqlite.conditions import Condition

Metadata = dict[str, Any]
Matching = Callable[[Sequence[Metadata], Sequence[Condition]], list[list[int]]]

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers(-(2**65), 2**65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        [0.5, -0.0, 2.0, 1e300, 1e-7, 5e-324, 2**53 + 1, 2**53, 2.0**53, 2**63 - 1, -(2**63), 2**63, 10**400]
    )
    | st.sampled_from(["", "a", "A", "ab", "é", "z", "\uffff", "𝒳", "true", "False", "null", "TRUE", "[1]", "a\0b"])
    | st.sampled_from(
        ["2", "-1", "02", " 2", "2e0", "x2", "+2", "2.", ".5", "1e999", "-1e999", "9007199254740993", "0x10"]
    )
    | st.sampled_from(
        ['" or 1 == 1 or "" == "', "' or true", "\\", '\\"', "]) or (1 == 1", "{}", "$meta", "%", "a" * 300]
    )
    | st.text(max_size=4)
)
NAMES = ["a", "b", "a.b", "é", "a b", 'x"] == "', "facts", "a\0", "' or 1 == 1 --", "\\"]
VALUES = SCALARS | st.lists(SCALARS | st.just([1]) | st.just({"b": 2}), max_size=3)
OBJECTS = st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2)
METADATA = st.dictionaries(st.sampled_from(NAMES), VALUES | OBJECTS | st.lists(OBJECTS, max_size=2), max_size=4)
LITERALS = SCALARS.filter(
    lambda v: not (isinstance(v, str) and "\0" in v) and not (isinstance(v, int) and abs(v) > 2**70)
)
ORDERS = ("<", "<=", ">", ">=")


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    field = draw(st.sampled_from([*(name for name in NAMES if "\0" not in name), "a.b.a"]))
    symbol = draw(st.sampled_from(["=", "!=", "in", *ORDERS]))
    if symbol == "in":
        return Condition(field, symbol, tuple(draw(st.lists(LITERALS, min_size=1, max_size=3))))
    literals = LITERALS.filter(lambda v: v is not None and not isinstance(v, bool)) if symbol in ORDERS else LITERALS
    return Condition(field, symbol, (draw(literals),))


@pytest.fixture(scope="module")
def in_milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matching]:
    """What each condition finds among rows with these metadata, in one table that is filled anew each time."""
    client = Client(Address(str(tmp_path_factory.mktemp("facts") / "m.db")), create=True)
    fields: dict[str, schema.Field] = {
        "number": schema.NUMBER,
        "run": schema.HASH,
        "nothing": ("FLOAT_VECTOR", {"dim": 2}),
    }
    nothing = {"index_type": "FLAT", "metric_type": "IP"}
    client.create("facts", *schema.table(client.pymilvus, {**fields, **schema.FILTERS}, nothing=nothing))

    def matching(documents: Sequence[Metadata], asked: Sequence[Condition]) -> list[list[int]]:
        run = uuid.uuid4().hex
        rows = []
        for number, metadata in enumerate(documents):
            facts, bounds = facts_and_bounds(metadata)
            rows.append({"number": number, "run": run, "nothing": [0.0, 0.0], "facts": facts, "bounds": bounds})
        client.delete("facts", "number >= 0")
        client.put("facts", rows)
        return [sorted(row["number"] for row in client.select("facts", expression([one]), ["number"])) for one in asked]

    yield matching
    client.close()


def in_sqlite(documents: Sequence[Metadata], asked: Sequence[Condition]) -> list[list[int]]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE documents (metadata TEXT)")
    connection.executemany("INSERT INTO documents VALUES (?)", [[metadata_text(own)] for own in documents])
    found = []
    for condition in asked:
        text, bound = condition.sql()
        query = f"SELECT rowid - 1 FROM documents WHERE {text} ORDER BY rowid"  # noqa: S608 - names and values are bound
        found.append([int(row[0]) for row in connection.execute(query, bound)])
    connection.close()
    return found


def as_read(metadata: Metadata) -> Metadata:
    """As it comes back out of the store."""
    return dict(json.loads(metadata_text(metadata)))


@given(st.lists(METADATA, min_size=1, max_size=12), st.lists(conditions(), min_size=1, max_size=12))
@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
def test_milvus_says_what_sqlite_says(in_milvus: Matching, documents: list[Metadata], asked: list[Condition]) -> None:
    stored = [as_read(metadata) for metadata in documents]
    for condition, one, other in zip(asked, in_milvus(stored, asked), in_sqlite(stored, asked), strict=True):
        assert one == other, condition


@pytest.mark.torture
@given(st.lists(METADATA, min_size=1, max_size=30), st.lists(conditions(), min_size=1, max_size=30))
@settings(max_examples=1500, suppress_health_check=list(HealthCheck), deadline=None)
def test_milvus_says_what_sqlite_says_at_length(
    in_milvus: Matching, documents: list[Metadata], asked: list[Condition]
) -> None:
    stored = [as_read(metadata) for metadata in documents]
    for condition, one, other in zip(asked, in_milvus(stored, asked), in_sqlite(stored, asked), strict=True):
        assert one == other, condition


INJECTED = [
    '" or 1 == 1 or "',
    "' or 1 == 1",
    '"] == "x" or number >= 0 or bounds["y',
    "\\",
    '\\"',
    "\n",
    "(",
    "]",
    "{}",
    "%",
]


def test_nothing_in_a_filter_means_anything_to_milvus(in_milvus: Matching) -> None:
    stored: list[Metadata] = [{"a": 1}, *({name: name} for name in INJECTED)]
    asked = [Condition(name, operator, (value,)) for name in INJECTED for value in INJECTED for operator in ("=", "<=")]
    assert in_milvus(stored, asked) == in_sqlite(stored, asked)
    for condition in asked:
        text = expression([condition])
        assert all(c.isalnum() or c in '_"[]()<=, ' for c in text), text


def test_numbers_sort_as_numbers() -> None:
    numbers: list[int | float] = [
        *(float("-inf"), -1e300, -(2**63), -(2**53) - 1, -(2**53), -1.5, -1, -5e-324, 0, 5e-324, 0.1, 1),
        *(2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1025, 2**63 - 1, 1e300, float("inf")),
    ]
    keys = [number_key(number) for number in numbers]
    assert keys == sorted(keys) and len(set(keys)) == len(keys)
    assert number_key(-0.0) == number_key(0) == number_key(0.0) and number_key(3) == number_key(3.0)


def test_a_long_list_of_values(in_milvus: Matching) -> None:
    stored: list[Metadata] = [{"n": number, "s": f"v{number}"} for number in range(50)]
    many = tuple(value for number in range(20, 5000) for value in (number, f"v{number}"))
    assert in_milvus(stored, [Condition("n", "in", many), Condition("s", "in", many)]) == [[*range(20, 50)]] * 2


def test_texts_longer_than_what_is_compared(in_milvus: Matching) -> None:
    """Equality is of the whole text; the order of two that begin with the same 128 bytes is not told."""
    stored: list[Metadata] = [{"t": "x" * 200 + "a"}, {"t": "x" * 200 + "b"}, {"t": "y"}]
    same = Condition("t", "=", ("x" * 200 + "a",))
    assert in_milvus(stored, [same]) == [[0]]
    assert in_milvus(stored, [Condition("t", ">", ("x" * 100,)), Condition("t", "<", ("y",))]) == [[0, 1, 2], [0, 1]]


def test_metadata_that_is_too_much_is_told() -> None:
    assert metadata_problem({}) is None and metadata_problem({"a": [*range(1000)]}) is None
    assert "values for filters" in str(metadata_problem({"a": [*range(5000)]}))
    assert "bytes for range filters" in str(metadata_problem({f"field {number}": "x" * 120 for number in range(300)}))
    assert has_key("a") != has_key("b")
