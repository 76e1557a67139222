"""Search by words and by both in Milvus: sane, filtered, and of the same shape as in a folder."""

from pathlib import Path
from typing import Any

import pytest

from retriever import Document, Retriever

PLAIN: dict[str, Any] = {"transform": "center", "precision": "fp32"}
DOCUMENTS = [
    Document("owl", "The owl hunts mice in the fog. It sleeps by day.", "Owls", {"n": 1}),
    Document("mice", "Mice, mice and mice: they eat grain.", metadata={"n": 2}),
    Document("grain", "Grain grows in the fields.", "About Grain", {"n": 3}),
    Document("ships", "Ships sail over the sea.", metadata={"n": 4}),
    Document("tail", "word " * 20_000 + "zebra", metadata={"n": 5}),
    Document("greek", "Η γάτα κοιμάται. L'été à Zürich.", metadata={"n": 6}),
]


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Any:
    place = f"milvus:{tmp_path_factory.mktemp('words') / 'm.db'}"
    with Retriever.build(DOCUMENTS, place, encoder=tiny_bert, **PLAIN) as made:
        yield made


def ids(hits: list[Any]) -> list[str]:
    return [hit.id for hit in hits]


def test_words_find_what_holds_them(retriever: Retriever) -> None:
    hits = retriever.search("mice", mode="lexical")
    assert ids(hits) == ["mice", "owl"], "the more often in the fewer words, the better"
    assert all(hit.score > 0 for hit in hits) and hits[0].score >= hits[1].score
    assert ids(retriever.search("owls", mode="lexical")) == ["owl"], "titles count, case does not"
    assert ids(retriever.search("γάτα", mode="lexical")) == ["greek"]
    assert ids(retriever.search("zürich", mode="lexical")) == ["greek"]
    assert retriever.search("nothing-of-this qqq", mode="lexical") == []
    assert retriever.search("?!...", mode="lexical") == []
    assert len(retriever.search("grain mice sea", 2, mode="lexical")) == 2


def test_a_hit_by_words_is_marked_where_they_stand(retriever: Retriever) -> None:
    (hit,) = retriever.search("sleeps", mode="lexical", highlight=True)
    assert hit.highlight is not None and hit.passage[slice(*hit.highlight)] == "It sleeps by day."


@pytest.mark.parametrize("query", ['" or 1 == 1', "mice AND NOT owl", "mice*", "(mice", "'mice'", "\\mice", "MICE"])
def test_nothing_in_a_query_is_a_command(retriever: Retriever, query: str) -> None:
    found = retriever.search(query, mode="lexical")
    assert set(ids(found)) <= {"mice", "owl"} and (("mice" in query.lower()) == bool(found))


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_filters_hold_in_every_mode(retriever: Retriever, mode: Any) -> None:
    assert ids(retriever.search("mice", mode=mode, where=["n = 1"])) == ["owl"]
    assert retriever.search("mice", mode=mode, where=["n > 100"]) == []
    assert set(ids(retriever.search("mice grain", mode=mode, where=["n in (2, 3)"]))) == {"mice", "grain"}


def test_both_together(retriever: Retriever) -> None:
    hits = retriever.search("mice", 6, mode="hybrid")
    assert len(hits) == 6 and hits[0].id == "mice"
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert ids(retriever.search("mice", 2, mode="hybrid")) == ids(hits)[:2]


def test_words_follow_what_is_written(tmp_path: Path, tiny_bert: str, lite: str) -> None:
    with Retriever.build(DOCUMENTS, lite, encoder=tiny_bert, **PLAIN) as retriever:
        retriever.add([Document("owl", "Now of penguins."), Document("new", "Penguins and mice.")])
        assert set(ids(retriever.search("penguins", mode="lexical"))) == {"owl", "new"}
        assert set(ids(retriever.search("mice", mode="lexical"))) == {"mice", "new"}
        retriever.delete(["new"])
        assert ids(retriever.search("penguins", mode="lexical")) == ["owl"]
        assert "new" not in ids(retriever.search("penguins", 9, mode="hybrid"))
    with Retriever.open(lite) as retriever:
        assert ids(retriever.search("penguins", mode="lexical")) == ["owl"]
