"""Documents from Python: each one is taken as files' are, or told why it is not."""

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retriever.corpus import Document, Skipped
from retriever.corpus.document import text_id
from retriever.corpus.source import Source
from retriever.errors import BadSource, Misuse


def only(given: Any) -> Document | Skipped:
    (item,) = Source([given])
    return item


def test_texts_and_dicts_are_read_as_lines_of_files_are() -> None:
    assert only("a text") == Document(text_id("a text"), "a text", "", {}, "document 1")
    assert only({"text": "x"}) == Document(text_id("x"), "x", "", {}, "document 1")
    assert only({"_id": 7, "text": "x\0y", "title": 1984, "year": 1999, "metadata": {"url": "u"}}) == Document(
        "7", "xy", "1984", {"year": 1999, "url": "u"}, "document 1"
    )
    day = datetime.date(2024, 5, 1)
    assert only({"id": "a", "text": "x", "when": day, "metadata": {"till": day}}) == Document(
        "a", "x", "", {"when": "2024-05-01", "till": "2024-05-01"}, "document 1"
    )
    assert only({"id": 1.0, "text": "x"}) == Document("1", "x", "", {}, "document 1")
    assert only({"id": "a", "text": "x", "metadata": None}) == Document("a", "x", "", {}, "document 1")
    assert only(Document("a", "x", "t", {"n": [1]})) == Document("a", "x", "t", {"n": [1]})
    assert only(Skipped("f:1", "broken")) == Skipped("f:1", "broken")


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else 0


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"id": "a"}, "has no text: 'text' is missing; found: 'id'; the known keys are"),
        ({"text": " "}, "has no text"),
        ({"text": 3}, "'text' is a number"),
        ({"text": "x", "id": ""}, "its id is empty"),
        ({"text": "x", "id": 1.5}, "its id is a number"),
        ({"text": "x", "title": ["t"]}, "its title is a list"),
        ({"text": "x", "metadata": "m"}, "its metadata is a string"),
        ({"text": "x\ud800"}, "half a character"),
        ({"text": "x", "id": "\udcff"}, "half a character"),
        ({"text": "x", "score": float("nan")}, "cannot be written as JSON"),
        ({"text": "x", "when": {1, 2}}, "cannot be written as JSON: Object of type set"),
        ({"text": "x", "a": 1, 2: "b"}, "cannot be written as JSON"),
        ({"text": "x", "a": deep(300)}, "nested too deeply"),
        ("", "has no text"),
        ("\udc80", "half a character"),
        (Document("a", " \n"), "has no text"),
        (Document("", "x"), "its id is empty"),
        (Document("a\0", "x"), "its id holds a NUL character"),
        (Document("a", "x\0"), "its text holds a NUL character"),
        (Document("a", "x", "\ud800"), "half a character"),
        (Document("\ud800", "x"), "half a character"),
        (Document("a", "x", metadata={"k": ["\ud800"]}), "half a character"),
        (Document("a", "x", metadata={"k": float("inf")}), "cannot be written as JSON"),
        (Document("a", "x", metadata=["m"]), "its metadata is a list"),  # type: ignore[arg-type]
        (Document(7, "x"), "its id is a number"),  # type: ignore[arg-type]
        (Document("a", None), "its text is NoneType"),  # type: ignore[arg-type]
        (b"bytes", "is of the type bytes, not a text, a dict or a Document"),
        (None, "is of the type NoneType"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_what_is_no_document_is_skipped_with_a_reason(given: Any, reason: str) -> None:
    item = only(given)
    assert isinstance(item, Skipped), item
    assert item.where == "document 1" and reason in item.reason


def test_looking_ahead_loses_nothing() -> None:
    source = Source(["", 7, "first", "", "second"])  # type: ignore[list-item]
    source.refuse_if_empty("skip")
    items = list(source)
    assert [isinstance(item, Document) for item in items] == [False, False, True, False, True]
    assert source.fraction_read == 1.0 and list(source) == []


def test_a_source_without_documents_is_refused_with_the_first_reasons() -> None:
    with pytest.raises(Misuse, match="no document in the source") as refused:
        Source([""] * 100).refuse_if_empty("skip")
    assert "document 5: has no text" in str(refused.value) and "document 6" not in str(refused.value)


def test_stop_refuses_what_begins_badly_and_only_that() -> None:
    with pytest.raises(BadSource, match='document 1: has no text.*`on_error="skip"`'):
        Source(["", "first"]).refuse_if_empty("stop")
    source = Source(["first", ""])
    source.refuse_if_empty("stop")
    assert len(list(source)) == 2


def test_looking_further_ahead_is_bounded_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retriever.corpus.source.DOCUMENTS_AHEAD", 4)
    source = Source(["", *(f"text {n}" for n in range(9))])
    source.refuse_if_empty()
    assert [document.text for document in source.peek()] == ["text 0", "text 1", "text 2"]
    assert source.fraction_read == 0
    items = iter(source)
    assert isinstance(next(items), Skipped) and source.fraction_read == pytest.approx(0.1)
    assert [item.text for item in items if isinstance(item, Document)] == [f"text {n}" for n in range(9)]
    assert source.fraction_read == 1

    monkeypatch.setattr("retriever.corpus.source.CHARACTERS_AHEAD", 10)
    taken = iter(["long " * 10, "never looked at"])
    assert len(Source(taken).peek()) == 1 and next(taken) == "never looked at"


def test_an_error_met_while_looking_ahead_is_raised_in_its_place() -> None:
    def broken() -> Iterator[str]:
        yield "before"
        raise BadSource("the line broke")

    source = Source(broken())
    assert [document.text for document in source.peek()] == ["before"]
    items = iter(source)
    assert isinstance(next(items), Document)
    with pytest.raises(BadSource, match="the line broke"):
        next(items)


def test_a_file_is_not_taken_for_a_text(tmp_path: Path) -> None:
    for given in (tmp_path, str(tmp_path)):
        with pytest.raises(Misuse, match=r"to read files, give Corpus\(\['/"):
            Source(given)  # type: ignore[arg-type]
