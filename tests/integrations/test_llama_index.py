"""A collection as a LlamaIndex retriever: retrieved, awaited, with a vector, in a query engine."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import PETS

from retriever import Retriever
from retriever.errors import Misuse

llama_index = pytest.importorskip("llama_index.core", reason="needs the extra llama-index")

from llama_index.core.llms import MockLLM  # noqa: E402
from llama_index.core.query_engine import RetrieverQueryEngine  # noqa: E402
from llama_index.core.schema import QueryBundle  # noqa: E402

import retriever.integrations.llama_index as module  # noqa: E402
from retriever.integrations.llama_index import CollectionRetriever  # noqa: E402


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Iterator[Retriever]:
    folder = tmp_path_factory.mktemp("llama-index") / "pets"
    with Retriever.build(PETS, folder, encoder=tiny_bert, transform="none") as built:
        yield built


def test_nodes_are_the_hits(pets: Retriever) -> None:
    found = CollectionRetriever(pets, k=3).retrieve("goldfish swim")
    hits = pets.search("goldfish swim", 3)
    assert [(node.node.metadata["document_id"], node.text) for node in found] == [(hit.id, hit.passage) for hit in hits]
    assert [node.score for node in found] == [hit.relevance / 100 for hit in hits]
    assert asyncio.run(CollectionRetriever(pets, k=3).aretrieve("goldfish swim")) == found


def test_options_are_those_of_a_search(pets: Retriever) -> None:
    found = CollectionRetriever(pets, where={"lang": "en"}, mode="dense").retrieve("a horse")
    assert [(node.node.metadata["document_id"], node.node.metadata["lang"]) for node in found] == [("bird", "en")]
    vector = pets.query_vectors(["Horses gallop over the fields in the morning."])[0].tolist()
    bundle = QueryBundle("anything", embedding=vector)
    assert CollectionRetriever(pets, mode="dense").retrieve(bundle)[0].node.metadata["document_id"] == "horse"
    with pytest.raises(Misuse, match="unknown mode"):
        CollectionRetriever(pets, mode="sparse").retrieve("a horse")


def test_in_a_query_engine(pets: Retriever) -> None:
    """The model is LlamaIndex's own, which repeats its prompt."""
    engine = RetrieverQueryEngine.from_args(CollectionRetriever(pets, k=1, mode="lexical"), llm=MockLLM())
    answer = engine.query("parrots")
    assert "Parrots can learn to speak" in str(answer)
    assert [node.node.metadata["document_id"] for node in answer.source_nodes] == ["bird"]


def test_it_stays_small() -> None:
    assert len(Path(module.__file__).read_text(encoding="utf-8").splitlines()) < 60
