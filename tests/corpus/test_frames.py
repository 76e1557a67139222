"""Frames of pandas, polars and Arrow as sources, and hits as frames."""

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retriever import Document, Retriever, Skipped
from retriever.corpus.source import Source
from retriever.errors import Misuse

pandas = pytest.importorskip("pandas", reason="needs the extra frames")
polars = pytest.importorskip("polars", reason="needs the extra frames")
pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")

DAY = datetime.datetime(2024, 5, 1, 12)
COLUMNS = {
    "id": ["a", "b", "c"],
    "text": ["Cats purr.", "Dogs bark.", "Birds sing."],
    "title": ["Cats", None, "Birds"],
    "year": [2020, 2021, 2022],
    "score": [0.5, None, 1.5],
    "day": [DAY, None, DAY],
    "tags": [["x", "y"], ["z"], []],
}
FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pandas.DataFrame,
    "pandas with arrow types": lambda columns: pandas.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
    "polars": polars.DataFrame,
    "lazy polars": polars.LazyFrame,
    "arrow": pyarrow.table,
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_the_rows_of_a_frame_are_documents(make: Callable[[dict[str, Any]], Any]) -> None:
    found = list(Source(make(COLUMNS)))
    day = DAY.isoformat()
    assert found == [
        Document("a", "Cats purr.", "Cats", {"year": 2020, "score": 0.5, "day": day, "tags": ["x", "y"]}, "document 1"),
        Document("b", "Dogs bark.", "", {"year": 2021, "score": None, "day": None, "tags": ["z"]}, "document 2"),
        Document("c", "Birds sing.", "Birds", {"year": 2022, "score": 1.5, "day": day, "tags": []}, "document 3"),
    ]
    assert Source(make(COLUMNS)).fraction_taken == 0.0


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_vectors_in_a_frame_are_brought(make: Callable[[dict[str, Any]], Any], tmp_path: Path) -> None:
    frame = make({"id": ["n", "e"], "text": ["north", "east"], "vector": [[0.0, 1.0], [1.0, 0.0]]})
    with Retriever.build(frame, tmp_path / "c") as compass:
        assert [hit.id for hit in compass.search(vector=[0.2, 0.9])] == ["n", "e"]


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("pandas", "rename(columns={'body': 'text'})"),
        ("polars", "rename({'body': 'text'})"),
        ("lazy polars", "rename({'body': 'text'})"),
        ("arrow", "rename_columns({'body': 'text'})"),
    ],
)
def test_a_frame_without_a_text_column_says_what_to_do(kind: str, advice: str, tmp_path: Path) -> None:
    frame = FRAMES[kind]({"number": [1], "body": ["Cats purr."]})
    with pytest.raises(Misuse, match="no column 'text'.* found: 'number', 'body'") as told:
        Retriever.build(frame, tmp_path / "c")
    assert f"frame.{advice}" in str(told.value) and not (tmp_path / "c").exists()
    name, _, rest = advice.partition("(")
    renamed = getattr(frame, name)(**eval(f"dict({rest}")) if "=" in rest else getattr(frame, name)(eval(rest[:-1]))
    assert [one.text for one in Source(renamed) if isinstance(one, Document)] == ["Cats purr."]


def test_columns_without_usable_names_are_told(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"frame\.rename\(columns=\{0: 'text'\}\)"):
        Retriever.build(pandas.DataFrame({0: ["Cats purr."]}), tmp_path / "c")
    twice = pandas.DataFrame([["Cats purr.", "Dogs bark."]], columns=["text", "text"])
    with pytest.raises(Misuse, match="several columns with the same name: .*'text' 2 times"):
        Retriever.build(twice, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_batches_of_arrow_go_in() -> None:
    table = pyarrow.table({"text": ["Cats purr.", "Dogs bark."], "year": [1, None]})
    for batches in (table.to_batches()[0], table.to_reader()):
        assert list(Source(batches)) == list(Source(table))


def test_values_of_numpy_in_dicts_go_in() -> None:
    numpy = pytest.importorskip("numpy")
    record = {"id": numpy.int64(3), "text": numpy.str_("Cats purr."), "year": numpy.int32(7), "at": numpy.arange(2)}
    assert list(Source([record])) == [Document("3", "Cats purr.", "", {"year": 7, "at": [0, 1]}, "document 1")]


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_rows_without_a_text_are_skipped(make: Callable[[dict[str, Any]], Any]) -> None:
    found = list(Source(make({"text": ["Cats purr.", None, " "]})))
    assert [type(one) for one in found] == [Document, Skipped, Skipped]


def test_a_column_of_texts_and_other_iterables_go_in() -> None:
    for texts in (pandas.Series(["Cats purr."]), polars.Series(["Cats purr."]), ({"text": "Cats purr."} for _ in "a")):
        assert [one.text for one in Source(texts) if isinstance(one, Document)] == ["Cats purr."]


def test_hits_are_frames(tmp_path: Path, tiny_bert: str) -> None:
    documents = [
        {"id": "a", "text": "Cats purr.", "year": 2020, "score": "mine"},
        {"id": "b", "text": "Dogs bark.", "tags": ["x"]},
    ]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert) as built:
        hits = built.search("cats purr")
        for frame in (hits.to_pandas(), hits.to_polars()):
            own = ["rank", "relevance", "score", "id", "title", "passage", "start", "end"]
            assert list(frame.columns) == [*own, "metadata.score", "year", "tags"]
            assert list(frame["id"]) == [hit.id for hit in hits] and list(frame["score"]) == [hit.score for hit in hits]
        assert len(hits[:0].to_pandas()) == len(hits[:0].to_polars()) == 0
