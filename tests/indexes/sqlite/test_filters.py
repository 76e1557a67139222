"""Filters: what can be written, what it means, and what is said about what cannot be understood."""

import hashlib
import json
import math
import operator
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexes.checksums import metadata_text
from indexes.errors import BadFilter, Damaged
from indexes.rows import DocumentRow
from indexes.sqlite.conditions import Condition, check_fields, known_fields
from indexes.sqlite.documents import DocumentStore
from indexes.sqlite.filters import parse


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DocumentStore]:
    store = DocumentStore(tmp_path / "documents.sqlite", create=True)
    yield store
    store.close()


def put(store: DocumentStore, *metadata: dict[str, Any]) -> None:
    store.put_documents(
        DocumentRow(str(number), "", "text", own, hashlib.sha256(b"").digest(), "here", [])
        for number, own in enumerate(metadata, 1)
    )


def matching(store: DocumentStore, *filters: str) -> list[int]:
    conditions = [parse(text) for text in filters]
    store.check_fields(conditions)
    return [int(number) for number in store.matching(conditions)]


# ---- what can be written -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("year >= 2020", Condition("year", ">=", (2020,))),
        ("year>=2020", Condition("year", ">=", (2020,))),
        ("  lang =  en ", Condition("lang", "=", ("en",))),
        ("lang == en", Condition("lang", "=", ("en",))),
        ("city = New York", Condition("city", "=", ("New York",))),
        ("name = O'Brien", Condition("name", "=", ("O'Brien",))),
        ("name = 'O''Brien'", Condition("name", "=", ("O'Brien",))),
        (r"name = 'O\'Brien \\ \d'", Condition("name", "=", (r"O'Brien \ \d",))),
        ('name = "a ""b"" \'c\'"', Condition("name", "=", ("a \"b\" 'c'",))),
        ("name != ''", Condition("name", "!=", ("",))),
        ("'publication year' < 1.5e3", Condition("publication year", "<", (1500.0,))),
        ('"a = b" > -.5', Condition("a = b", ">", (-0.5,))),
        ("année-2.größe_x = ja", Condition("année-2.größe_x", "=", ("ja",))),
        ("वर्ष <= 2020", Condition("वर्ष", "<=", (2020,))),
        ("open = True", Condition("open", "=", (True,))),
        ("open != 'true'", Condition("open", "!=", ("true",))),
        ("open = NULL", Condition("open", "=", (None,))),
        ("date > 2020-01-01", Condition("date", ">", ("2020-01-01",))),
        ("zip = 01234", Condition("zip", "=", ("01234",))),
        ("x = '7'", Condition("x", "=", ("7",))),
        ("x =-7", Condition("x", "=", (-7,))),
        ("x = +7", Condition("x", "=", (7,))),
        ("x = 9223372036854775808", Condition("x", "=", (2**63,))),
        ("x = nan", Condition("x", "=", ("nan",))),
        ("x = ~home", Condition("x", "=", ("~home",))),
        ("lang in (en)", Condition("lang", "in", ("en",))),
        ("lang IN(en , 'd,e',1, null,New York)", Condition("lang", "in", ("en", "d,e", 1, None, "New York"))),
        ("in in (in)", Condition("in", "in", ("in",))),
    ],
)
def test_what_is_understood(text: str, condition: Condition) -> None:
    parsed = parse(text)
    assert parsed == condition
    assert [type(value) for value in parsed.values] == [type(value) for value in condition.values]


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("", 1, "name of a metadata field, found the end"),
        ("   ", 4, "name of a metadata field, found the end"),
        ("= 5", 1, "name of a metadata field, found ="),
        ("year", 5, "expected = != < <= > >= or in, found the end"),
        ("year => 2020", 6, "expected = != < <= > >= or in, found =>"),
        ("year ~ 2020", 6, "found ~"),
        ("year: 2020", 5, "found :"),
        ("year contains 2", 6, "found contains"),
        ("publication year = 2020", 13, "a field with a space in its name goes in quotes"),
        ("$.year = 2", 1, "name of a metadata field, found $"),
        ("year =", 7, "expected a value, found the end"),
        ("year >=   ", 11, "expected a value, found the end"),
        ("'year = 5", 1, "expected a second ' that closes this quote"),
        ('year = "5', 8, 'expected a second " that closes this quote'),
        (r"year = '5\'", 8, "expected a second '"),
        ("lang = 'en' or so", 13, "expected the end of the filter, found o"),
        ("year >= 2000 and year < 2010", 23, "expected the end of the filter, found <"),
        ("lang = en and x in (a)", 20, "expected the end of the filter, found ("),
        ("lang = (en, de)", 8, "expected a value, found (; put it in quotes to make it a text"),
        ("lang in", 8, "expected ( and a list of values after in, found the end"),
        ("lang in en", 9, "expected ( and a list of values after in, found e"),
        ("lang in (en, de", 16, "expected , or ) after a value of the list, found the end"),
        ("lang in ('en' de)", 15, "expected , or ) after a value of the list, found d"),
        ("lang in ()", 10, "expected a value, found )"),
        ("lang in (en,)", 13, "expected a value, found )"),
        ("lang in (en) x", 14, "expected the end of the filter, found x"),
        ("lang in ((en))", 10, "expected a value, found ("),
        ("open < true", 8, "expected a number or a text after <, found true"),
        ("open >= null", 9, "expected a number or a text after >=, found null"),
        ("x = 1e999", 5, "expected a smaller number"),
        ("x = " + "9" * 5000, 5, "expected a smaller number"),
        ("x = a\0b", 6, "found a NUL character"),
        ("x = \udcff", 5, "not valid UTF-8"),
        (".".join("abcdefghijklmnopqrstuvw") + " = 1", 1, "at most 16 levels deep"),
    ],
)
def test_what_is_not_says_where_and_what_was_expected(text: str, column: int, expected: str) -> None:
    with pytest.raises(BadFilter) as raised:
        parse(text)
    message, shown, caret = str(raised.value).split("\n")
    assert f"at column {column}: " in message and expected in message
    assert caret.index("^") - 2 == column - 1
    assert shown[2:].isprintable() and (not text.isprintable() or text.startswith(shown[2:]))
    assert raised.value.exit_code == 2


