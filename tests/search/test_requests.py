"""What a caller asks of an open collection: wrong types and names are told in the caller's terms."""

import asyncio
import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import PETS

from retriever import AsyncRetriever, Retriever
from retriever.errors import BadFilter, Misuse, NoSuchDocument, RetrieverError


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Iterator[Retriever]:
    folder = tmp_path_factory.mktemp("requests") / "pets"
    with Retriever.build(PETS, folder, encoder=tiny_bert, transform="none") as built:
        yield built


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"query": ["a", "b"]}, r"`query` must be one text, not a list; use search_many\(queries\)"),
        ({"query": [0.1, 0.2]}, r"use search\(vector=...\)"),
        ({"query": 3}, "`query` must be a text, not 3"),
        ({"query": " "}, "the query is empty"),
        ({"k": 0}, "`k` must be a whole number of at least 1, not 0"),
        ({"k": "5"}, "`k` must be a whole number of at least 1, not '5'"),
        ({"k": 2.0}, "`k` must be a whole number"),
        ({"k": True}, "`k` must be a whole number"),
        ({"mode": "sparse"}, "unknown mode 'sparse'; known: dense, lexical, hybrid"),
        ({"mode": "hybird"}, "did you mean 'hybrid'"),
        ({"mode": ["dense"]}, "unknown mode"),
        ({"space": "flow"}, "unknown space 'flow'; known: index, raw"),
        ({"min_score": "high"}, "`min_score` must be a number from 0 to 100, not 'high'"),
        ({"min_score": 101}, "`min_score` must be a number from 0 to 100, not 101"),
        ({"min_score": -0.5}, "`min_score` must be a number from 0 to 100, not -0.5"),
        ({"where": "legs = 0"}, r"use where=\['legs = 0'\]"),
        ({"where": [3]}, "a filter of `where` is 3; it must be a text such as 'year >= 2020'"),
        ({"where": 3}, "`where` must be a list of filters or a dict, not 3"),
        ({"rerank": 3}, "`rerank` is of the type int; give the name or folder of a cross-encoder"),
    ],
)
def test_a_wrong_option_is_told_in_the_terms_of_the_caller(pets: Retriever, options: dict[str, Any], why: str) -> None:
    with pytest.raises(Misuse, match=why):
        pets.search(**{"query": "a horse", **options})


def test_an_unknown_option_is_named(pets: Retriever) -> None:
    with pytest.raises(TypeError, match="top_k"):
        pets.search("a horse", top_k=3)  # type: ignore[call-arg]
    with pytest.raises(Misuse, match=r"for one query, use search\('a horse'\)"):
        pets.search_many("a horse")
    with pytest.raises(Misuse, match="query 2 is 3, not a text"):
        pets.search_many(["a horse", 3])  # type: ignore[list-item]
    with pytest.raises(Misuse, match="`ids` must be texts, not 3"):
        pets.delete([3])  # type: ignore[list-item]


WRONG: list[tuple[Callable[[Retriever], Any], str]] = [
    (lambda pets: pets.document(3), "`id_` must be a text, not 3"),
    (lambda pets: pets.get(None), "`id_` must be a text, not None"),
    (lambda pets: pets.similar(["cat"]), r"`id_` must be a text, not \['cat'\]"),
    (lambda pets: pets.delete(3), "`ids` must be a list of texts, not 3"),
    (lambda pets: pets.search("a", highlight="no"), "`highlight` must be True or False, not 'no'"),
    (lambda pets: pets.verify(repair="no"), "`repair` must be True or False, not 'no'"),
    (lambda pets: pets.rebuild(index_type=3), "`index_type` must be a text, not 3"),
    (lambda pets: pets.rebuild(transform=0), "`transform` must be a text, not 0"),
    (lambda pets: pets.rebuild(transform=""), "unknown transform ''; the transforms are"),
    (lambda pets: pets.rebuild(recall="high"), "`recall` must be a number above 0 and at most 1, not 'high'"),
    (lambda pets: pets.rebuild(recall=True), "`recall` must be a number above 0 and at most 1, not True"),
    (lambda pets: pets.rebuild(memory="2GB"), "`memory` must be a whole number of bytes, not '2GB'"),
    (lambda pets: pets.export("x", "csv"), "unknown `format` 'csv'; known: parquet, npy, sentence-transformers"),
    (lambda pets: pets.export(3), "`target` must be a file or a folder, not 3"),
    (lambda pets: Retriever.open(3), "`index` must be the folder of a collection, or milvus:URI, not 3"),
    (lambda pets: Retriever.open(pets.collection.name, progress="yes"), "`progress` must be a function, not 'yes'"),
]


@pytest.mark.parametrize(("call", "why"), WRONG)
def test_a_wrong_type_is_told_in_the_terms_of_the_caller(
    pets: Retriever, call: Callable[[Retriever], Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misuse, match=why):
        call(pets)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "wrong", "why"),
    [
        ("pooling", 3, "`pooling` must be a text, not 3"),
        ("precision", 8, "`precision` must be a text, not 8"),
        ("max_length", "long", "`max_length` must be a whole number of tokens, not 'long'"),
        ("batch_tokens", 2.5, "`batch_tokens` must be a whole number of tokens, not 2.5"),
        ("query_prompt", 3, "`query_prompt` must be a text, not 3"),
        ("document_prompt", ["a"], r"`document_prompt` must be a text, not \['a'\]"),
        ("prune", "no", "`prune` must be True or False, not 'no'"),
        ("progress", None, "`progress` must be a function, not None"),
        ("index_type", 3, "`index_type` must be a text"),
    ],
)
def test_a_wrong_option_of_build_is_told_and_nothing_is_stored(
    tmp_path: Path, tiny_bert: str, name: str, wrong: Any, why: str
) -> None:
    with pytest.raises(Misuse, match=why):
        Retriever.build(PETS, tmp_path / "c", encoder=tiny_bert, **{name: wrong})
    assert not (tmp_path / "c").exists()


