"""Queries and filters made to do harm: an answer or a reason, and nothing of them means anything to SQL or FTS5."""

import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from limited import FUZZED
from samples import PETS, Run

from retriever import Retriever
from retriever.errors import BadFilter, Misuse, RetrieverError
from retriever.search.request import LONGEST_QUERY
from retriever.terminal import lines, one_line

PARTS = st.sampled_from(
    [
        *('"', "'", "''", '"" OR ""', "*", "^", "NEAR(", "NEAR(cats dogs, 2)", "AND", "OR", "NOT", "(", ")", "{", "}"),
        *("title:", "text :", "- title:", "words MATCH", "--", "/*", "*/", ";", "DROP TABLE documents", "\\", "%", "_"),
        *("\0", "\ud800", "\u202e", "\u200b", "\ufeff", "\U0001f468\u200d", "e\u0301", "\x1b[2J", "\n", "cats", " "),
        *("legs", "lang", "=", "!=", "<", ">=", "in", "in (", ",", "null", "true", "1e999", "-0", "00", "9" * 400, "."),
        *("$.legs", "[0]", "legs.legs", "json_each(", "?", ":a", "@b", "{0}", "{0}.type"),
    ]
)
TEXTS = st.lists(st.one_of(PARTS, st.text(max_size=5)), max_size=12).map("".join) | st.lists(PARTS).map(" ".join)


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Iterator[Retriever]:
    folder = tmp_path_factory.mktemp("queries") / "index"
    with Retriever.build(PETS, folder, encoder=tiny_bert, transform="none") as made:
        yield made


@FUZZED
@given(query=TEXTS, mode=st.sampled_from(["lexical", "hybrid", "dense"]))
@example('"', "lexical")
@example("cats* NEAR dogs", "lexical")
def test_any_query(retriever: Retriever, query: str, mode: str) -> None:
    try:
        hits = retriever.search(query, mode=mode)  # type: ignore[arg-type]
        assert mode == "lexical" or len(hits) == len(PETS)
    except RetrieverError:
        assert not query.strip() or any("\ud800" <= c <= "\udfff" for c in query)
    assert len(retriever) == len(PETS)


@FUZZED
@given(filters=st.lists(TEXTS, max_size=3))
@example(["legs = 0 OR 1=1"])
@example(["legs = '0'' OR ''1'' = ''1'"])
@example(["'{0}.type' = 1"])
def test_any_filter(retriever: Retriever, filters: list[str]) -> None:
    try:
        hits = retriever.search("cats", mode="lexical", where=filters)
        assert len(hits) <= 1
    except RetrieverError as error:
        assert isinstance(error, Misuse)
        assert len(str(error)) < 2000
    assert len(retriever) == len(PETS)


@pytest.mark.parametrize("field", ["legs", "lang", "nothing"])
@pytest.mark.parametrize("value", ["') OR 1 --", "x' UNION SELECT 1 --", "\u202e", "%", "{0}"])
@pytest.mark.parametrize("operator", ["=", "<", ">=", "in"])
def test_a_filter_is_data(retriever: Retriever, field: str, value: str, operator: str) -> None:
    quoted = "'" + value.replace("'", "''") + "'"
    values = f"({quoted})" if operator == "in" else quoted
    try:
        found = retriever.search("dogs", where=[f"{field} {operator} {values}"])
        assert len(found) <= 1
    except BadFilter:
        assert field == "nothing"


@pytest.mark.parametrize(
    "filters",
    [
        ["legs = 0"] * 5000,
        [f"legs in ({','.join(map(str, range(200_000)))})"],
        ["legs = '" + "x" * 3_000_000 + "'"],
        ["'" + "x" * 3_000_000 + "' = 1"],
        ["'" + "x" * 10_000_000 + "' = 1"],
        ["a." * 100_000 + "a = 1"],
        ["legs = " + "9" * 100_000],
        ["(" * 100_000],
        [".".join("abcdefghijklmno") + " != 1"] * 100,
    ],
    ids=[
        "many",
        "many values",
        "a long text",
        "a long name",
        "too long",
        "deep",
        "a long number",
        "brackets",
        "many deep",
    ],
)
def test_filters_without_measure(retriever: Retriever, filters: list[str]) -> None:
    try:
        retriever.search("cats", mode="lexical", where=filters)
    except Misuse as error:
        assert len(str(error)) < 2000


@pytest.mark.parametrize("mode", ["lexical", "hybrid", "dense"])
@pytest.mark.parametrize("k", [10**9, 2**31, 2**63, 2**70])
def test_any_number_of_hits(retriever: Retriever, mode: str, k: int) -> None:
    assert len(retriever.search("cats dogs", k=k, mode=mode)) <= len(PETS)  # type: ignore[arg-type]
    assert len(retriever.similar("cat", k=k)) == len(PETS) - 1
    assert len(retriever.search("cats", k=k, where=["legs != 7"])) == 1


@pytest.mark.parametrize("mode", ["lexical", "hybrid", "dense"])
def test_queries_of_megabytes(retriever: Retriever, mode: str) -> None:
    with pytest.raises(Misuse, match="longer than"):
        retriever.search("cats " * 2_000_000, mode=mode)  # type: ignore[arg-type]
    for query in ("x" * LONGEST_QUERY, "cats " * (LONGEST_QUERY // 5), "a b" * (LONGEST_QUERY // 3)):
        retriever.search(query, mode=mode)  # type: ignore[arg-type]


# The terminal

MISLEADING = [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200B, 0x200E, 0x200F, 0x061C)]


@given(st.text())
@example("\x1b]0;title\x07\x9b31m")
@example("".join(MISLEADING))
@example("a\u2028b\u2029c\x85d\ufeff\u00ad\U000e0041")
def test_nothing_reaches_the_terminal_that_it_would_obey(text: str) -> None:
    for shown in (one_line(text), lines(text).replace("\n", "")):
        obeyed = ("Cc", "Cf", "Cs", "Zl", "Zp")
        assert not [c for c in shown if unicodedata.category(c) in obeyed and c not in "\u200c\u200d"]
        assert not set(shown) & {*MISLEADING, "\x1b", "\u2028", "\u2029", "\x85", "\r", "\x0b", "\x0c"}


def test_errors_and_hits_are_shown_without_tricks(tmp_path: Path, tiny_bert: str, run: Run) -> None:
    trick = "\u202egnp\u2066\x1b[31m\u200b\x07"
    name = tmp_path / f"a{trick}.jsonl"
    name.write_text(f'{{"id": "{trick.encode("unicode_escape").decode().replace(chr(92) + "x", chr(92) + "u00")}",'
                    f' "title": "{trick[:4]}", "text": "cats", "k{trick[0]}": "v{trick[0]}"}}\n{{broken\n')  # fmt: skip
    index = tmp_path / "index"
    outputs = [
        run("index", name, "--index", index, "--encoder", tiny_bert, "--transform", "none").output,
        run("search", "cats", "--index", index).output,
        run("search", trick + "cats", "--index", index).output,
        run("search", "cats", "--index", index, "--where", f"{trick} = 1", code=2).output,
        run("similar", trick + "!", "--index", index, code=2).output,
        run("index", f"{trick}nowhere", "--index", index, code=2).output,
        run("search", "cats", "--index", tmp_path / trick, code=2).output,
    ]
    for output in outputs:
        assert not set(output) & {"\u202e", "\u2066", "\x1b", "\u200b", "\x07"}, output
