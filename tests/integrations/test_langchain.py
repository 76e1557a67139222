"""A collection in LangChain's hands: invoked, awaited, in batches, in a chain."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from samples import PETS

import retriever.integrations.langchain
from retriever import Retriever
from retriever.errors import BadFilter, Misuse
from retriever.integrations.langchain import CollectionRetriever


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Iterator[Retriever]:
    folder = tmp_path_factory.mktemp("langchain") / "pets"
    with Retriever.build(PETS, folder, encoder=tiny_bert, transform="none") as built:
        yield built


def test_documents_are_the_hits(pets: Retriever) -> None:
    found = CollectionRetriever(retriever=pets, k=3).invoke("goldfish swim")
    hits = pets.search("goldfish swim", 3)
    assert [type(document) for document in found] == [Document] * 3
    assert [document.id for document in found] == [hit.id for hit in hits]
    assert [document.page_content for document in found] == [hit.passage for hit in hits]
    for document, hit in zip(found, hits, strict=True):
        own = {"id": hit.id, "title": hit.title, "rank": hit.rank, "score": hit.score}
        own["relevance"] = hit.relevance
        assert document.metadata == hit.metadata | own | {"start": hit.start, "end": hit.end}


def test_options_are_those_of_a_search(pets: Retriever) -> None:
    lexical = CollectionRetriever(retriever=pets, search_kwargs={"mode": "lexical"})
    assert [document.id for document in lexical.invoke("goldfish")] == ["fish"]
    legless = CollectionRetriever(retriever=pets, search_kwargs={"where": ["legs = 0"]})
    assert [document.id for document in legless.invoke("a horse")] == ["fish"]
    with pytest.raises(BadFilter, match="did you mean 'legs'"):
        CollectionRetriever(retriever=pets, search_kwargs={"where": ["leg = 0"]}).invoke("a horse")
    with pytest.raises(Misuse, match="empty"):
        lexical.invoke(" ")


def test_search_kwargs_are_honoured(pets: Retriever) -> None:
    three = CollectionRetriever(retriever=pets, search_kwargs={"k": 3, "where": {"lang": "en"}})
    assert [document.id for document in three.invoke("a horse")] == ["bird"]
    assert len(CollectionRetriever(retriever=pets, search_kwargs={"k": 3}).invoke("a horse")) == 3
    assert len(CollectionRetriever(retriever=pets).invoke("a horse", k=2, mode="dense")) == 2
    with pytest.raises(TypeError, match="filter"):
        CollectionRetriever(retriever=pets, search_kwargs={"filter": {}}).invoke("a horse")
    with pytest.raises(ValueError, match="search_type"):
        CollectionRetriever(retriever=pets, search_type="mmr")  # type: ignore[call-arg]


def test_awaited_and_in_batches(pets: Retriever) -> None:
    notes = CollectionRetriever(retriever=pets, k=2)
    queries = ["cats purr", "dogs bark", "horses gallop", "parrots speak"] * 5
    expected = [notes.invoke(query) for query in queries]
    assert asyncio.run(notes.ainvoke(queries[0])) == expected[0]
    assert notes.batch(queries) == expected
    assert asyncio.run(notes.abatch(queries)) == expected


def test_in_a_chain(pets: Retriever) -> None:
    joined = RunnableLambda(lambda found: " / ".join(document.page_content for document in found))
    chain = {
        "context": CollectionRetriever(retriever=pets, k=1, search_kwargs={"mode": "lexical"}) | joined,
        "question": RunnablePassthrough(),
    } | RunnableLambda(lambda given: f"{given['question']} -> {given['context']}")
    assert chain.invoke("Who does gallop?") == "Who does gallop? -> Horses gallop over the fields in the morning."
    assert asyncio.run(chain.ainvoke("parrots")) == "parrots -> Parrots can learn to speak a few words."


def test_it_stays_small() -> None:
    assert len(Path(retriever.integrations.langchain.__file__).read_text(encoding="utf-8").splitlines()) < 40


def test_without_langchain_the_extra_is_named() -> None:
    code = "import sys; sys.modules['langchain_core'] = None; import retriever.integrations.langchain"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'flow-retriever[langchain]'" in failed.stderr.splitlines()[-1]