def test_numbers_of_numpy_are_options(tmp_path: Path, tiny_bert: str) -> None:
    options: dict[str, Any] = {"max_length": np.int64(16), "recall": np.float32(0.5), "memory": np.int64(10**9)}
    Retriever.build(PETS, tmp_path / "c", encoder=tiny_bert, transform="none", **options).close()
    with Retriever.open(tmp_path / "c") as opened:
        assert opened.encoder().identity.max_length == 16


def test_a_retriever_is_not_pickled(pets: Retriever) -> None:
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(Misuse, match=r"cannot be pickled; open it where it is needed: Retriever\.open\('"):
            copied(pets)


def test_a_dict_filters_by_equality(pets: Retriever) -> None:
    for where, same in [
        ({"lang": "en"}, ["lang = en"]),
        ({"legs": 0}, ["legs = 0"]),
        ({"legs": np.int64(0)}, ["legs = 0"]),
    ]:
        found = [hit.id for hit in pets.search("a horse", where=where)]  # type: ignore[arg-type]
        assert found == [hit.id for hit in pets.search("a horse", where=same)] and found
    assert not pets.search("a horse", where={"lang": "en", "legs": 0})
    assert [hit.id for hit in pets.similar("cat", where={"legs": 0})] == ["fish"]
    for wrong, why in [
        ({"leg": 0}, "did you mean 'legs'"),
        ({"legs": [0]}, r"the value of 'legs' in `where` is \[0\]; a dict compares with"),
        ({"legs": None}, "is None; a dict compares with"),
        ({3: 0}, "the field 3 of `where` must be the name"),
        ({"legs": float("nan")}, "is nan"),
        ({"legs": "\ud800"}, "half a character"),
    ]:
        with pytest.raises(BadFilter, match=why):
            pets.search("a horse", where=wrong)  # type: ignore[arg-type]


def test_k_may_be_any_whole_number(pets: Retriever) -> None:
    assert len(pets.search("a horse", np.int64(2))) == 2  # type: ignore[arg-type]


class Longest:
    def scores(self, query: str, texts: Any) -> list[float]:
        return [float(len(text)) for text in texts]


class Broken:
    def scores(self, query: str, texts: Any) -> list[float]:
        return [1.0]


def test_any_object_with_scores_reranks(pets: Retriever) -> None:
    lengths = [hit.score for hit in pets.search("a horse", rerank=Longest())]
    assert lengths == sorted((len(f"{one.get('title', '')}\n{one['text']}".strip()) for one in PETS), reverse=True)
    with pytest.raises(RetrieverError, match=r"the reranker Broken returned .* shape \(1,\) for 5 texts"):
        pets.search("a horse", rerank=Broken())


def test_a_retriever_is_a_collection_of_ids(pets: Retriever, tmp_path: Path, tiny_bert: str) -> None:
    assert repr(pets).startswith("<Retriever '") and "5 documents, encoder " in repr(pets)
    assert list(pets) == [one["id"] for one in PETS] and len(pets) == 5
    assert "cat" in pets and "unicorn" not in pets and 3 not in pets and "\ud800" not in pets
    got = pets.get("cat")
    assert got is not None and got == pets.document("cat") and pets.get("unicorn") is None
    with pytest.raises(NoSuchDocument):
        pets.document("unicorn")
    opened = Retriever.open(pets.collection.name)
    opened.close()
    assert repr(opened).endswith(": closed>")


def test_the_async_retriever_gives_the_same(pets: Retriever, tmp_path: Path, tiny_bert: str) -> None:
    async def use() -> None:
        async with AsyncRetriever.open(pets.collection.name) as opened:
            queries = ["cats purr", "dogs bark", "horses gallop"] * 5
            found = await asyncio.gather(*(opened.search(query, 3) for query in queries))
            assert [[hit.id for hit in hits] for hits in found] == [
                [hit.id for hit in hits] for hits in pets.search_many(queries, 3)
            ]
            assert [id_ async for id_ in opened] == list(pets) and await opened.count() == 5
            assert await opened.contains("cat") and (await opened.get("unicorn")) is None
            with pytest.raises(Misuse, match="`k` must be"):
                await opened.search("a horse", 0)
        opening = AsyncRetriever.open(pets.collection.name)
        with pytest.raises(Misuse, match="`search` was used before the retriever was open. Write: pets = await"):
            await opening.search("cats")  # type: ignore[attr-defined]
        built = await AsyncRetriever.build(PETS, tmp_path / "c", encoder=tiny_bert, transform="none")
        assert built.report.new == 5 and built.local.folder == tmp_path / "c"
        async with built:
            assert (await built.add(["one more"])).new == 1 and repr(built).startswith("<AsyncRetriever")
            assert await built.delete(["cat"]) == ["cat"]
            reports = await asyncio.gather(*(built.add([f"text {number}"]) for number in range(4)))
            assert [report.new for report in reports] == [1] * 4
            await built.describe(title="Pets")
            assert (await built.info())["title"] == "Pets"
        assert repr(built).endswith(": closed>")

    asyncio.run(use())