@pytest.mark.heavy
@given(st.text() | st.text("ab .=!<>()'\",\\in01-"))
def test_any_text_is_a_condition_or_a_bad_filter(text: str) -> None:
    try:
        condition = parse(text)
    except BadFilter as error:
        str(error).encode("utf-8")
        assert (column := re.search(r"column (\d+)", str(error))) and 1 <= int(column[1]) <= len(text) + 1
        return
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE documents (metadata TEXT)")
    connection.execute("INSERT INTO documents VALUES ('{}')")
    expression, bound = condition.sql()
    query = f"SELECT {expression} FROM documents"  # noqa: S608 - what is tested is that this is safe
    assert connection.execute(query, bound).fetchall() in ([(0,)], [(1,)])


# ---- what it means -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["year = 2021"], [1, 2]),
        (["year = 2021.0"], [1, 2]),
        (["year = '2021'"], [2]),
        (["year > 2000"], [1, 2, 3]),
        (["year < 2021.5", "year > 1"], [1, 2]),
        (["year != 2021"], [3, 4]),
        (["year in (2021, unknown)"], [1, 2, 4]),
        (["year = null"], [5, 6]),
        (["year != null"], [1, 2, 3, 4]),
        (["year in (2022.5, null)"], [3, 5, 6]),
        (["date >= 2020-02-01"], [2]),
        (["date < 2020-02-01"], [1]),
        (["date >= 2020"], [1, 2]),
        (["date > 2020"], []),
        (["date <= 2020"], [1, 2]),
        (["open = true"], [1, 3]),
        (["open = 1"], [4]),
        (["open != true"], [2, 4]),
        (["open > 0"], [4]),
        (["tags = a"], [1, 2]),
        (["tags in (c, d)"], [1]),
        (["tags != a"], [3]),
        (["tags > b"], [1]),
        (["tags = null"], [4, 5, 6]),
        (["author.name = Ann"], [1, 2, 3, 4]),
        (["author.name != Ann"], [5]),
        (["author.name = Bob"], [2, 5]),
        (["author != null"], [1, 2, 3, 5]),
        (["year = 2021", "open = true"], [1]),
        (["year = 2021", "year = 2022"], []),
    ],
)
def test_meaning(store: DocumentStore, filters: list[str], found: list[int]) -> None:
    put(
        store,
        {"year": 2021, "date": "2020-01-31", "open": True, "tags": ["a", "c"], "author": {"name": "Ann"}},
        {
            "year": "2021",
            "date": "2020-12-01",
            "open": False,
            "tags": "a",
            "author": [{"name": "Ann"}, {"name": "Bob"}],
        },
        {"year": 2022.5, "open": "TRUE", "tags": ["b", None], "author": {"name": ["Ann", "Cem"]}, "month": 2},
        {"year": "unknown", "open": 1, "tags": [None], "author.name": "Ann"},
        {"year": None, "tags": [], "author": {"name": "Bob", "born": 1970}},
        {"month": 3},
    )
    assert matching(store, *filters) == found


