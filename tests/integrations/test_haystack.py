"""A collection as a Haystack component: run, in a pipeline, and in a pipeline that was written and read again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import PETS

from retriever import Retriever
from retriever.errors import BadFilter

haystack = pytest.importorskip("haystack", reason="needs the extra haystack")

from haystack import Pipeline  # noqa: E402
from haystack.components.builders import PromptBuilder  # noqa: E402

import retriever.integrations.haystack as module  # noqa: E402
from retriever.integrations.haystack import CollectionRetriever  # noqa: E402


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Iterator[Retriever]:
    folder = tmp_path_factory.mktemp("haystack") / "pets"
    with Retriever.build(PETS, folder, encoder=tiny_bert, transform="none") as built:
        yield built


def test_documents_are_the_hits(pets: Retriever) -> None:
    found = CollectionRetriever(pets, top_k=3).run("goldfish swim")["documents"]
    hits = pets.search("goldfish swim", 3)
    assert [(one.meta["document_id"], one.content) for one in found] == [(hit.id, hit.passage) for hit in hits]
    assert [one.score for one in found] == [hit.relevance / 100 for hit in hits]


def test_options_are_those_of_a_search(pets: Retriever) -> None:
    lexical = CollectionRetriever(pets, search_kwargs={"mode": "lexical"})
    assert [one.meta["document_id"] for one in lexical.run("goldfish")["documents"]] == ["fish"]
    one = CollectionRetriever(pets).run("a horse", top_k=1, where=["legs = 0"])["documents"]
    assert [found.meta["document_id"] for found in one] == ["fish"]
    with pytest.raises(BadFilter, match="did you mean 'legs'"):
        lexical.run("a horse", where=["leg = 0"])


def test_a_pipeline_is_written_and_read_again(pets: Retriever) -> None:
    pipeline = Pipeline()
    pipeline.add_component("pets", CollectionRetriever(pets, top_k=1, search_kwargs={"mode": "lexical"}))
    prompt = "{% for one in documents %}{{ one.content }}{% endfor %}"
    pipeline.add_component("prompt", PromptBuilder(prompt, required_variables=["documents"]))
    pipeline.connect("pets.documents", "prompt.documents")
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=[module.__name__])
    for one in (pipeline, again):
        told = one.run({"pets": {"query": "parrots"}})["prompt"]["prompt"]
        assert told == "Parrots can learn to speak a few words."
    opened = again.get_component("pets").index
    assert isinstance(opened, Retriever) and opened is not pets
    opened.close()


def test_it_stays_small() -> None:
    assert len(Path(module.__file__).read_text(encoding="utf-8").splitlines()) < 60