@pytest.mark.parametrize("stored", [2**53 + 1, 2**63 - 1, 1 - 2**63, str(2**53 + 1)])
def test_large_whole_numbers_are_compared_exactly(store: DocumentStore, stored: int | str) -> None:
    put(store, {"n": stored})
    number = int(stored)
    assert matching(store, f"n = {number}") == [1]
    assert matching(store, f"n = {number - 1}") == matching(store, f"n < {number}") == []
    assert matching(store, f"n > {number - 1}") == [1]


def test_beyond_64_bits_and_other_shapes_of_numbers(store: DocumentStore) -> None:
    put(store, {"n": 12345678901234567890}, {"n": -0.0}, {"n": " 1e3 "}, {"n": "0x10"}, {"n": "12,5"}, {"n": ""})
    assert matching(store, "n = 12345678901234567890") == [1]
    assert matching(store, "n > 12345678901234500000") == [1]
    assert matching(store, "n = 0") == matching(store, "n = -0.0") == [2]
    assert matching(store, "n = 1000") == [3]
    assert matching(store, "n >= -5") == [1, 2, 3], "a text that is no number is neither above nor below one"
    assert matching(store, "n < 99999") == [2, 3]


def test_text_is_never_searched_as_a_pattern_or_a_path(store: DocumentStore) -> None:
    names = ["a", "%", "$", "$.a", "a[0]", "[0]", "#", "' OR 1=1 --", 'x" OR "1"="1', "*", "\\", "\n", "ключ", "👍🏽"]
    put(store, *({name: name} for name in names))
    for number, name in enumerate(names, 1):
        quoted = "'" + name.replace("\\", "\\\\").replace("'", "''") + "'"
        for value in ("'; DROP TABLE documents; --", "%", "_", "*", "' OR '1'='1"):
            if value != name:
                assert matching(store, f'{quoted} = "{value}"') == []
        assert matching(store, f"{quoted} = {quoted}") == [number]
    assert store.count("documents") == len(names)


def test_an_object_or_a_list_in_a_list_is_no_text(store: DocumentStore) -> None:
    put(store, {"a": {"b": 2}}, {"a": [{"b": 2}, [1]]}, {"a": '{"b":2}'}, {"a": "[1]"})
    assert matching(store, """a = '{"b":2}'""") == [3]
    assert matching(store, "a = '[1]'") == matching(store, "a < '[2]'") == [4]
    assert matching(store, "a != '[1]'") == [1, 2, 3]


def test_a_nul_in_metadata_is_passed_over(store: DocumentStore) -> None:
    put(store, {"k": "a\0b"}, {"k\0": "a"}, {"k": r"\u0000"}, {"k": "\\\0"})
    assert matching(store, "k = a") == [2]
    assert matching(store, "k = ab") == [1]
    assert matching(store, r"k = '\\u0000'") == [3]
    assert matching(store, r"k = '\\'") == [4]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers(-(2**65), 2**65)
    | st.sampled_from([0.5, -0.0, 2.0, 1e300, 1e-7, 2**53 + 1, 2**53, 2.0**53])
    | st.sampled_from(
        [
            "",
            "a",
            "A",
            "ab",
            "é",
            "z",
            "\uffff",
            "𝒳",
            "true",
            "False",
            "null",
            "2",
            "-1",
            "02",
            " 2",
            "2e0",
            "x2",
            "[1]",
        ]
    )
    | st.text(max_size=3)
)
VALUES = SCALARS | st.lists(SCALARS | st.just([1]) | st.just({"b": 2}), max_size=3)
OBJECTS = st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2)
METADATA = st.dictionaries(
    st.sampled_from(["a", "b", "a.b", "é", "a b"]), VALUES | OBJECTS | st.lists(OBJECTS, max_size=2), max_size=4
)
LITERALS = SCALARS.filter(lambda value: not isinstance(value, str) or "\0" not in value)
ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    field = draw(st.sampled_from(["a", "b", "a.b", "é", "a b", "a.b.a"]))
    symbol = draw(st.sampled_from(["=", "!=", "in", *ORDERS]))
    if symbol == "in":
        return Condition(field, symbol, tuple(draw(st.lists(LITERALS, min_size=1, max_size=3))))
    literals = LITERALS.filter(lambda v: v is not None and not isinstance(v, bool)) if symbol in ORDERS else LITERALS
    return Condition(field, symbol, (draw(literals),))


def written(condition: Condition) -> str:
    """A condition as somebody would write it."""

    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"

    values = [quoted(v) if isinstance(v, str) else json.dumps(v) for v in condition.values]
    tail = f"({', '.join(values)})" if condition.operator == "in" else values[0]
    return f"{quoted(condition.field)} {condition.operator} {tail}"


def meets(metadata: dict[str, Any], condition: Condition) -> bool:
    """What a condition means, in plain Python."""
    values = values_of(metadata, condition.field)
    if condition.operator in ORDERS:
        return any(ordered(ORDERS[condition.operator], value, condition.values[0]) for value in values)
    equal = any(not values if wanted is None else any(same(v, wanted) for v in values) for wanted in condition.values)
    if condition.operator != "!=":
        return equal
    return bool(values) and not equal


def values_of(metadata: dict[str, Any], field: str) -> list[Any]:
    places = [metadata]
    for key in field.split("."):
        objects = [inner for place in places for inner in (place if isinstance(place, list) else [place])]
        places = [place[key] for place in objects if isinstance(place, dict) and key in place]
    if "." in field and field in metadata:
        places.append(metadata[field])
    flat = [inner for place in places for inner in (place if isinstance(place, list) else [place])]
    return [value for value in flat if value is not None]


def number_of(value: Any) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        if not re.fullmatch(r"[ \t\n\v\f\r]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t\n\v\f\r]*", value):
            return None
        value = int(value) if re.fullmatch(r"\s*[+-]?[0-9]+\s*", value) else float(value)
    return value if isinstance(value, float) or -(2**63) <= value < 2**63 else float(value)


def same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, bool):
        return value is wanted or (isinstance(value, str) and value.casefold() == str(wanted).casefold())
    return ordered(operator.eq, value, wanted)


def ordered(compare: Any, value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return isinstance(value, str) and compare([ord(c) for c in value if c != "\0"], [ord(c) for c in wanted])
    number = number_of(value.replace("\0", "") if isinstance(value, str) else value)
    return number is not None and bool(compare(number, number_of(wanted)))


@pytest.mark.heavy
@given(st.lists(METADATA, min_size=1, max_size=4), st.lists(conditions(), min_size=1, max_size=3))
@settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_sql_says_what_plain_python_says(documents: list[dict[str, Any]], asked: list[Condition]) -> None:
    parsed = [parse(written(condition)) for condition in asked]
    for one, other in zip(parsed, asked, strict=True):
        assert repr(one.values) == repr(other.values)
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE documents (metadata TEXT)")
    connection.executemany("INSERT INTO documents VALUES (?)", [[metadata_text(own)] for own in documents])
    for condition in parsed:
        expression, bound = condition.sql()
        query = f"SELECT {expression} FROM documents ORDER BY rowid"  # noqa: S608 - names and values are bound
        found = [row[0] for row in connection.execute(query, bound)]
        assert found == [int(meets(json.loads(metadata_text(own)), condition)) for own in documents], condition
    connection.close()


@pytest.mark.heavy
def test_a_long_list_of_values(store: DocumentStore) -> None:
    put(store, *({"n": number, "s": f"v{number}"} for number in range(50)))
    many = ", ".join(f"{number}, v{number}" for number in range(20, 40_000))
    assert matching(store, f"n in ({many})") == matching(store, f"s in ({many})") == list(range(21, 51))


# ---- fields --------------------------------------------------------------------------------------------------


def test_an_unknown_field_lists_those_there_are(store: DocumentStore) -> None:
    put(store, {"year": 1, "lang": "en"}, {"year": 2, "author": [{"name": "Ann"}, {"name": "Bob"}]}, {})
    assert known_fields(store.db.conn) == ["year", "author", "author.name", "lang"]
    with pytest.raises(BadFilter) as raised:
        matching(store, "year = 1", "Jear = 5")
    assert str(raised.value) == (
        "no document has a metadata field 'Jear'; did you mean 'year'? "
        "The fields are: 'year', 'author', 'author.name', 'lang'."
    )
    for known in ("year", "author.name", "author", "lang"):
        check_fields(store.db.conn, [parse(f"{known} != null")])
    with pytest.raises(BadFilter, match="not to id, title and text"):
        matching(store, "title = x")
    with pytest.raises(BadFilter, match="author.nam"):
        matching(store, "author.nam = null")


def test_many_fields_are_cut_and_none_is_said(store: DocumentStore) -> None:
    with pytest.raises(BadFilter, match="no document has any metadata"):
        matching(store, "year = 1")
    put(store, {f"field{number:02}": number for number in range(30)})
    with pytest.raises(BadFilter, match="'field19' and 10 more") as raised:
        matching(store, "year = 1")
    assert "field20" not in str(raised.value)


def test_no_condition_matches_all_and_damaged_metadata_is_told(store: DocumentStore) -> None:
    put(store, {"a": 1}, {"a": 2})
    assert matching(store) == [1, 2]
    store.db.conn.execute("UPDATE documents SET metadata = '{broken' WHERE number = 2")
    with pytest.raises(Damaged, match="verify --repair"):
        matching(store, "a = 1")


def test_metadata_of_every_source_can_be_filtered(tmp_path: Path) -> None:
    """What a CSV, a JSONL and a Parquet file hold gives the same answers."""
    import pyarrow
    import pyarrow.parquet

    from retriever.corpus import Corpus, Document

    rows = [
        {"text": f"text {year}", "year": year, "share": year / 7, "open": year % 2 == 0} for year in range(1990, 2010)
    ]
    columns = list(rows[0])
    lines = [",".join(columns), *(",".join(str(row[name]) for name in columns) for row in rows)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        store = DocumentStore(tmp_path / f"{name}.sqlite", create=True)
        put(store, *(item.metadata for item in Corpus([tmp_path / name]) if isinstance(item, Document)))
        assert matching(store, "year >= 2000", "open = true") == [11, 13, 15, 17, 19]
        assert matching(store, f"share = {1995 / 7}") == [6]
        assert math.isclose(rows[5]["share"], 285)
        store.close()
